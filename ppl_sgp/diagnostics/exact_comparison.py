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
from ..kernels import Kernel, OfColumns, Periodic
from ..posteriors.posterior import Posterior
from ..priors import WeightPrior

#: Rows that are compared on, and posterior draws of which the best counts for the basis.
ROWS, DRAWS = 300, 8
#: Common factors of the lengthscales that are tried (a gap or a wrong time stamp stretches them a hundredfold), then
#: factors of each input alone, for so many inputs at most.
FACTORS, ALONE, MOST_INPUTS = 2.0 ** np.arange(-8, 4), (1 / 3, 3.0), 12
#: Ratios of noise to signal variance between which the noise is looked for, and points to look at.
RATIOS = np.geomspace(1e-8, 1e4, 49)
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
    """

    num_rows: int
    of_basis: float
    draw: dict[str, np.ndarray]
    noise_scale: np.ndarray
    same: ExactFit
    best: ExactFit


def compare_with_exact(
    posterior: Posterior, X: np.ndarray, y: np.ndarray, row_weights: np.ndarray | None = None
) -> Comparison:
    """Compare on at most ``ROWS`` rows of one output, chosen at random but always the same.

    :param posterior: of a model that knows its kernel: ``kernel_at(draw, basis)``.
    :param X: training inputs (n, d), float64; ``y`` (n,) or (n, 1), ``row_weights`` (n,) or ``None``.
    """
    chosen = np.sort(np.random.default_rng(0).choice(len(X), min(len(X), ROWS), replace=False))
    X, Y = X[chosen], y[chosen].reshape(len(chosen), -1)
    weights = np.ones(len(X)) if row_weights is None else row_weights[chosen]
    Y, log_weights = Y * np.sqrt(weights)[:, None], 0.5 * float(np.sum(np.log(weights)))
    few, model, basis = posterior.spaced(DRAWS), posterior.model, posterior.statistics.basis
    parameters = few.marginal_parameters("report")
    Phi = basis.host_features(X)
    covariances = _implied(parameters.prior, Phi)
    noises = np.asarray(parameters.noise_scale, dtype=np.float64).reshape(few.num_draws, 1)
    root = np.sqrt(weights)
    means = _prior_means(parameters.prior, few.num_draws, Phi)
    about = [Y - (root * mean)[:, None] for mean in means]
    values = [
        _Spectrum.of(root[:, None] * np.asarray(K, dtype=np.float64) * root, deviation).log_evidence(1.0, noise)
        for K, noise, deviation in zip(covariances, noises, about, strict=True)
    ]
    index = int(np.argmax(values))
    draw, noise = {name: v[index] for name, v in few.latent.items()}, noises[index]
    fixed = {name for name in ("amplitude", "noise_scale") if hasattr(model, name) and name not in draw}
    search = _Search(model.kernel_at(draw, basis), X, about[index], root, noise, fixed)
    same = search.at_run()
    best = max([same, search.best()], key=lambda fit: fit.log_evidence)
    shifted = [fit._replace(log_evidence=fit.log_evidence + log_weights) for fit in (same, best)]
    return Comparison(len(X), values[index] + log_weights, draw, noise, *shifted)


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


class _Spectrum(NamedTuple):
    """A covariance by its eigenvalues (k,), and squares of y in its eigenvectors (k, 1)."""

    eigenvalues: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, K: np.ndarray, Y: np.ndarray) -> _Spectrum:
        values, vectors = np.linalg.eigh(K)
        return cls(values.clip(0), (vectors.T @ Y) ** 2)

    def log_evidence(self, scale: float, noise_scale: np.ndarray) -> float:
        """Of ``scale·K`` and noise of a standard deviation (1,)."""
        variance = scale * self.eigenvalues[:, None] + noise_scale**2
        return float(-0.5 * np.sum(self.squares / variance + np.log(2 * np.pi * variance)))


class _Search:
    """Exact GPs around a kernel: lengthscales are scaled by scaling the inputs, whatever the kernel calls them."""

    def __init__(
        self, kernel: Kernel, X: np.ndarray, Y: np.ndarray, root: np.ndarray, noise: np.ndarray, fixed: set[str]
    ) -> None:
        self.kernel, self.X, self.Y, self.root, self.noise, self.fixed = kernel, X, Y, root, noise, fixed

    def spectrum(self, scaling: np.ndarray) -> _Spectrum:
        terms = self.kernel.terms
        K = sum(evaluate(covariance, term, self.X / scaling if _is_smooth(term) else self.X, np) for term in terms)
        return _Spectrum.of(self.root[:, None] * K * self.root, self.Y)

    def at_run(self) -> ExactFit:
        """At the hyperparameters of the run."""
        scaling = np.ones(self.X.shape[1])
        return ExactFit(self.spectrum(scaling).log_evidence(1.0, self.noise), scaling, 1.0, self.noise)

    def at(self, scaling: np.ndarray) -> ExactFit:
        """With the best amplitude and noise at given lengthscales, where the model leaves them free."""
        spectrum = self.spectrum(scaling)
        if {"amplitude", "noise_scale"} <= self.fixed:
            return ExactFit(spectrum.log_evidence(1.0, self.noise), scaling, 1.0, self.noise)
        ratios = RATIOS * np.mean(spectrum.eigenvalues)
        if "noise_scale" in self.fixed:
            scales = self.noise[0] ** 2 / ratios
        elif "amplitude" in self.fixed:
            scales = np.ones(len(ratios))
        else:
            scales = np.mean(spectrum.squares[:, 0] / (spectrum.eigenvalues + ratios[:, None]), axis=1)
        pairs = zip(scales, np.maximum(np.sqrt(scales * ratios), LEAST_NOISE * self.noise[0]), strict=True)
        value, scale, noise = max(
            (spectrum.log_evidence(scale, np.array([noise])), scale, noise) for scale, noise in pairs
        )
        return ExactFit(value, scaling, float(np.sqrt(scale)), np.array([noise]))

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
