"""Likelihoods of two weights, whose posteriors a grid knows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.special import gammaln, log_expit, logsumexp

import ppl_sgp as sgp

SCALES = np.exp(np.linspace(-1.5, 1.5, 13))
#: log prior of the scales, a log-normal of width 0.4 on an even grid of logarithms.
LOG_PRIOR = -0.5 * (np.log(SCALES) / 0.4) ** 2


def model(stats):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.4))
    sgp.observe("y", stats, sgp.DiagonalPrior(scale))


LOG_DENSITIES = {
    "bernoulli": lambda eta, y: log_expit(np.where(y > 0, eta, -eta)),
    "poisson": lambda eta, y: y * eta - np.exp(eta) - gammaln(y + 1),
}
LIKELIHOODS = {"bernoulli": sgp.likelihoods.Bernoulli(), "poisson": sgp.likelihoods.Poisson()}


class Tiny(NamedTuple):
    """Rows with an intercept and one input, and their likelihood."""

    family: str
    X: np.ndarray
    y: np.ndarray

    @property
    def basis(self):
        return sgp.LinearBasis(1)

    @property
    def stats(self):
        prior = sgp.DiagonalPrior(1.0)
        return sgp.compress_likelihood(self.basis, self.X, self.y, LIKELIHOODS[self.family], prior)

    def grid(self, keep=slice(None)):
        """Weights (g, 2), and log p(y | w) of the kept rows there."""
        centre = np.asarray(self.stats.centre.mean)
        spread = np.linalg.norm(np.asarray(self.stats.centre.factor), axis=1)
        axes = [c + (8 * s + 4) * np.linspace(-1, 1, 241) for c, s in zip(centre, spread, strict=True)]
        w = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        return w, self.rows_log_density(w)[:, keep].sum(axis=1)

    def rows_log_density(self, w):
        """log p(y_i | w), (g, n)."""
        return LOG_DENSITIES[self.family](w @ self.basis.host_features(self.X).T, self.y)

    def posterior(self, keep=slice(None)):
        """Weights (g, 2), and probabilities (scales, g) of scale and weights together given the kept rows."""
        w, likelihood = self.grid(keep)
        prior = -0.5 * np.sum(w**2, axis=1) / SCALES[:, None] ** 2 - 2 * np.log(SCALES[:, None])
        joint = LOG_PRIOR[:, None] + prior + likelihood
        return w, np.exp(joint - logsumexp(joint))

    def compressed_draws(self, rng, count):
        """Draws of the scale from the compressed model, on the grid of scales."""
        stats = self.stats
        log_evidence = [float(sgp.log_evidence(stats, sgp.DiagonalPrior(scale), 1.0)) for scale in SCALES]
        logs = LOG_PRIOR + np.array(log_evidence)
        probability = np.exp(logs - logsumexp(logs))
        # Stratified, so that their error is that of weights alone.
        points = (np.arange(count) + rng.random()) / count
        return {"scale": SCALES[np.minimum(np.searchsorted(np.cumsum(probability), points), len(SCALES) - 1)]}


def tiny(family, seed=0, n=40):
    """Rows of a family; ``rare`` is Bernoulli with few events."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 1))
    eta = 0.3 + 1.2 * X[:, 0]
    if family == "rare":
        y = np.zeros(n)
        y[np.argsort(X[:, 0])[-3:-1]] = 1
        return Tiny("bernoulli", X, y)
    y = rng.random(n) < 1 / (1 + np.exp(-eta)) if family == "bernoulli" else rng.poisson(np.exp(eta))
    return Tiny(family, X, y.astype(float))
