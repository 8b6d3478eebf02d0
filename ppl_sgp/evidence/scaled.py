"""The evidence for a diagonal prior: O(m) on rotated statistics, else O(m·rank²) or O(m³).

Notation: ``g = γ^½/σ`` are prior standard deviations of the weights in units of the noise, ``R`` the
factor and ``c`` the projection of the compressed data, ``G = R diag(g)`` and ``e = (c − Rμ)/σ``. With
``u = (I + GᵀG)⁻¹Gᵀe`` (the whitened posterior mean) and ``s = 1 − diag (I + GᵀG)⁻¹`` (how much the
data say about each weight), for n rows in total

    log p = −½ [ n log 2πσ² + rss/σ² + ‖e − Gu‖² + ‖u‖² + log|I + GᵀG| ]
    ∂/∂log γ^½ = u² − s,   ∂/∂log σ = rss/σ² + ‖e − Gu‖² − (n − Σs),   ∂/∂μ = Rᵀ(e − Gu)/σ.

All terms of the quadratic form are positive and its value is stationary in u, so nothing cancels
and errors of the solve enter squared. Source: Evans (2022), eqs 5.3-5.5 and algorithm 5.1 (where
brackets around ``log|P| − log|S| + (n−m) log σ²`` are missing in print), section 5.2.5 for means,
rewritten in this form and checked against the dense multivariate normal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from .._internal.batching import vectorize
from ..priors import DiagonalPrior
from ..statistics.compressed import uses_dual_form
from ..statistics.statistics import SufficientStatistics

#: Up to this ``tr GᵀG``, a bound of the condition number, products lose less than 1e-8 nats a weight in float64.
SAFE_SIZE = 1e8


class Design(NamedTuple):
    """What does not depend on hyperparameters or outputs: R, the Gram matrix A where a form uses it, and A − RᵀR.

    The last is ``None`` in float32, and where R has digits that A lacks.
    """

    factor: jax.Array
    gram: jax.Array
    num_rows: jax.Array
    gram_defect: jax.Array | None


class Parameters(NamedTuple):
    """What the evidence is differentiated in: log γ^½ (m,), μ (m,), σ, and the projection (c, rss)."""

    log_scale: jax.Array
    mean: jax.Array
    noise_scale: jax.Array
    projection: jax.Array


class Solution(NamedTuple):
    """The regression in whitened units: u, s, e − Gu, ‖e − Gu‖² + ‖u‖² and log|I + GᵀG|."""

    weights: jax.Array
    shrinkage: jax.Array
    residual: jax.Array
    quadratic: jax.Array
    log_determinant: jax.Array


def evaluate(
    statistics: SufficientStatistics, prior: DiagonalPrior, noise_scale: Any, projection: Any, dtype: Any
) -> jax.Array:
    """The evidence for compressed data ``projection``, of any batch shape, without checks."""
    design, log_scale, mean = prepare(statistics, prior, dtype)
    compressed = statistics.compressed

    def one(log_scale, mean, noise_scale, projection, constant, reference_scale, output_defect):
        parameters = Parameters(log_scale, mean, noise_scale, projection)
        return constant + relative_evidence(design, reference_scale, output_defect, parameters)

    signature = "(m),(m),(),(p),(),(),(m)->()"
    defect = jnp.zeros(log_scale.shape[-1:]) if design.gram_defect is None else compressed.output_defect
    constants = (compressed.log_constant, compressed.reference_variance**0.5, defect)
    return vectorize(one, signature, (log_scale, mean, noise_scale, projection, *constants), dtype)


def prepare(statistics: SufficientStatistics, prior: DiagonalPrior, dtype: Any) -> tuple[Design, jax.Array, jax.Array]:
    """The design, log prior scales and prior means in one dtype, the latter two of shape batch + (m,)."""
    m = statistics.num_weights
    compressed, moments = statistics.compressed, statistics.moments
    arrays = (compressed.factor, moments.gram, moments.num_rows)
    defect = compressed.gram_defect
    # In float32 the defects of the compression are far below rounding.
    exact = dtype == jnp.float64 and defect is not None
    factor, gram, num_rows = (jnp.asarray(array, dtype) for array in arrays)
    design = Design(factor, gram, num_rows, jnp.asarray(defect, dtype) if exact else None)
    log_scale = jnp.atleast_1d(jnp.asarray(prior.log_scale, dtype))
    log_scale = jnp.broadcast_to(log_scale, (*log_scale.shape[:-1], m))
    mean = jnp.zeros(m, dtype) if prior.mean is None else jnp.asarray(prior.mean, dtype)
    return design, log_scale, jnp.broadcast_to(mean, (*mean.shape[:-1], m))


@jax.custom_jvp
def _relative_evidence(
    design: Design, reference_scale: jax.Array, output_defect: jax.Array, parameters: Parameters
) -> jax.Array:
    """The evidence less its large constant ``−½ n log 2π(reference_scale²)``."""
    return _value(design, reference_scale, output_defect, parameters, solve(design, parameters))


def _value(
    design: Design, reference_scale: jax.Array, output_defect: jax.Array, parameters: Parameters, solution: Solution
) -> jax.Array:
    noise_variance = parameters.noise_scale**2
    quadratic = solution.quadratic + parameters.projection[-1] / noise_variance
    if design.gram_defect is not None:
        # ‖y − Φw‖² is rss + ‖c − Rw‖² up to what the compression left of A and Φᵀy. Where noise is beyond the digits of
        # both (1e-8 of y) rounding decides its sign, and a negative one would beat any posterior.
        w = parameters.mean + jnp.exp(parameters.log_scale) * solution.weights
        left = (w @ (design.gram_defect @ w) - 2 * jnp.sum(output_defect * w)) / noise_variance
        quadratic = jnp.maximum(quadratic + left, jnp.sum(solution.weights**2))
    # The ratio is taken before the logarithm: n multiplies its rounding.
    log_variance = 2 * jnp.log(parameters.noise_scale / reference_scale)
    return -0.5 * (design.num_rows * log_variance + quadratic + solution.log_determinant)


@_relative_evidence.defjvp
def _relative_evidence_jvp(primals, tangents):
    design, reference_scale, output_defect, parameters = primals
    solution, noise_scale = solve(design, parameters), parameters.noise_scale
    residual = solution.residual
    back_projected = design.factor * residual if design.factor.ndim == 1 else residual @ design.factor
    misfit = parameters.projection[-1] / noise_scale**2 + jnp.sum(residual**2)
    gradient = Parameters(
        log_scale=solution.weights**2 - solution.shrinkage,
        mean=back_projected / noise_scale,
        noise_scale=(misfit - (design.num_rows - jnp.sum(solution.shrinkage))) / noise_scale,
        projection=-jnp.append(residual / noise_scale, 0.5 / noise_scale**2),
    )
    products = jax.tree.map(lambda g, t: jnp.sum(g * t), gradient, tangents[3])
    return _value(design, reference_scale, output_defect, parameters, solution), sum(products)


# Compiled also when a model calls it eagerly.
relative_evidence = jax.jit(_relative_evidence)


def solve(design: Design, parameters: Parameters) -> Solution:
    """Regress the projection on the features in whitened units, in the cheapest form for the shapes."""
    g = jnp.exp(parameters.log_scale) / parameters.noise_scale
    fitted = design.factor * parameters.mean if design.factor.ndim == 1 else design.factor @ parameters.mean
    e = (parameters.projection[:-1] - fitted) / parameters.noise_scale
    if design.factor.ndim == 1:
        return _solve_diagonal(design.factor * g, e)
    if g.dtype != jnp.float64:
        return _solve_by_qr(design, g, e)
    products = _solve_dual_products if uses_dual_form(*design.factor.shape) else _solve_primal
    if design.gram_defect is not None:
        return products(design, g, e)
    # Products of R lose half of its digits. Where A is known to no more there is nothing to lose.
    size = jnp.sum(jnp.diagonal(design.gram) * g**2)
    return jax.lax.cond(size < SAFE_SIZE, products, _solve_by_qr, design, g, e)


def _solve_diagonal(G: jax.Array, e: jax.Array) -> Solution:
    precision = 1 + G**2
    # Of a sum of squares, since e²/precision may be of one that overflows.
    quadratic = jnp.sum((e / jnp.sqrt(precision)) ** 2)
    return Solution(G * e / precision, G**2 / precision, e / precision, quadratic, jnp.sum(jnp.log(precision)))


def _solve_primal(design: Design, g: jax.Array, e: jax.Array) -> Solution:
    """Factors of size m: I + GᵀG = LLᵀ, without forming G (each pass over m² numbers counts)."""
    L = cholesky(g[:, None] * design.gram * g[None, :])
    u = cho_solve((L, True), g * (e @ design.factor))
    residual = e - design.factor @ (g * u)
    # Stationary in u, so that errors of the solve enter squared.
    quadratic = jnp.sum(residual**2) + jnp.sum(u**2)
    return Solution(u, 1 - inverse_diagonal(L), residual, quadratic, _log_determinant(L))


def _solve_by_qr(design: Design, g: jax.Array, e: jax.Array) -> Solution:
    """Without products, which square the condition number; and without solving for u, whose error G would amplify."""
    G = design.factor * g[None, :]
    return _solve_dual(G, e, qr_factor(G.T))


def _solve_dual_products(design: Design, g: jax.Array, e: jax.Array) -> Solution:
    G = design.factor * g[None, :]
    return _solve_dual(G, e, cholesky(G @ G.T))


def _solve_dual(G: jax.Array, e: jax.Array, L: jax.Array) -> Solution:
    """Factors of size rank: I + GGᵀ = LLᵀ, by the identity (I + GᵀG)⁻¹Gᵀ = Gᵀ(I + GGᵀ)⁻¹."""
    half, explained = solve_triangular(L, G, lower=True), solve_triangular(L, e, lower=True)
    # Not Gᵀ times the residual: large entries of G would amplify its rounding.
    u, residual = half.T @ explained, solve_triangular(L, explained, lower=True, trans="T")
    return Solution(u, jnp.sum(half**2, axis=0), residual, jnp.sum(explained**2), _log_determinant(L))


def cholesky(gram: jax.Array) -> jax.Array:
    """Lower triangular L with ``LLᵀ = I + gram``."""
    return jnp.linalg.cholesky(jnp.eye(len(gram), dtype=gram.dtype) + gram, symmetrize_input=False)


def qr_factor(G: jax.Array) -> jax.Array:
    """Lower triangular L with ``LLᵀ = I + GᵀG``, from a QR factorisation of ``[G; I]``: slower, and always defined."""
    upper = jnp.linalg.qr(jnp.concatenate([G, jnp.eye(G.shape[1], dtype=G.dtype)]), mode="r")
    return (upper * jnp.sign(jnp.diagonal(upper))[:, None]).T


def inverse_diagonal(L: jax.Array) -> jax.Array:
    """The diagonal of ``(LLᵀ)⁻¹``: squared columns of L⁻¹, in panels that leave out the zeros above them."""
    m = len(L)
    width = max(64, -(-m // 4))
    panels = [
        solve_triangular(L[start:, start:], jnp.eye(m - start, min(width, m - start), dtype=L.dtype), lower=True)
        for start in range(0, m, width)
    ]
    return jnp.concatenate([jnp.sum(panel**2, axis=0) for panel in panels])


def _log_determinant(L: jax.Array) -> jax.Array:
    return 2 * jnp.sum(jnp.log(jnp.diagonal(L)))
