"""Noise models of FITC and PITC: what rows have beyond the inducing points, independent between rows, or blocks.

Both take sums of rows whitened by ``Λ = diag or blockdiag(K − Q) + σ²Ω⁻¹`` as well, which depends on all parameters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from .._internal import checks
from .._internal.clusters import cluster
from ..kernels import Kernel
from ..statistics.kept_rows import ChunkedRows, Rows
from .inducing_parts import Part, lower_product


class Parameters(NamedTuple):
    """What V depends on: the kernel, the points (m, d), and L⁻¹ of their covariance LLᵀ."""

    kernel: Kernel
    Z: jax.Array
    inverse: jax.Array

    def whitened(self, X: jax.Array) -> jax.Array:
        """``V = L⁻¹k(Z, X)``, shape (m, k)."""
        return lower_product(self.inverse, self.kernel(self.Z, X))


class Sums(NamedTuple):
    """``VΛ⁻¹Vᵀ`` (m, m), ``VΛ⁻¹y`` (m, q), ``yᵀΛ⁻¹y`` (q,) and ``log|Λ|``."""

    gram: jax.Array
    projection: jax.Array
    squares: jax.Array
    log_noise: jax.Array


def independent(model: tuple[Parameters, jax.Array], part: Part, y: jax.Array) -> Sums:
    """The sums of FITC over some rows, for parameters and σ."""
    V, variance = independent_noise(*model, part)
    precision = jnp.where(part.counts, 1 / variance, 0)
    weighted = V * precision[None, :]
    log_noise = jnp.sum(jnp.where(part.counts, jnp.log(variance), 0))
    return Sums(weighted @ V.T, weighted @ y, precision @ y**2, log_noise)


def in_blocks(model: tuple[Parameters, jax.Array], part: Part, y: jax.Array) -> Sums:
    """The sums of PITC over the rows of one block, for parameters and σ."""
    V, L = block_noise(*model, part)
    joint = jnp.concatenate([V.T, jnp.where(part.counts[:, None], y, 0)], axis=1)
    white = solve_triangular(L, joint, lower=True)
    white_V, white_y = white[:, : len(V)], white[:, len(V) :]
    log_noise = 2 * jnp.sum(jnp.log(jnp.diagonal(L)))
    return Sums(white_V.T @ white_V, white_V.T @ white_y, jnp.sum(white_y**2, axis=0), log_noise)


def independent_noise(parameters: Parameters, noise_scale: jax.Array, part: Part) -> tuple[jax.Array, jax.Array]:
    """V (m, k), and the diagonal of Λ (k,)."""
    V = parameters.whitened(part.X)
    residual = jnp.maximum(parameters.kernel.diag(part.X) - jnp.sum(V**2, axis=0), 0)
    return V, residual + noise_scale**2 / part.weights


def block_noise(parameters: Parameters, noise_scale: jax.Array, part: Part) -> tuple[jax.Array, jax.Array]:
    """V (m, k), zero for rows that do not count, and the Cholesky factor of Λ (k, k), one for those."""
    V = jnp.where(part.counts[None, :], parameters.whitened(part.X), 0)
    covariance = parameters.kernel(part.X) + jnp.diag(noise_scale**2 / part.weights)
    both = part.counts[:, None] & part.counts[None, :]
    identity = jnp.eye(len(part.counts))
    return V, jnp.linalg.cholesky(jnp.where(both, covariance, identity) - V.T @ V)


def cluster_rows(rows: Any, num_blocks: int) -> np.ndarray:
    """Blocks of rows for PITC and PIC, by k-means: those that a number of blocks means elsewhere.

    Inputs are compared in units of their standard deviations. O(n·blocks·d) an iteration. Methods with blocks of b rows
    cost O(n b²), and those of inducing points O(n m²).

    :param rows: from :func:`~ppl_sgp.rows`, or inputs (n, d).
    :param num_blocks: how many; there are fewer if there are fewer distinct rows, or if clusters end empty.
    :return: labels from 0 on, shape (n,).
    :raises ValueError: for arguments that do not fit, and traced rows.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> X = np.array([[0.0], [0.1], [0.2], [7.0], [7.1]])
        >>> labels = sgp.cluster_rows(X, 2)
        >>> bool(labels[0] == labels[2] != labels[3] == labels[4])
        True
    """
    owner = "cluster_rows"
    if isinstance(rows, ChunkedRows):
        raise ValueError(f"{owner}: blocks are made of rows in memory, arrays `X, y`; got {rows}.")
    X = checks.finite_inputs(rows.X if isinstance(rows, Rows) else rows, None, owner)
    return _clustered(X, num_blocks, "num_blocks", owner)


def _clustered(X: Any, count: Any, name: str, owner: str) -> np.ndarray:
    count = checks.whole_number(name, count, 1, owner)
    X = checks.on_host("rows", X, owner, " Pass labels as `blocks`: sgp.cluster_rows(rows, number).")
    return cluster(X, count, np.random.default_rng(0))[1]


def block_members(blocks: Any, X: Any, owner: str) -> np.ndarray:
    """Numbers of the rows of each block, shape (blocks, size of the largest), filled up with −1.

    :param blocks: labels of the rows, shape (n,); or a number of blocks, made by k-means on the inputs.
    :raises ValueError: for labels of another shape or kind, and for what cannot be read.
    """
    if blocks is None:
        raise ValueError(
            f"{owner}: this method needs `blocks`: integer labels of the rows, shape (n,), such as "
            "sgp.cluster_rows(rows, number) makes."
        )
    if np.ndim(blocks) == 0:
        labels = _clustered(X, blocks, "blocks", owner)
    else:
        labels = checks.host_numbers("blocks", blocks, owner)
        if labels.shape != np.shape(X)[:1] or labels.dtype.kind not in "iu":
            raise ValueError(
                f"{owner}: `blocks` must be integer labels of shape {np.shape(X)[:1]}, one a row; got "
                f"{labels.dtype} of shape {labels.shape}."
            )
    _, labels, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    order = np.argsort(labels, kind="stable")
    members = np.full((len(sizes), sizes.max()), -1)
    within = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    members[labels[order], within] = order
    return members
