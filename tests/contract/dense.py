"""A small regression problem and its exact posterior, from dense n × n matrices and the documented formulas.

Nothing here calls the evidence, priors, kernels or models of the package: only the numbers that a ``FourierBasis``
publishes (frequencies, log proposal, centre) are read from it.
"""

import dataclasses
from functools import cached_property

import jax
import numpy as np
import scipy.stats

import ppl_sgp as sgp

NAMES = ("lengthscale", "amplitude", "noise_scale")


@dataclasses.dataclass(frozen=True, eq=False)
class DenseProblem:
    """n rows of one input, seen through m Fourier features of a squared-exponential kernel."""

    X: np.ndarray
    y: np.ndarray
    basis: sgp.FourierBasis | None
    #: Medians and log standard deviations of log-normal priors that replace the default ones.
    replaced_priors: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)

    @cached_property
    def statistics(self) -> sgp.SufficientStatistics:
        return sgp.sufficient_statistics(self.basis, self.X, self.y)

    @cached_property
    def Phi(self) -> np.ndarray:
        phase = 2 * np.pi * (self.X - self.basis.centre) @ np.asarray(self.basis.frequencies).T
        return np.concatenate([np.cos(phase), np.sin(phase)], axis=1)

    def unit_variances(self, lengthscale: float) -> np.ndarray:
        """Prior variances of the weights for amplitude 1: ``(2/m) S(ξ)/q(ξ)``, S in cycles."""
        frequencies = np.asarray(self.basis.frequencies)[:, 0]
        density = np.sqrt(2 * np.pi) * lengthscale * np.exp(-2 * (np.pi * lengthscale * frequencies) ** 2)
        return np.tile(density / np.exp(self.basis.log_proposal) / len(frequencies), 2)

    def unit_kernel(self, lengthscale: float) -> np.ndarray:
        """The covariance of the rows for amplitude 1."""
        return (self.Phi * self.unit_variances(lengthscale)) @ self.Phi.T

    def log_evidence(self, lengthscale: float, amplitude, noise_scale) -> np.ndarray:
        """``log N(y; 0, a²ΦS⁻¹Φᵀ + σ²I)``; amplitude and noise may be arrays that broadcast."""
        eigenvalues, vectors = np.linalg.eigh(self.unit_kernel(lengthscale))
        rotated = vectors.T @ self.y
        variance = np.multiply.outer(np.square(amplitude), eigenvalues.clip(0)) + np.square(noise_scale)[..., None]
        return -0.5 * np.sum(np.log(2 * np.pi * variance) + rotated**2 / variance, axis=-1)

    @property
    def priors(self) -> dict[str, tuple[float, float]]:
        """Medians and log standard deviations: the documented defaults, or what replaces them."""
        rms = np.sqrt(np.mean(self.y**2))
        default = {"lengthscale": (self.X.std() / 2, 1.0), "amplitude": (rms, 1.0), "noise_scale": (0.3 * rms, 1.5)}
        return {**default, **self.replaced_priors}

    def log_prior(self, name: str, value) -> np.ndarray:
        median, spread = self.priors[name]
        return scipy.stats.lognorm.logpdf(value, spread, scale=median)

    def log_joint(self, lengthscale, amplitude, noise_scale) -> np.ndarray:
        """Evidence × hyper-prior densities of the parameters in their own units."""
        prior = sum(map(self.log_prior, NAMES, (lengthscale, amplitude, noise_scale)))
        return prior + self.log_evidence(lengthscale, amplitude, noise_scale)


class ExactProblem(DenseProblem):
    """The same without a basis: the squared exponential itself."""

    def unit_kernel(self, lengthscale: float) -> np.ndarray:
        return np.exp(-0.5 * ((self.X - self.X.T) / lengthscale) ** 2)


@dataclasses.dataclass(frozen=True)
class GridPosterior:
    """Exact moments of the logarithms of the three hyperparameters, and the log normalising constant."""

    mean: np.ndarray
    sd: np.ndarray
    log_marginal: float


def grid_posterior(problem: DenseProblem, centre: dict[str, float], half_width: dict[str, float], size=49):
    """Posterior by the trapezium rule on a grid of log parameters, which must contain the mass."""
    axes = [np.log(centre[name]) + np.linspace(-half_width[name], half_width[name], size) for name in NAMES]
    lengthscales, amplitude, noise = np.exp(axes[0]), np.exp(axes[1])[:, None], np.exp(axes[2])[None, :]
    # The Jacobian of the logarithm is the parameter itself.
    log_density = np.stack([problem.log_joint(ell, amplitude, noise) for ell in lengthscales])
    log_density += axes[0][:, None, None] + axes[1][None, :, None] + axes[2][None, None, :]
    weights = np.exp(log_density - log_density.max())
    edges = max(np.moveaxis(weights, k, 0)[[0, -1]].max() for k in range(3))
    assert edges < 1e-4, f"the grid cuts off mass: density at its edge is {edges} of the maximum"
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    log_marginal = float(np.log(weights.sum() * cell) + log_density.max())
    weights /= weights.sum()
    marginals = [weights.sum(axis=tuple(j for j in range(3) if j != k)) for k in range(3)]
    mean = np.array([np.sum(p * axis) for p, axis in zip(marginals, axes, strict=True)])
    variance = [np.sum(p * (axis - mu) ** 2) for p, axis, mu in zip(marginals, axes, mean, strict=True)]
    return GridPosterior(mean, np.sqrt(variance), log_marginal)


def make_problem(num_rows=200, num_features=20) -> DenseProblem:
    """A draw of the model itself, so that its posterior has one mode: lengthscale 0.4, amplitude 1, noise 0.3."""
    rng = np.random.default_rng(11)
    X = np.sort(rng.uniform(-3, 3, size=(num_rows, 1)), axis=0)
    proposal = sgp.SquaredExponential(0.3)
    basis = sgp.FourierBasis.sample(jax.random.key(0), proposal, num_features, 1, "quasi_random")
    empty = DenseProblem(X, np.zeros(num_rows), basis)
    w = np.sqrt(empty.unit_variances(0.4)) * rng.normal(size=num_features)
    return dataclasses.replace(empty, y=empty.Phi @ w + 0.3 * rng.normal(size=num_rows))
