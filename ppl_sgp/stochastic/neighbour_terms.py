"""Rows through few inducing points each: the terms of SWSGP.

Given the points Z_I of a row, ``a = k(Z_I, Z_I)⁻¹k(Z_I, x)`` and ``q(u) = N(m, S)`` of all points (Tran and others
2021, eqs 8, 11 and 13, with Aᵀ where eq 3 has A in print):

    q(f(x)) = N(aᵀm_I, k(x, x) − aᵀk(Z_I, Z_I)a + aᵀS_I a),
    objective = (n/b) Σ E log p(yᵢ | fᵢ) − (1/b) Σ KL(q(u_I) ‖ N(0, k(Z_I, Z_I))).

**The objective is no lower bound of the evidence**: each row is scored with the points that suit it best, and charged
the divergence of these alone. It may exceed log p(y), and does not compare numbers of points or of neighbours. With all
points for all rows it is the bound of SVGP.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from ..kernels import Kernel

#: Shares of the mean variance at the points that are added to it, by digits: of points close to each other, so that the
#: covariance has a Cholesky factor.
JITTER_64, JITTER_32 = 1e-9, 1e-5


class Values(NamedTuple):
    """q(u) of K functions at r points: means (r, K), and roots, with which the covariance is ``R_k R_kᵀ``.

    :ivar root: standard deviations (r, K), or rows of lower triangles (r, K, m).
    """

    loc: jax.Array
    root: jax.Array

    def spread(self, a: jax.Array) -> jax.Array:
        """``‖Rᵀa‖²`` of each function, (K, b), for a of shape (r, b)."""
        if self.root.ndim == 2:
            return jnp.einsum("rk,rb->kb", self.root**2, a**2)
        return jnp.sum(jnp.einsum("rkm,rb->kbm", self.root, a) ** 2, axis=-1)

    def covariance(self, mask: jax.Array) -> jax.Array:
        """S of each function, with ones for points that do not count, (K, r, r)."""
        eye = jnp.eye(len(mask), dtype=self.loc.dtype)
        if self.root.ndim == 2:
            return jnp.where(mask[:, None], self.root, 1).T[:, :, None] ** 2 * eye[None]
        full = jnp.einsum("rkm,skm->krs", self.root, self.root)
        return jnp.where((mask[:, None] & mask[None, :])[None], full, eye[None])


class Terms(NamedTuple):
    """Means and variances of f (K, b), and the divergence at the points."""

    mean: jax.Array
    variance: jax.Array
    divergence: jax.Array


def neighbour_terms(kernel: Kernel, Z: jax.Array, mask: jax.Array, values: Values, X: jax.Array) -> Terms:
    """Those of rows (b, d) that share points (r, d): O(r³ + r²b), and O(r²m) for full covariances.

    :param mask: which of the points count, (r,).
    """
    C, half, a = conditional(kernel, Z, mask, X)
    mean = values.loc.T @ a
    lacking = jnp.maximum(kernel.diag(X) - jnp.sum(half**2, axis=0), 0)
    return Terms(mean, lacking[None] + values.spread(a), _divergence(C, mask, values))


def conditional(kernel: Kernel, Z: jax.Array, mask: jax.Array, X: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``C`` with ``CCᵀ = k(Z, Z)``, ``C⁻¹k(Z, X)`` and ``k(Z, Z)⁻¹k(Z, X)``: ones and zeros for what does not count."""
    C = factor(kernel, Z, mask)
    half = solve_triangular(C, jnp.where(mask[:, None], kernel(Z, X), 0), lower=True)
    return C, half, solve_triangular(C, half, lower=True, trans="T")


def factor(kernel: Kernel, Z: jax.Array, mask: jax.Array) -> jax.Array:
    """The Cholesky factor of the covariance at points, with some jitter."""
    eye = jnp.eye(len(Z), dtype=Z.dtype)
    K = jnp.where(mask[:, None] & mask[None, :], kernel(Z), eye)
    unit = jnp.mean(kernel.diag(Z))
    return jnp.linalg.cholesky(K + jitter(Z.dtype) * unit * eye, symmetrize_input=False)


def jitter(dtype: Any) -> float:
    """The share of the mean variance that is added."""
    return JITTER_64 if jnp.finfo(dtype).bits == 64 else JITTER_32


def _divergence(C: jax.Array, mask: jax.Array, values: Values) -> jax.Array:
    """``KL(N(m, S) ‖ N(0, CCᵀ))``, summed over functions."""
    counted = mask[:, None]
    inverse = solve_triangular(C, jnp.eye(len(C), dtype=C.dtype), lower=True)
    inverse = jnp.where(mask[None, :], inverse, 0)
    K = values.loc.shape[1]
    log_prior = 2 * K * jnp.sum(jnp.where(mask, jnp.log(jnp.diagonal(C)), 0))
    squares = jnp.sum((inverse @ jnp.where(counted, values.loc, 0)) ** 2)
    if values.root.ndim == 2:
        trace = jnp.sum(inverse**2 @ values.root**2)
        log_own = 2 * jnp.sum(jnp.where(counted, jnp.log(jnp.where(counted, values.root, 1)), 0))
    else:
        trace = jnp.sum(jnp.einsum("sr,rkm->skm", inverse, values.root) ** 2)
        S = values.covariance(mask)
        # A tenth of the jitter of the prior: rows of a triangle are independent, but rounding does not know.
        eye = jnp.eye(len(C), dtype=C.dtype)
        unit = jnp.mean(jnp.diagonal(S, axis1=1, axis2=2), axis=1)[:, None, None]
        own = jnp.linalg.cholesky(S + 0.1 * jitter(C.dtype) * unit * eye[None], symmetrize_input=False)
        log_own = 2 * jnp.sum(jnp.where(mask[None], jnp.log(jnp.diagonal(own, axis1=1, axis2=2)), 0))
    return 0.5 * (trace + squares - K * jnp.sum(mask.astype(C.dtype)) + log_prior - log_own)
