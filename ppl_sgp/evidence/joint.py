"""The evidence for any prior covariance C of the weights, from ``K = RCRᵀ``: O(m³).

With ``M = I + K/σ²``, ``e = (c − Rμ)/σ`` and ``α = M⁻¹e``, for n rows in total

    log p = −½ [ n log 2πσ² + rss/σ² + eᵀα + log|M| ]
    ∂/∂K = (ααᵀ − M⁻¹)/2σ²,   ∂/∂Rμ = α/σ,   ∂/∂log σ = rss/σ² + αᵀα − (n − rank) − tr M⁻¹.

C may be singular, as a smooth kernel on a fine grid is to rounding; derivatives reach the parameters of
C through the product RCRᵀ alone. Source: Evans (2022), sections 5.2.1 and 5.3.3 (eq 5.3 in the m̃-sized
form; gradients in a dense covariance are not in the thesis). float64 only: forming K squares the condition
number, beyond the digits of float32. Where those of float64 are at stake, M is factored without forming it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from .._internal.batching import full_precision, vectorize
from ..priors import WeightPrior
from ..statistics.statistics import SufficientStatistics
from .scaled import SAFE_SIZE, cholesky, qr_factor


class Parameters(NamedTuple):
    """What the evidence is differentiated in: K, Rμ, σ and the projection (c, rss)."""

    covariance: jax.Array
    fitted: jax.Array
    noise_scale: jax.Array
    projection: jax.Array


class Design(NamedTuple):
    """Constants: n, and where R has digits that A lacks, R itself with the prior of which M can be had without K."""

    num_rows: jax.Array
    factor: jax.Array | None
    prior: WeightPrior | None


def evaluate(
    statistics: SufficientStatistics, prior: WeightPrior, noise_scale: Any, projection: Any, dtype: Any
) -> jax.Array:
    """The evidence for compressed data ``projection``, of any batch shape, without checks."""
    compressed = statistics.compressed
    R = dense_factor(statistics, dtype)
    with full_precision():
        RC = prior.apply(R.T).T
        covariance = RC @ R.T
        fitted = jnp.zeros(len(R), dtype) if prior.mean is None else R @ jnp.asarray(prior.mean, dtype)
    exact = (R, jax.lax.stop_gradient(prior)) if compressed.gram_defect is None else (None, None)
    design = Design(jnp.asarray(statistics.moments.num_rows, dtype), *exact)
    mean = jnp.zeros(R.shape[1], dtype) if prior.mean is None else jnp.asarray(prior.mean, dtype)
    gram_defect = compressed.gram_defect
    defect = jnp.zeros((R.shape[1],) * 2, dtype) if gram_defect is None else jnp.asarray(gram_defect, dtype)

    def one(noise_scale, projection, constant, reference_scale, output_defect):
        parameters = Parameters(covariance, fitted, noise_scale, projection)
        value, alpha = relative_evidence(design, reference_scale, parameters)
        # ‖y − Φw‖² is rss + ‖c − Rw‖² up to what the compression left of A and Φᵀy; stationary, so no gradient.
        # Rounding may make it negative where noise is beyond the digits of both, as in `scaled`.
        w = jax.lax.stop_gradient(mean + alpha @ RC / noise_scale)
        left = (w @ (defect @ w) - 2 * jnp.sum(output_defect * w)) / noise_scale**2
        misfit = jax.lax.stop_gradient(jnp.sum(alpha**2) + projection[-1] / noise_scale**2)
        return constant + value - 0.5 * jnp.maximum(left, -misfit)

    signature = "(),(p),(),(),(m)->()"
    output_defect = jnp.zeros(R.shape[1], dtype) if gram_defect is None else compressed.output_defect
    constants = (compressed.log_constant, compressed.reference_variance**0.5, output_defect)
    return vectorize(one, signature, (noise_scale, projection, *constants), dtype)


def posterior_mean(
    statistics: SufficientStatistics, prior: WeightPrior, dtype: Any
) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """The posterior mean (m,) of the weights, and tr M, of a noise scale and compressed data."""
    R = dense_factor(statistics, dtype)
    with full_precision():
        RC = prior.apply(R.T).T
        covariance = RC @ R.T
    mean = jnp.zeros(R.shape[1], dtype) if prior.mean is None else jnp.asarray(prior.mean, dtype)

    def at(noise_scale: jax.Array, projection: jax.Array) -> tuple[jax.Array, jax.Array]:
        parameters = Parameters(covariance, R @ mean, noise_scale, projection)
        L, _, alpha = _solve(Design(noise_scale, None, None), parameters)
        return mean + alpha @ RC / noise_scale, jnp.sum(L**2)

    return at


def dense_factor(statistics: SufficientStatistics, dtype: Any) -> jax.Array:
    """R as a matrix (rank, m), also where it is kept as a diagonal."""
    factor = jnp.asarray(statistics.compressed.factor, dtype)
    return jnp.diag(factor) if factor.ndim == 1 else factor


@jax.custom_jvp
def _relative_evidence(
    design: Design, reference_scale: jax.Array, parameters: Parameters
) -> tuple[jax.Array, jax.Array]:
    """The evidence less its large constant ``−½ n log 2π(reference_scale²)``, and α (not to be differentiated)."""
    L, explained, alpha = _solve(design, parameters)
    return _value(design, reference_scale, parameters, L, explained), alpha


def _solve(design: Design, parameters: Parameters) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The factor of M, eᵀα, which is a sum of squares, and α."""
    e = (parameters.projection[:-1] - parameters.fitted) / parameters.noise_scale
    L = _factor(design, parameters)
    half = solve_triangular(L, e, lower=True)
    return L, jnp.sum(half**2), solve_triangular(L, half, lower=True, trans="T")


