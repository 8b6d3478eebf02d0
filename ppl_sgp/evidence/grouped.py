"""The evidence of several groups of rows that share functions, with a noise scale a group.

Group k sees ``f_k = φᵀw_k``, ``w_k = μ + F Σⱼ Lₖⱼ uⱼ`` with ``FFᵀ`` the prior covariance C and standard normal uⱼ, so
that weights have covariance ``B ⊗ C``, ``B = LLᵀ``. One function seen with several noises is L of ones; q correlated
outputs are the intrinsic model of coregionalisation (Bonilla, Chai & Williams 2008, eq 1). With ``L̃ₖ = Lₖ/σₖ`` the
posterior precision of u is

    P = I + H,   H = Σₖ (L̃ₖᵀL̃ₖ) ⊗ FᵀAₖF

and ``log p = −½[Σ n_k log 2πσ_k² + Σ ‖y_k − Φ_k w_k‖²/σ_k² + ‖u‖² + log|P|]`` at the posterior mean u: a sum of
positive terms, stationary in u. Where all Aₖ are one A, ``H = L̃ᵀL̃ ⊗ FᵀAF`` has the products of both factors'
eigenvalues, and two eigendecompositions, of sizes p and m, serve all outputs (Stegle, Lippert, Mooij, Lawrence &
Borgwardt 2011).
float64 only: forming H squares the condition number.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from .._internal.batching import full_precision
from .._internal.constants import constant
from .._internal.pytree import rebuild
from ..priors import WeightPrior
from ..statistics.grouped import GroupedStatistics
from .scaled import cholesky


def evaluate(
    statistics: GroupedStatistics, prior: WeightPrior, noise_scale: jax.Array, mixing: jax.Array, observed: Any
) -> jax.Array:
    """The evidence of compressed data ``observed``, without checks. O(G m² + (p m)³) for p latent functions.

    O(m³ + p³) where ``statistics.same_rows``.

    :param noise_scale: σ, shape (G,).
    :param mixing: L, shape (G, p).
    :param observed: c and rss of all groups, shape (G (k + 1),).
    """
    dtype, statistics = noise_scale.dtype, _constants(statistics)
    compressed = statistics.compressed
    data = jnp.asarray(observed, dtype).reshape(compressed.projection.shape)
    c, rss = data[:, :-1], data[:, -1]
    R = jnp.asarray(compressed.factor, dtype)
    with full_precision():
        F, mean, A, r = _whitened(statistics, prior, c, dtype)
        b = _linear(A, r, F, mean, noise_scale, mixing)
        precise = mixing / noise_scale[:, None]
        if statistics.same_rows:
            log_determinant, u = solved_product(precise.T @ precise, F.T @ A[0] @ F, b)
        else:
            log_determinant, u = solved(_precision(A, F, precise), b.reshape(-1))
        u = u.reshape(b.shape)
        w = mean[None, :] + mixing @ u @ F.T
        misfit = rss + jnp.sum((c - jnp.einsum("kra,ka->kr", R, w)) ** 2, axis=1)
        if compressed.gram_defect is not None:
            # What the compression left of A and Φᵀy; rounding may make it negative where noise is beyond the digits.
            quadratic = jnp.einsum("ka,kab,kb->k", w, jnp.asarray(compressed.gram_defect, dtype), w)
            left = quadratic - 2 * jnp.sum(jnp.asarray(compressed.output_defect, dtype) * w, axis=1)
            misfit += jnp.maximum(left, -misfit)
    num_rows = jnp.asarray(statistics.moments.num_rows, dtype)
    log_variance = 2 * jnp.log(noise_scale) - jnp.log(jnp.asarray(compressed.reference_variance, dtype))
    constant = jnp.sum(jnp.asarray(compressed.log_constant, dtype) - 0.5 * num_rows * log_variance)
    return constant - 0.5 * (jnp.sum(misfit / noise_scale**2) + jnp.sum(u**2) + log_determinant)


@jax.jit
def posterior_factors(
    statistics: GroupedStatistics, prior: WeightPrior, noise_scale: jax.Array, mixing: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Means (G, m) of the weights of each group's function, and factors (G, m, p m) of their covariances. O((p m)³)."""
    dtype = noise_scale.dtype
    with full_precision():
        c = jnp.asarray(statistics.compressed.projection, dtype)[:, :-1]
        F, mean, A, r = _whitened(statistics, prior, c, dtype)
        b = _linear(A, r, F, mean, noise_scale, mixing)
        P = cholesky(_precision(A, F, mixing / noise_scale[:, None]))
        u = cho_solve((P, True), b.reshape(-1)).reshape(b.shape)
        root = solve_triangular(P, jnp.eye(len(P), dtype=dtype), lower=True).T.reshape(*b.shape, -1)
        return mean[None, :] + mixing @ u @ F.T, jnp.einsum("ac,kj,jci->kai", F, mixing, root)


def _constants(statistics: GroupedStatistics) -> GroupedStatistics:
    """The same, but differentiating in anything but the observed data is refused."""
    held = {name: jax.tree.map(_held, getattr(statistics, name)) for name in ("moments", "compressed")}
    return rebuild(GroupedStatistics, {**vars(statistics), **held})


