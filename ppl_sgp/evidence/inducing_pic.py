"""Predictions of PIC: a new row belongs to a block, whose training rows it sees by the kernel itself.

PIC is PITC's model of the training rows, continued to all rows: their covariance is Q, and K within a block (Snelson &
Ghahramani 2007). For a new row of block B with ``δ = k(X_B, x) − V_Bᵀv``, ``Λ_B = L Lᵀ`` (noise included), ``s = L⁻¹δ``
and ``u = v − V_B L⁻ᵀs``, the formulas with the whole of the covariance reduce by Woodbury to

    mean = uᵀw̄ + sᵀL⁻¹y_B,    cov = uᵀB⁻¹u' + [same block](k(x, x') − vᵀv' − sᵀs'),

with w̄ and B of all blocks. Without s that is PITC.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from scipy.spatial import KDTree

from .inducing_blocks import block_noise
from .inducing_parts import Parts
from .inducing_posterior import PointFactors


class NearBlock(NamedTuple):
    """Of k new rows and p noises: u (p, m, k), s (p, b, k) with b the size of the largest block, ``sᵀL⁻¹y`` (q, k)."""

    features: jax.Array
    explained: jax.Array
    own: jax.Array


def nearest_blocks(members: np.ndarray, X: np.ndarray, X_new: np.ndarray) -> np.ndarray:
    """The block of each new row (k,): that of the nearest centroid, in units of the inputs' standard deviations.

    :param members: numbers of the rows of each block, shape (blocks, b), filled up with negative ones.
    """
    spread = np.where(X.max(axis=0) > X.min(axis=0), X.std(axis=0), 1.0)
    centres = np.stack([X[block[block >= 0]].mean(axis=0) for block in members])
    return KDTree(centres / spread).query(X_new / spread)[1]


def grouped(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows in groups of one block: blocks (g,), and numbers of their rows, (g, size), filled up with −1.

    A block of many rows has several groups, so that few places are empty. Both numbers are powers of two, for programs
    of few shapes; groups without rows fill up.
    """
    blocks, sizes = np.unique(labels, return_counts=True)
    size = _power_of_two(-(-len(labels) // len(blocks)))
    counts = -(-sizes // size)
    of_group = np.zeros(_power_of_two(counts.sum()), dtype=int)
    of_group[: counts.sum()] = np.repeat(blocks, counts)
    order, first = np.argsort(labels, kind="stable"), np.cumsum(sizes) - sizes
    within = np.arange(len(labels)) - np.repeat(first, sizes)
    group = np.repeat(np.cumsum(counts) - counts, sizes) + within // size
    numbers = np.full((len(of_group), size), -1)
    numbers[group, within % size] = order
    return of_group, numbers


def _power_of_two(count: Any) -> int:
    return 1 << (int(count) - 1).bit_length()


def near_block(
    each: PointFactors, parts: Parts, values: Any, X: Any, V: jax.Array, groups: tuple[Any, Any]
) -> NearBlock:
    """What new rows see of their blocks: O(b³ + b² m) a group, O(b² + b m) a row.

    :param values: all outputs, (q, n).
    :param X: new inputs (k, d), and ``V`` their whitened features (m, k).
    :param groups: from :func:`grouped`.
    """
    scales = each.noise_scale[: len(each.factor)]
    m, k = V.shape
    outputs = values.reshape(len(scales), -1, values.shape[-1])

    def of_noise(one: tuple[jax.Array, jax.Array]) -> jax.Array:
        scale, y = one

        def of_group(found: jax.Array, group: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            block, numbers = group

            def with_rows(found: jax.Array) -> jax.Array:
                part, at = parts.at(block), jnp.maximum(numbers, 0)
                V_block, L = block_noise(each.parameters, scale, part)
                v = V[:, at]
                delta = each.parameters.kernel(part.X, X[at]) - V_block.T @ v
                known = jnp.where(part.counts[:, None], jnp.concatenate([y[:, part.numbers].T, delta], axis=1), 0)
                white = solve_triangular(L, jnp.concatenate([V_block.T, known], axis=1), lower=True)
                s = white[:, m + len(y) :]
                both = white[:, : m + len(y)].T @ s
                new = jnp.concatenate([v - both[:m], both[m:], s])
                return found.at[:, at].add(jnp.where(numbers[None, :] >= 0, new, 0))

            return jax.lax.cond((numbers >= 0).any(), with_rows, lambda found: found, found), None

        return jax.lax.scan(of_group, jnp.zeros((m + len(y) + parts.size, k)), groups)[0]

    found = jax.lax.map(of_noise, (scales, outputs))
    own = found[:, m : len(found[0]) - parts.size].reshape(-1, k)
    return NearBlock(found[:, :m], found[:, len(found[0]) - parts.size :], own)
