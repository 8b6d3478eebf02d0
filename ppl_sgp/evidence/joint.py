"""The evidence for any prior covariance C of the weights, from ``K = RCRᵀ``: O(m³).

With ``M = I + K/σ²``, ``e = (c − Rμ)/σ`` and ``α = M⁻¹e``, for n rows in total

    log p = −½ [ n log 2πσ² + rss/σ² + eᵀα + log|M| ]
    ∂/∂K = (ααᵀ − M⁻¹)/2σ²,   ∂/∂Rμ = α/σ,   ∂/∂log σ = rss/σ² + αᵀα − (n − rank) − tr M⁻¹.

C itself is never factorised, so it may be singular, as a smooth kernel on a fine grid is to rounding;
derivatives reach the parameters of C through the product RCRᵀ alone. Source: Evans (2022), sections
5.2.1 and 5.3.3 (eq 5.3 in the m̃-sized form; gradients in a dense covariance are not in the thesis).
float64 only: forming K squares the condition number, beyond the digits of float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from .._internal.batching import full_precision, vectorize
from ..priors import WeightPrior
from ..statistics.statistics import SufficientStatistics


class Parameters(NamedTuple):
    """What the evidence is differentiated in: K, Rμ, σ and the projection (c, rss)."""

    covariance: jax.Array
    fitted: jax.Array
    noise_scale: jax.Array
    projection: jax.Array


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
    num_rows = jnp.asarray(statistics.moments.num_rows, dtype)
    mean = jnp.zeros(R.shape[1], dtype) if prior.mean is None else jnp.asarray(prior.mean, dtype)
    gram_defect = compressed.gram_defect
    defect = jnp.zeros((R.shape[1],) * 2, dtype) if gram_defect is None else jnp.asarray(gram_defect, dtype)

    def one(noise_scale, projection, constant, reference_scale, output_defect):
        parameters = Parameters(covariance, fitted, noise_scale, projection)
        value, alpha = _jitted_evidence(num_rows, reference_scale, parameters)
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


def dense_factor(statistics: SufficientStatistics, dtype: Any) -> jax.Array:
    """R as a matrix (rank, m), also where it is kept as a diagonal."""
    factor = jnp.asarray(statistics.compressed.factor, dtype)
    return jnp.diag(factor) if factor.ndim == 1 else factor


@jax.custom_jvp
def _relative_evidence(
    num_rows: jax.Array, reference_scale: jax.Array, parameters: Parameters
) -> tuple[jax.Array, jax.Array]:
    """The evidence less its large constant ``−½ n log 2π(reference_scale²)``, and α (not to be differentiated)."""
    L, e, alpha = _solve(parameters)
    return _value(num_rows, reference_scale, parameters, L, e @ alpha), alpha


def _solve(parameters: Parameters) -> tuple[jax.Array, jax.Array, jax.Array]:
    noise_scale = parameters.noise_scale
    e = (parameters.projection[:-1] - parameters.fitted) / noise_scale
    M = jnp.eye(len(e), dtype=e.dtype) + parameters.covariance / noise_scale**2
    L = jnp.linalg.cholesky(M)
    return L, e, cho_solve((L, True), e)


def _value(num_rows, reference_scale, parameters: Parameters, L: jax.Array, explained: jax.Array) -> jax.Array:
    noise_scale = parameters.noise_scale
    quadratic = parameters.projection[-1] / noise_scale**2 + explained
    log_variance = 2 * jnp.log(noise_scale / reference_scale)
    return -0.5 * (num_rows * log_variance + quadratic + 2 * jnp.sum(jnp.log(jnp.diagonal(L))))


@_relative_evidence.defjvp
def _relative_evidence_jvp(primals, tangents):
    num_rows, reference_scale, parameters = primals
    noise_scale, rss = parameters.noise_scale, parameters.projection[-1]
    L, e, alpha = _solve(parameters)
    inverse = cho_solve((L, True), jnp.eye(len(e), dtype=e.dtype))
    degrees = num_rows - len(e) + jnp.trace(inverse)
    gradient = Parameters(
        covariance=(jnp.outer(alpha, alpha) - inverse) / (2 * noise_scale**2),
        fitted=alpha / noise_scale,
        noise_scale=(rss / noise_scale**2 + jnp.sum(alpha**2) - degrees) / noise_scale,
        projection=-jnp.append(alpha / noise_scale, 0.5 / noise_scale**2),
    )
    tangent = sum(jnp.sum(g * t) for g, t in zip(gradient, tangents[2], strict=True))
    value = _value(num_rows, reference_scale, parameters, L, e @ alpha)
    return (value, alpha), (tangent, jnp.zeros_like(alpha))


# Compiled also when a model calls it eagerly.
_jitted_evidence = jax.jit(_relative_evidence)
