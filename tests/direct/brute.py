"""Discrete weights by enumeration of every configuration, from the papers' definitions."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax, logsumexp

import ppl_sgp as sgp
from ppl_sgp.direct.elbo import Variational
from ppl_sgp.direct.problem import Problem
from tests.builders import IdentityBasis


class Case(NamedTuple):
    """A small regression: rows, statistics, prior as the user passes it, and the same in arrays."""

    Phi: np.ndarray
    y: np.ndarray
    statistics: sgp.SufficientStatistics
    prior: object
    noise: object
    problem: Problem
    row_weights: np.ndarray | None

    @property
    def codes(self):
        """Every configuration, shape (m̄ᵇ, b)."""
        b, num_levels = self.problem.prior.levels.shape
        return np.array(list(itertools.product(range(num_levels), repeat=b)))

    @property
    def weights(self):
        return self.problem.prior.levels[np.arange(self.Phi.shape[1]), self.codes]

    def log_likelihood(self):
        """log p(y | w, σ) of every configuration and noise level, (m̄ᵇ, S)."""
        omega = np.ones(len(self.y)) if self.row_weights is None else self.row_weights
        residual = self.y - self.weights @ self.Phi.T
        columns = []
        for scale in self.problem.noise_scales:
            variance = scale**2 / omega
            columns.append(np.sum(-0.5 * (np.log(2 * np.pi * variance) + residual**2 / variance), axis=1))
        return np.stack(columns, axis=1)

    def log_prior(self):
        each = [log_prob_of(part, self.codes) for part in self.problem.prior.log_probs]
        return logsumexp(self.problem.prior.log_weights[:, None] + np.array(each), axis=0)

    def log_evidence(self):
        joint = self.log_likelihood() + self.log_prior()[:, None] + self.problem.log_noise_prior
        return float(logsumexp(joint))

    def elbo(self, q: Variational):
        """Of a mixture, exactly."""
        log_q = log_mixture(q, self.codes)
        probs, noise = np.exp(log_q), np.exp(q.log_noise)
        likelihood = probs @ self.log_likelihood() @ noise
        divergence = probs @ (log_q - self.log_prior()) + noise @ (q.log_noise - self.problem.log_noise_prior)
        return float(likelihood - divergence)

    def posterior(self):
        """Of every configuration, (m̄ᵇ,), noise summed out."""
        joint = logsumexp(self.log_likelihood() + self.problem.log_noise_prior, axis=1) + self.log_prior()
        return np.exp(joint - logsumexp(joint))


def log_prob_of(log_probs, codes):
    return log_probs[np.arange(len(log_probs)), codes].sum(axis=1)


def log_mixture(q: Variational, codes):
    each = np.array([log_prob_of(part, codes) for part in q.log_probs])
    return logsumexp(q.log_weights[:, None] + each, axis=0)


def random_variational(rng, problem, count):
    shape = (count, *problem.prior.levels.shape)
    noise = log_softmax(rng.normal(size=len(problem.noise_scales)))
    return Variational(log_softmax(rng.normal(size=count)), log_softmax(rng.normal(size=shape), axis=-1), noise)


def grid(rng, num_levels, batch=()):
    """A relaxation of random levels and probabilities."""
    levels = np.sort(rng.normal(size=(*batch, num_levels)), axis=-1)
    return sgp.DiscreteRelaxation.from_logits(levels, rng.normal(size=(*batch, num_levels)))


def case(name="noise grid", n=7, b=3, num_levels=4):
    rng = np.random.default_rng(3)
    Phi, y = rng.normal(size=(n, b)), rng.normal(size=n)
    prior, noise, row_weights = grid(rng, num_levels, (b,)), 0.6, None
    if name == "noise grid":
        noise = (np.array([0.3, 0.7, 1.4]), np.log([0.2, 0.5, 0.3]))
    if name == "shared prior":
        prior = grid(rng, num_levels)
    if name == "row weights":
        row_weights = rng.uniform(0.3, 3.0, size=n)
    if name == "mixture prior":
        levels = np.sort(rng.normal(size=(b, num_levels)), axis=1)
        parts = [sgp.DiscreteRelaxation.from_logits(levels, rng.normal(size=levels.shape)) for _ in range(2)]
        prior = sgp.direct.MixturePrior(parts, [0.3, 0.7])
    statistics = sgp.sufficient_statistics(IdentityBasis(b), Phi, y, row_weights=row_weights)
    return Case(Phi, y, statistics, prior, noise, Problem.of(statistics, prior, noise), row_weights)


def central_differences(function, x, step=1e-6):
    return np.array([(function(x + step * e) - function(x - step * e)) / (2 * step) for e in np.eye(len(x))])