_held = functools.partial(
    constant,
    "GroupedGP: statistics are constants; a derivative in them was asked for, which is not defined. Differentiate in "
    "the prior, the noise, the mixing or the observed data.",
)


def _whitened(statistics: GroupedStatistics, prior: WeightPrior, c: jax.Array, dtype: Any) -> tuple[jax.Array, ...]:
    """F, μ, all Aₖ, and ``Φₖᵀyₖ`` of compressed data c."""
    m, compressed = statistics.num_weights, statistics.compressed
    F = prior.sized(m).apply_root(jnp.eye(m, dtype=dtype))
    mean = jnp.zeros(m, dtype) if prior.mean is None else jnp.broadcast_to(jnp.asarray(prior.mean, dtype), (m,))
    r = jnp.einsum("kra,kr->ka", jnp.asarray(compressed.factor, dtype), c)
    if compressed.output_defect is not None:
        r += jnp.asarray(compressed.output_defect, dtype)
    return F, mean, jnp.asarray(statistics.moments.gram, dtype), r


def _linear(
    A: jax.Array, r: jax.Array, F: jax.Array, mean: jax.Array, noise_scale: jax.Array, mixing: jax.Array
) -> jax.Array:
    """b, shape (p, m), with ``Pu = b``."""
    return (mixing / noise_scale[:, None] ** 2).T @ (r - A @ mean) @ F


def _precision(A: jax.Array, F: jax.Array, precise: jax.Array) -> jax.Array:
    """H, shape (p m, p m)."""
    size = precise.shape[1] * len(F)
    summed = jnp.einsum("kji,kab->jiab", precise[:, :, None] * precise[:, None, :], A)
    return (F.T @ summed @ F).transpose(0, 2, 1, 3).reshape(size, size)


@jax.custom_jvp
def solved(H: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``log|I + H|`` and ``(I + H)⁻¹b``, by one Cholesky factor, for derivatives as well."""
    L = cholesky(H)
    return 2 * jnp.sum(jnp.log(jnp.diagonal(L))), cho_solve((L, True), b)


@solved.defjvp
def _solved_jvp(primals, tangents):
    (H, b), (dH, db) = primals, tangents
    L = cholesky(H)
    u = cho_solve((L, True), b)
    inverse = cho_solve((L, True), jnp.eye(len(L), dtype=L.dtype))
    value = 2 * jnp.sum(jnp.log(jnp.diagonal(L))), u
    return value, (jnp.sum(inverse * dH), inverse @ (db - dH @ u))


def solved_product(T: jax.Array, K: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``log|I + T ⊗ K|`` and ``(I + T ⊗ K)⁻¹b`` for symmetric T (p, p) and K (m, m), with b of shape (p, m).

    Derivatives never pass through eigenvectors, which have none where eigenvalues coincide.
    """
    t, V, d, Q = jax.lax.stop_gradient(_spectra(T, K))
    shrunk = 1 / (1 + t[:, None] * d[None, :])

    def solve(_: object, right: jax.Array) -> jax.Array:
        with full_precision():
            return V @ (shrunk * (V.T @ right @ Q)) @ Q.T

    def product(u: jax.Array) -> jax.Array:
        with full_precision():
            return u + T @ u @ K

    return _log_determinant(T, K), jax.lax.custom_linear_solve(product, b, solve, symmetric=True)


def _spectra(T: jax.Array, K: jax.Array) -> tuple[jax.Array, ...]:
    """Eigenvalues, of which none is negative, and eigenvectors of both."""
    (t, V), (d, Q) = jnp.linalg.eigh(T), jnp.linalg.eigh(K)
    return jnp.clip(t, 0), V, jnp.clip(d, 0), Q


@jax.custom_jvp
def _log_determinant(T: jax.Array, K: jax.Array) -> jax.Array:
    t, _, d, _ = _spectra(T, K)
    return jnp.sum(jnp.log1p(t[:, None] * d[None, :]))


@_log_determinant.defjvp
def _log_determinant_jvp(primals, tangents):
    of_T, of_K = _determinant_gradients(*primals)
    return _log_determinant(*primals), jnp.sum(of_T * tangents[0]) + jnp.sum(of_K * tangents[1])


@jax.custom_jvp
def _determinant_gradients(T: jax.Array, K: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Of the log determinant, in T and K."""
    t, V, d, Q = _spectra(T, K)
    shrunk = 1 / (1 + t[:, None] * d[None, :])
    return (V * (shrunk @ d)[None, :]) @ V.T, (Q * (t @ shrunk)[None, :]) @ Q.T


@_determinant_gradients.defjvp
def _determinant_gradients_jvp(primals, tangents):
    # Second derivatives, which few ask for, cost O((p m)³).
    return jax.jvp(_dense_gradients, primals, tangents)


def _dense_gradients(T: jax.Array, K: jax.Array) -> tuple[jax.Array, jax.Array]:
    p, m = len(T), len(K)
    inverse = jnp.linalg.inv(jnp.eye(p * m, dtype=T.dtype) + jnp.kron(T, K)).reshape(p, m, p, m)
    return jnp.einsum("iajb,ab->ij", inverse, K), jnp.einsum("iajb,ij->ab", inverse, T)
