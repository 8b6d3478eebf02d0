"""What an exact GP makes of some of the rows: whether the basis is too poor for the data, or the run in a poor mode.

A poor basis calls noise what it cannot represent, and every check of the chains and of the features in use passes. An
exact GP on a few hundred rows has no basis to be poor: its evidence on those rows, at the hyperparameters of the run
and at others, is what the finite basis should reach. O(k³) for k rows and each lengthscale that is tried, in float64
NumPy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from ..bases.feature_kernel import FeatureKernel
from ..bases.frozen_kernel import evaluate
from ..evidence.spectrum import FACTORS, RATIOS, Spectrum
from ..kernels import Kernel, OfColumns, Periodic
from ..posteriors.posterior import Posterior
from ..priors import WeightPrior

#: Rows that are compared on, and posterior draws of which the best counts for the basis.
ROWS, DRAWS = 300, 8
#: Rows at most that it is told of where the run was told of many more, and has to predict each of from the others.
CONFIRMED = 1500
#: Factors of each lengthscale alone that are tried after common ones, for so many inputs at most.
ALONE, MOST_INPUTS = (1 / 3, 3.0), 12
#: Noise is not looked for below this share of the run's: repeated rows of rounded values would be interpolated.
LEAST_NOISE = 1 / 30


class ExactFit(NamedTuple):
    """An exact GP on some rows.

    :ivar log_evidence: in nats.
    :ivar scaling: factors of the lengthscales, shape (d,).
    :ivar amplitude: the factor of the kernel's standard deviation.
    :ivar noise_scale: shape (1,).
    """

    log_evidence: float
    scaling: np.ndarray
    amplitude: float
    noise_scale: np.ndarray


class Comparison(NamedTuple):
    """The finite basis and exact GPs on the same rows.

    :ivar num_rows: k.
    :ivar of_basis: log evidence of the basis at the draw that is best for it, in nats.
    :ivar draw: that draw's sites by name.
    :ivar noise_scale: its noise, shape (1,).
    :ivar same: an exact GP at the same hyperparameters.
    :ivar best: the best exact GP that was found.
    :ivar gained: log density of each row given the others, (k,): that of the best exact GP less that of the basis.
    """

    num_rows: int
    of_basis: float
    draw: dict[str, np.ndarray]
    noise_scale: np.ndarray
    same: ExactFit
    best: ExactFit
    gained: np.ndarray


def compare_with_exact(
    posterior: Posterior, X: np.ndarray, y: np.ndarray, row_weights: np.ndarray | None = None
) -> Comparison:
    """Compare on at most ``ROWS`` rows of one output, chosen at random but always the same.

    :param posterior: of a model that knows its kernel: ``kernel_at(draw, basis)``.
    :param X: training inputs (n, d), float64; ``y`` (n,) or (n, 1), ``row_weights`` (n,) or ``None``.
    """
    chosen = np.sort(np.random.default_rng(0).choice(len(X), min(len(X), ROWS), replace=False))
    X, y = X[chosen], y[chosen].reshape(len(chosen))
    root = np.ones(len(X)) if row_weights is None else np.sqrt(row_weights[chosen])
    few, model, basis = posterior.spaced(DRAWS), posterior.model, posterior.statistics.basis
    parameters = few.marginal_parameters("report")
    Phi = basis.host_features(X)
    noises = np.asarray(parameters.noise_scale, dtype=np.float64).reshape(few.num_draws, 1)
    about = root * (y - _prior_means(parameters.prior, few.num_draws, Phi))
    implied = np.asarray(_implied(parameters.prior, Phi), dtype=np.float64)
    spectra = [Spectrum.of(root[:, None] * K * root, each) for K, each in zip(implied, about, strict=True)]
    values = [float(each.log_evidence(1.0, noise[0] ** 2)) for each, noise in zip(spectra, noises, strict=True)]
    index = int(np.argmax(values))
    draw, noise = {name: v[index] for name, v in few.latent.items()}, noises[index]
    fixed = {name for name in ("amplitude", "noise_scale") if hasattr(model, name) and name not in draw}
    search = _Search(model.kernel_at(draw, basis), X, about[index], root, noise, fixed)
    same = search.at_run()
    best = max([same, search.best()], key=lambda fit: fit.log_evidence)
    predicted = search.spectrum(best.scaling).leave_one_out(best.amplitude**2, best.noise_scale[0] ** 2)
    gained = predicted - spectra[index].leave_one_out(1.0, noise[0] ** 2)
    log_weights = float(np.sum(np.log(root)))
    same, best = (fit._replace(log_evidence=fit.log_evidence + log_weights) for fit in (same, best))
    return Comparison(len(X), values[index] + log_weights, draw, noise, same, best, gained)


def predicts_better(
    posterior: Posterior, found: Comparison, X: np.ndarray, y: np.ndarray, row_weights: np.ndarray | None = None
) -> bool:
    """Whether the best exact GP predicts each of more rows from the others better than the run does from all others.

    What is best for a few rows may be too smooth for all: then the run is right, and not its basis poor.
    """
    chosen = np.sort(np.random.default_rng(1).choice(len(X), min(len(X), CONFIRMED), replace=False))
    few, basis = posterior.spaced(DRAWS), posterior.statistics.basis
    own = few.leave_one_out(X, y.reshape(len(y)), row_weights=row_weights, rows=chosen)
    X, y = X[chosen], y[chosen].reshape(len(chosen))
    root = np.ones(len(X)) if row_weights is None else np.sqrt(row_weights[chosen])
    prior = few.marginal_parameters("report").prior
    about = root * (y - _prior_means(prior, few.num_draws, basis.host_features(X)).mean(axis=0))
    search = _Search(posterior.model.kernel_at(found.draw, basis), X, about, root, found.noise_scale, set())
    exact = search.spectrum(found.best.scaling).leave_one_out(found.best.amplitude**2, found.best.noise_scale[0] ** 2)
    return bool(np.sum(exact + np.log(root)) > np.sum(np.logaddexp.reduce(own) - np.log(len(own))))


def _prior_means(prior: WeightPrior, num_draws: int, Phi: np.ndarray) -> np.ndarray:
    """Prior means of f at rows with features (k, m) at each draw, (S, k): an exact GP has the same mean."""
    if prior.mean is None:
        return np.zeros((num_draws, len(Phi)))
    return np.broadcast_to(np.asarray(prior.mean, dtype=np.float64), (num_draws, Phi.shape[1])) @ Phi.T


@jax.jit
def _implied(priors: WeightPrior, Phi: Any) -> jax.Array:
    """The covariance of f at rows with features (k, m) at each draw, (S, k, k)."""

    def at(prior: WeightPrior) -> jax.Array:
        features = jnp.asarray(Phi, checks.common_dtype(*jax.tree.leaves(prior)))
        return features @ prior.apply(features.T)

    return jax.lax.map(at, priors)


class _Search:
    """Exact GPs around a kernel: lengthscales are scaled by scaling the inputs, whatever the kernel calls them."""

    def __init__(
        self, kernel: Kernel, X: np.ndarray, y: np.ndarray, root: np.ndarray, noise: np.ndarray, fixed: set[str]
    ) -> None:
        self.kernel, self.X, self.y, self.root, self.noise, self.fixed = kernel, X, y, root, noise, fixed

    def spectrum(self, scaling: np.ndarray) -> Spectrum:
        """With lengthscales multiplied by factors, (d,)."""
        terms = self.kernel.terms
        K = sum(evaluate(covariance, term, self.X / scaling if _is_smooth(term) else self.X, np) for term in terms)
        return Spectrum.of(self.root[:, None] * K * self.root, self.y)

    def at_run(self) -> ExactFit:
        """At the hyperparameters of the run."""
        return self._as_run(np.ones(self.X.shape[1]))

    def _as_run(self, scaling: np.ndarray) -> ExactFit:
        value = self.spectrum(scaling).log_evidence(1.0, self.noise[0] ** 2)
        return ExactFit(float(value), scaling, 1.0, self.noise)

    def at(self, scaling: np.ndarray) -> ExactFit:
        """With the best amplitude and noise at given lengthscales, where the model leaves them free."""
        if {"amplitude", "noise_scale"} <= self.fixed:
            return self._as_run(scaling)
        spectrum = self.spectrum(scaling)
        ratios = RATIOS * np.mean(spectrum.eigenvalues)
        if "noise_scale" in self.fixed:
            variances = self.noise[0] ** 2 / ratios
        elif "amplitude" in self.fixed:
            variances = np.ones(len(ratios))
        else:
            variances = spectrum.best_variance(ratios)
        noises = np.maximum(np.sqrt(variances * ratios), LEAST_NOISE * self.noise[0])
        values = spectrum.log_evidence(variances, noises**2)
        best = int(np.argmax(values))
        return ExactFit(float(values[best]), scaling, float(np.sqrt(variances[best])), noises[best : best + 1])

    def best(self) -> ExactFit:
        """Over common factors of all lengthscales, then over those of each input."""
        d = self.X.shape[1]
        best = max((self.at(np.full(d, factor)) for factor in FACTORS), key=lambda fit: fit.log_evidence)
        half = [self.at(best.scaling * factor) for factor in (2**-0.5, 2**0.5)]
        best = max([best, *half], key=lambda fit: fit.log_evidence)
        for j in range(d if 1 < d <= MOST_INPUTS else 0):
            for factor in ALONE:
                scaling = best.scaling.copy()
                scaling[j] *= factor
                best = max(best, self.at(scaling), key=lambda fit: fit.log_evidence)
        return best


def _is_smooth(term: Kernel) -> bool:
    """Whether a term has lengthscales: seasons, and what is linear in features, keep their inputs."""
    inner = [factor.kernel if isinstance(factor, OfColumns) else factor for factor in term.factors]
    return not any(isinstance(factor, (FeatureKernel, Periodic)) for factor in inner)


def covariance(kernel: Kernel, X: Any) -> Any:
    """The exact kernel at inputs (k, d)."""
    return kernel(X)
