"""``log p(y | θ)`` of an exact GP on rows: O(n³), with the closed-form gradients of ``joint``.

Rows are compressed data of n features that each row has for itself: R = I, c = √Ω y, rss = 0, and K takes the place of
RS⁻¹Rᵀ (Rasmussen & Williams 2006, eqs 2.30 and 5.9; Hughes-Hallett 2022, eq 2.5). What the posterior needs comes from
the same factor: ``M = I + √Ω K √Ω/σ² = LLᵀ``, of the covariance ``K + σ²Ω⁻¹`` of y in units of the noise of each row.
"""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from .._internal import checks
from .._internal.batching import full_precision, vectorize
from ..kernels import Kernel
from ..statistics.kept_rows import Rows
from . import joint
from .scaled import cholesky

#: Square matrices of a row's length that a value with its gradient holds at once.
MATRICES = 4


def require_precision(owner: str, dtype: Any) -> None:
    """Refuse float32: entries of K are rounded by 6e-8 of the signal's variance, which the noise's must be far above.

    The log evidence would be off by about ``n ε a²/σ²`` nats, and nothing in the data bounds the a and σ to come.
    """
    if dtype != jnp.float64:
        raise ValueError(
            f"{owner} needs float64, since the covariance of rows has the square of the signal beside that of the "
            f"noise; got {dtype}. Call numpyro.enable_x64() before creating arrays."
        )


def require_memory(owner: str, num_rows: int) -> None:
    """Refuse more rows than the memory of the device has room for, where that is known."""
    needed, there = 8.0 * MATRICES * num_rows**2, _memory()
    if there is not None and needed > there:
        raise ValueError(
            f"{owner}: {MATRICES} matrices of {num_rows} × {num_rows} take {needed / 1e9:.0f} GB, over the "
            f"{there / 1e9:.0f} GB of memory. An exact GP is for some thousand rows. For more, put inducing points at "
            "some hundred of them, `sgp.NystromBasis(X[chosen], kernel)`, or take a FourierBasis, and compress the "
            "rows: `sgp.sufficient_statistics(basis, X, y)`."
        )


def _memory() -> float | None:
    """Bytes of the default device; of a CPU, of the machine."""
    device = jax.devices()[0].memory_stats() or {}
    if "bytes_limit" in device:
        return float(device["bytes_limit"])
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None


def evaluate(rows: Rows, kernel: Kernel, noise_scale: Any, values: Any) -> jax.Array:
    """The evidence of outputs ``values``, shape batch + (n,), without checks.

    :param noise_scale: standard deviation of the noise of a row of weight one, of any shape that broadcasts with the
        batch. Where it is a scalar, all outputs share one factorisation.
    """
    dtype = checks.common_dtype(*jax.tree.leaves(kernel), noise_scale)
    root, covariance = weighted(rows, kernel, dtype)
    n = rows.num_rows
    design = joint.Design(jnp.asarray(n, dtype), None, None)

    def one(noise_scale, y, unit):
        projection = jnp.append(root * y, jnp.zeros((), dtype))
        parameters = joint.Parameters(covariance, jnp.zeros(n, dtype), noise_scale, projection)
        value, _ = joint.relative_evidence(design, unit, parameters)
        return value - 0.5 * n * jnp.log(2 * jnp.pi * unit**2)

    # In units of y, so that what varies with θ is not lost beside a large constant.
    scales = jnp.asarray(rows.output_scales, dtype)
    unit = jnp.where(scales > 0, scales, 1)
    result = vectorize(one, "(),(n),()->()", (noise_scale, values, unit), dtype)
    return result + jnp.sum(jnp.log(root))


def weighted(rows: Rows, kernel: Kernel, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """√ω, shape (n,), and √Ω K √Ω."""
    root = jnp.sqrt(jnp.asarray(rows.weights, dtype))
    with full_precision():
        K = kernel(jnp.asarray(rows.X, dtype))
    return root, root[:, None] * K * root[None, :]


def draw(rows: Rows, kernel: Kernel, noise_scale: Any, z: Any) -> jax.Array:
    """Outputs, shape batch + (n,), from standard normals of that shape. O(n³) for each noise scale."""
    root, covariance = weighted(rows, kernel, z.dtype)

    def one(noise_scale, z):
        return noise_scale * (cholesky(covariance / noise_scale**2) @ z) / root

    return vectorize(one, "(),(n)->(n)", (noise_scale, z), z.dtype)


def posterior_factors(rows: Rows, kernel: Kernel, noise_scale: Any) -> tuple[jax.Array, jax.Array]:
    """L, shape (p, n, n), and ``(K + σ²Ω⁻¹)⁻¹y``, shape (q, n), of one draw: p = 1 for one noise, or q for one each."""
    dtype = checks.common_dtype(*jax.tree.leaves(kernel), noise_scale)
    root, covariance = weighted(rows, kernel, dtype)
    noise_scale = jnp.atleast_1d(jnp.asarray(noise_scale, dtype))
    with full_precision():
        factor = jnp.stack([cholesky(covariance / scale**2) for scale in noise_scale])
        e = root[None, :] * jnp.asarray(rows.y, dtype).reshape(rows.num_rows, -1).T / noise_scale[:, None]
        factors = jnp.broadcast_to(factor, (len(e), *factor.shape[1:]))
        half = jax.vmap(lambda L, e: solve_triangular(L, e, lower=True))(factors, e)
        dual = jax.vmap(lambda L, half: solve_triangular(L, half, lower=True, trans="T"))(factors, half)
    return factor, root[None, :] * dual / noise_scale[:, None]
