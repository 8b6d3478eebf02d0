"""The posterior of the weights given hyperparameters, as a NumPyro distribution."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.linalg import cho_solve, solve_triangular

from .._internal import checks
from .._internal.batching import vectorize
from ..priors import DiagonalPrior, WeightPrior
from ..statistics.statistics import SufficientStatistics
from . import joint, scaled
from .dispatch import checked_prior, joint_batch

#: Signal of the prior, in units of the noise and squared, beyond which a triangular factor has too few digits: of 11
#: rows and 60 features variances were right to 1e-7 there, to 1e-3 at 1e16, and wrong by a factor 5 at 1e18.
WIDE = 1e12


def weight_posterior(
    statistics: SufficientStatistics, prior: WeightPrior, noise_scale: Any = None
) -> dist.MultivariateNormal:
    """``p(w | y, θ)``, the Gaussian posterior of the weights given hyperparameters. O(m³), or O(m²) if rotated.

    ``w | y ~ N(μ + γ^½u, γ^½(I + GᵀG)⁻¹γ^½)`` (Evans 2022, eq 2.14, in the whitened units of
    ``ppl_sgp.evidence``). The factor of the covariance is built directly, without inverting it back.

    :param statistics: from :func:`~ppl_sgp.sufficient_statistics`.
    :param prior: prior of the weights.
    :param noise_scale: standard deviation of the noise. Left out for compressed likelihoods.
    :return: a multivariate normal of event shape (m,); batch shape as that of the evidence.
    :raises ValueError: if the arguments do not fit.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), 10, 1)
        >>> stats = sgp.sufficient_statistics(basis, X, np.cos(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0]))
        >>> posterior = sgp.weight_posterior(stats, basis.weight_prior(sgp.Matern32(0.3)), 0.1)
        >>> posterior.event_shape, posterior.sample(jax.random.key(1)).shape
        ((10,), (10,))
    """
    prior = checked_prior(statistics, prior)
    noise_scale = statistics.noise_scale_of("weight_posterior", noise_scale)
    checks.positive("noise_scale", noise_scale, "weight_posterior")
    joint_batch("weight_posterior", statistics, noise_scale=noise_scale, prior=prior)
    loc, factor = posterior_factors(statistics, prior, noise_scale)
    if factor.ndim == loc.ndim:
        scale_tril = jnp.vectorize(jnp.diag, signature="(m)->(m,m)")(factor)
    else:
        scale_tril = jnp.vectorize(_triangular, signature="(m,m)->(m,m)")(factor)
    return dist.MultivariateNormal(loc, scale_tril=scale_tril)


@jax.jit
def posterior_factors(
    statistics: SufficientStatistics, prior: WeightPrior, noise_scale: Any
) -> tuple[jax.Array, jax.Array]:
    """Mean (…, m) of the weights, and a factor (…, m, m) of their covariance, or its diagonal (…, m).

    The diagonal alone where weights are independent: a diagonal prior on rotated statistics, in O(m).
    """
    dtype = checks.common_dtype(*jax.tree.leaves(prior), noise_scale)
    axes = prior.diagonal_along(0)
    if axes is not None:
        return _scaled(statistics, axes.prior, noise_scale, dtype)
    return _joint(statistics, prior, noise_scale, dtype)


def _joint(statistics: SufficientStatistics, prior: Any, noise_scale: Any, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """For any covariance ``C = FFᵀ``: ``w | y ~ N(μ + Fu, F(I + GᵀG)⁻¹Fᵀ)`` with ``G = RF/σ``."""
    m = statistics.num_weights
    R, F = joint.dense_factor(statistics, dtype), prior.apply_root(jnp.eye(m, dtype=dtype))
    mean = jnp.zeros(m, dtype) if prior.mean is None else jnp.asarray(prior.mean, dtype)
    wide = jnp.sum((R @ F) ** 2) > WIDE * jnp.min(jnp.asarray(noise_scale, dtype)) ** 2

    def one(noise_scale, projection):
        G, e = R @ F / noise_scale, (projection[:-1] - R @ mean) / noise_scale
        return mean + F @ cho_solve((scaled.qr_factor(G), True), G.T @ e), F @ _inverse_factor(G, wide)

    return vectorize(one, "(),(p)->(m),(m,m)", (noise_scale, statistics.projection), dtype)


def _scaled(
    statistics: SufficientStatistics, prior: DiagonalPrior, noise_scale: Any, dtype: Any
) -> tuple[jax.Array, jax.Array]:
    """For a diagonal covariance."""
    design, log_scale, mean = scaled.prepare(statistics, prior, dtype)
    independent = design.factor.ndim == 1
    signal = jnp.exp(2 * log_scale) @ jnp.sum(design.factor**2, axis=0) if not independent else jnp.zeros((), dtype)
    wide = jnp.max(signal) > WIDE * jnp.min(jnp.asarray(noise_scale, dtype)) ** 2

    def one(log_scale, mean, noise_scale, projection):
        parameters = scaled.Parameters(log_scale, mean, noise_scale, projection)
        solution = scaled.solve(design, parameters)
        scale = jnp.exp(log_scale)
        loc = mean + scale * solution.weights
        if independent:
            return loc, scale * (1 + (design.factor * scale / noise_scale) ** 2) ** -0.5
        return loc, scale[:, None] * _inverse_factor(design.factor * (scale / noise_scale)[None, :], wide)

    arguments = (log_scale, mean, noise_scale, statistics.projection)
    return vectorize(one, f"(m),(m),(),(p)->(m),{'(m)' if independent else '(m,m)'}", arguments, dtype)


def _inverse_factor(G: jax.Array, wide: jax.Array) -> jax.Array:
    """A factor T with ``TTᵀ = (I + GᵀG)⁻¹``, by QR in either precision: it must be defined however small the noise.

    Where some weights are known a million times better than others (``wide``), a triangular factor loses the digits of
    the former, and singular vectors, which are several times slower, keep them.
    """

    def triangular() -> jax.Array:
        L = scaled.qr_factor(G)
        return solve_triangular(L, jnp.eye(len(L), dtype=L.dtype), lower=True).T

    def singular() -> jax.Array:
        _, values, right = jnp.linalg.svd(G, full_matrices=True)
        shrunk = jnp.ones(G.shape[1], G.dtype).at[: len(values)].set((1 + values**2) ** -0.5)
        return right.T * shrunk[None, :]

    return jax.lax.cond(wide, singular, triangular)


def _triangular(factor: jax.Array) -> jax.Array:
    """The lower triangular factor, with a positive diagonal, of the same covariance."""
    lower = jnp.linalg.qr(factor.T, mode="r").T
    return lower * jnp.where(jnp.diagonal(lower) < 0, -1, 1).astype(lower.dtype)[None, :]
