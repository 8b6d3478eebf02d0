"""What rows say of f at inducing points: weights ``w ~ N(B⁻¹r, B⁻¹)`` of whitened features ``v(x) = L⁻¹k(Z, x)``.

With ``B = I + VΛ⁻¹Vᵀ`` and ``r = VΛ⁻¹y``, all methods share ``f(x) = v(x)ᵀw + e(x)`` at new rows, e of variance
``k(x, x) − ‖v(x)‖²`` (Titsias 2009; Snelson & Ghahramani 2006; Hughes-Hallett 2022, eq 2.11). Without row i its
residual is ``dᵢ/Pᵢᵢ`` and its variance ``1/Pᵢᵢ`` (Rasmussen & Williams 2006, eqs 5.10-5.12), with (Woodbury)

    P = (Q + Λ)⁻¹ = Λ⁻¹ − Λ⁻¹VᵀB⁻¹VΛ⁻¹,  d = Py = Λ⁻¹(y − VᵀB⁻¹r).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from .._internal.batching import full_precision
from ..kernels import Kernel
from .inducing import CORRELATED, factor_at_points, parameters_of
from .inducing_blocks import Parameters, block_noise
from .inducing_parts import Parts, summed, whitened


class PointFactors(NamedTuple):
    """What a draw is solved with: V's parameters, noise (q,), the factor of B (p, m, m) and the mean of w (q, m).

    p is 1 where outputs share the noise, else q.
    """

    parameters: Parameters
    noise_scale: Any
    factor: Any
    loc: Any


def posterior_factors(method: str, parts: Parts, kernel: Kernel, Z: Any, noise_scale: Any, values: Any) -> PointFactors:
    """Those of one draw, O(n m²), for outputs (n,) or (q, n)."""
    with full_precision():
        parameters = parameters_of(kernel, Z)
        outputs = jnp.asarray(values, jnp.float64).reshape(-1, values.shape[-1])
        scales = jnp.atleast_1d(jnp.asarray(noise_scale, jnp.float64))
        # Of one noise with all outputs at once.
        grouped = outputs.T[None] if len(scales) == 1 else outputs[:, :, None]
        if method in CORRELATED:
            terms = CORRELATED[method]

            def of_noise(each: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
                sums = summed(terms, parts, (parameters, each[0]), each[1])
                return sums.gram, sums.projection

            gram, projection = jax.lax.map(of_noise, (scales, grouped))
        else:
            L = factor_at_points(parameters.kernel, parameters.Z)
            white = whitened(parts, parameters.kernel, parameters.Z, L, outputs.T)
            of_group = white.projection[None] if len(scales) == 1 else white.projection.T[:, :, None]
            gram, projection = (sums / scales[:, None, None] ** 2 for sums in (white.gram[None], of_group))
        identity = jnp.eye(gram.shape[-1])
        factor = jax.vmap(lambda A: jnp.linalg.cholesky(identity + A, symmetrize_input=False))(gram)
        loc = jax.vmap(lambda L, r: cho_solve((L, True), r))(factor, projection)
        return PointFactors(
            parameters, jnp.broadcast_to(scales, (len(outputs),)), factor, loc.swapaxes(1, 2).reshape(len(outputs), -1)
        )


def features(parameters: Parameters, X: Any) -> tuple[jax.Array, jax.Array]:
    """V at some rows (m, k), and the variance that it lacks there (k,)."""
    V = parameters.whitened(X)
    return V, jnp.maximum(parameters.kernel.diag(X) - jnp.sum(V**2, axis=0), 0)


def halves(factor: jax.Array, V: jax.Array) -> jax.Array:
    """Roots (p, m, k) of the covariances of vᵀw, for features (p or 1, m, k)."""
    solve = jax.vmap(lambda L, V: solve_triangular(L, V, lower=True))
    return solve(factor, jnp.broadcast_to(V, (len(factor), *V.shape[1:])))


def spread(factor: jax.Array, V: jax.Array) -> jax.Array:
    """Variances of vᵀw (p, k), for features (p or 1, m, k)."""
    return jnp.sum(halves(factor, V) ** 2, axis=1)


def left_out_rows(
    fitc: bool, each: PointFactors, X: Any, y: Any, omega: Any, residual: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Residuals (q, k), variances, and one less the leverage, of rows whose noise is independent."""
    V, lacking = features(each.parameters, X)
    noise = each.noise_scale[: len(each.factor), None] ** 2 / omega[None, :]
    noise = noise + lacking[None, :] if fitc else noise
    kept = 1 - spread(each.factor, V[None]) / noise
    # Of FITC the noise has it already.
    added = lacking[None, :] * (jnp.asarray(residual, noise.dtype) - float(fitc))
    variance = jnp.broadcast_to(noise / kept + added, y.shape)
    return (y - each.loc @ V) / kept, variance, jnp.broadcast_to(kept, y.shape)


def left_out_blocks(each: PointFactors, parts: Parts, values: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The same (q, n) of rows whose noise is correlated in blocks; zero for rows that are in none."""
    scales = each.noise_scale[: len(each.factor)]
    grouped = values[None] if len(scales) == 1 else values[:, None, :]
    locs = each.loc[None] if len(scales) == 1 else each.loc[:, None, :]

    def of_noise(one: Any) -> tuple[jax.Array, jax.Array]:
        scale, factor, loc, y = one

        def of_block(total: Any, index: Any) -> tuple[Any, None]:
            part = parts.at(index)
            V, L = block_noise(each.parameters, scale, part)
            inverse = solve_triangular(L, jnp.eye(len(L)), lower=True)
            white = inverse @ V.T
            misfit = inverse @ jnp.where(part.counts[None, :], y[:, part.numbers] - loc @ V, 0).T
            explained = solve_triangular(factor, white.T @ inverse, lower=True)
            own = jnp.sum(inverse**2, axis=0)
            precision = own - jnp.sum(explained**2, axis=0)
            found = jnp.concatenate([(inverse.T @ misfit).T, precision[None], (precision / own)[None]])
            return total.at[:, part.numbers].add(jnp.where(part.counts[None, :], found, 0)), None

        start = jnp.zeros((len(y) + 2, y.shape[1]))
        found = jax.lax.scan(of_block, start, jnp.arange(parts.count))[0]
        return found[:-2], found[-2:]

    dual, precisions = jax.lax.map(of_noise, (scales, each.factor, locs, grouped))
    dual = dual.reshape(values.shape)
    precision, kept = (jnp.broadcast_to(precisions[:, row], values.shape) for row in (0, 1))
    return dual, precision, kept
