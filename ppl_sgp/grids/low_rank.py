"""The inverse of a covariance of low rank plus a diagonal, as a preconditioner."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from .._internal.batching import full_precision


def woodbury(features: jax.Array, noise: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """``(FFᵀ + N)⁻¹`` times columns (c, n): ``N^-½ (I − G(I + GᵀG)⁻¹Gᵀ) N^-½`` with ``G = N^-½F``.

    The symmetric form of eq 3.7 of Evans (2022), for noise that may differ between rows. O(np² + p³), then O(np) each.

    :param features: F, shape (n, p).
    :param noise: the diagonal of N, shape (n,).
    """
    root = jnp.sqrt(noise)
    with full_precision():
        G = features / root[:, None]
        factor = jnp.linalg.cholesky(jnp.eye(G.shape[1], dtype=G.dtype) + G.T @ G)

    def apply(x: jax.Array) -> jax.Array:
        scaled = x / root[None, :]
        return (scaled - cho_solve((factor, True), (scaled @ G).T).T @ G.T) / root[None, :]

    return apply