def _factor(design: Design, parameters: Parameters) -> jax.Array:
    covariance = parameters.covariance / parameters.noise_scale**2
    R, prior = design.factor, design.prior
    if R is None or prior is None:
        return cholesky(covariance)

    def by_qr() -> jax.Array:
        F = prior.apply_root(jnp.eye(R.shape[1], dtype=R.dtype))
        return qr_factor((R @ F / parameters.noise_scale).T)

    return jax.lax.cond(jnp.trace(covariance) < SAFE_SIZE, lambda: cholesky(covariance), by_qr)


def _value(design: Design, reference_scale, parameters: Parameters, L: jax.Array, explained: jax.Array) -> jax.Array:
    noise_scale = parameters.noise_scale
    quadratic = parameters.projection[-1] / noise_scale**2 + explained
    log_variance = 2 * jnp.log(noise_scale / reference_scale)
    return -0.5 * (design.num_rows * log_variance + quadratic + 2 * jnp.sum(jnp.log(jnp.diagonal(L))))


@_relative_evidence.defjvp
def _relative_evidence_jvp(primals, tangents):
    design, reference_scale, parameters = primals
    noise_scale, rss = parameters.noise_scale, parameters.projection[-1]
    L, explained, alpha = _solve(design, parameters)
    inverse = cho_solve((L, True), jnp.eye(len(L), dtype=L.dtype))
    degrees = design.num_rows - len(L) + jnp.trace(inverse)
    gradient = Parameters(
        covariance=(jnp.outer(alpha, alpha) - inverse) / (2 * noise_scale**2),
        fitted=alpha / noise_scale,
        noise_scale=(rss / noise_scale**2 + jnp.sum(alpha**2) - degrees) / noise_scale,
        projection=-jnp.append(alpha / noise_scale, 0.5 / noise_scale**2),
    )
    tangent = sum(jnp.sum(g * t) for g, t in zip(gradient, tangents[2], strict=True))
    value = _value(design, reference_scale, parameters, L, explained)
    return (value, alpha), (tangent, jnp.zeros_like(alpha))


# Compiled also when a model calls it eagerly.
relative_evidence = jax.jit(_relative_evidence)
