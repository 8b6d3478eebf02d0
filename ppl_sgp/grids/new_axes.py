"""Functions on other axes than those observed: by axis, never by cell."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from ..kernels import Kernel
from . import kronecker
from .evaluate import axis_covariances
from .grid import Grid
from .observed_system import noise_of_cells
from .responses import Responses, responses
from .solver import GridSolver
from .system import block_width, filled_factor, in_basis, scattered, system

#: Points of each axis; ``None`` for an axis as the grid has it.
Axes = tuple[Any, ...]


def cross_factors(grid: Grid, kernels: tuple[Kernel, ...], axes: Axes, dtype: Any) -> list[jax.Array]:
    """Covariances of new points with those of the grid, (q_l, m_l) for each axis."""
    return [
        kernel(jnp.asarray(points if new is None else new, dtype), jnp.asarray(points, dtype))
        for kernel, new, points in zip(kernels, axes, grid.axes, strict=True)
    ]


def lengths(grid: Grid, axes: Axes) -> tuple[int, ...]:
    """How many points each axis has."""
    return tuple(len(points if new is None else new) for points, new in zip(grid.axes, axes, strict=True))


def mean(grid: Grid, kernels: tuple[Kernel, ...], dual: Any, axes: Axes) -> jax.Array:
    """``(⊗ G_l) α`` with α zero at gaps, shape (q_1, …, q_d): O(M^(1/d) Q + Q^(1/d) M), in place of O(NQ)."""
    cells = scattered(grid, grid.cells, dual[None])[0]
    return kronecker.apply(cross_factors(grid, kernels, axes, dual.dtype), cells)


def explained(grid: Grid, kernels: tuple[Kernel, ...], noise_scale: Any, axes: Axes) -> jax.Array:
    """How much of the prior variance of new cells is explained, (q_1, …, q_d), by a factor of the gaps.

    Of the full grid ``Σ_i (G Q)_i² / (t_i + s)`` by axis, less what each of the L gaps would have told: exact, in
    L products of the size of the grids.
    """
    dtype = noise_scale.dtype
    state = system(grid, axis_covariances(grid, kernels, dtype), noise_scale)
    turned = [G @ Q for G, Q in zip(cross_factors(grid, kernels, axes, dtype), state.eigen.vectors, strict=True)]
    full = kronecker.apply([factor**2 for factor in turned], state.inverse)
    count = grid.filled.shape[0]
    if count == 0:
        return full
    factor = filled_factor(grid, state)
    columns = solve_triangular(factor, jnp.eye(count, dtype=dtype), lower=True)

    def lost(column: jax.Array) -> jax.Array:
        return kronecker.apply(turned, in_basis(grid, state, grid.filled, column[None])[0])

    width = block_width(grid)
    blocks = -(-count // width)
    padded = jnp.zeros((blocks * width, count), dtype).at[:count].set(columns).reshape(blocks, width, count)

    def add(total: jax.Array, block: jax.Array) -> tuple[jax.Array, None]:
        return total + jnp.sum(jax.vmap(lost)(block) ** 2, axis=0), None

    return full - jax.lax.scan(add, jnp.zeros_like(full), padded)[0]


def pathwise(
    grid: Grid,
    kernels: tuple[Kernel, ...],
    noise_scale: Any,
    feature_scale: Any,
    axes: Axes,
    features: Any,
    key: jax.Array,
    solver: GridSolver,
) -> tuple[jax.Array, Responses]:
    """A draw of f at new cells given y: a prior draw there and at the grid, plus the correction of its misfit.

    ``f* = g* + k*ᵀ(A + FFᵀ)⁻¹(y − g − e)`` for prior draws g, e (Wilson et al. 2020, eq 9). The prior draw is over the
    grid whose axes are old and new points together.

    :param features: of the new cells, (Q, q).
    """
    dtype = noise_scale.dtype
    both = [
        jnp.concatenate([jnp.asarray(part, dtype) for part in (points, new) if part is not None])
        for points, new in zip(grid.axes, axes, strict=True)
    ]
    eigen = kronecker.eigen([kernel(points) for kernel, points in zip(kernels, both, strict=True)])
    roots = [Q * jnp.sqrt(t)[None, :] for Q, t in zip(eigen.vectors, eigen.values, strict=True)]
    keys = jax.random.split(key, 3)
    cells = kronecker.apply(roots, jax.random.normal(keys[0], tuple(map(len, both)), dtype))
    beta = feature_scale * jax.random.normal(keys[1], feature_scale.shape, dtype)
    here = cells[tuple(slice(None, m) for m in grid.shape)].ravel()[jnp.asarray(grid.cells)]
    there = cells[
        tuple(slice(None) if new is None else slice(m, None) for m, new in zip(grid.shape, axes, strict=True))
    ]
    noise = jnp.sqrt(noise_of_cells(grid, noise_scale)) * jax.random.normal(keys[2], here.shape, dtype)
    if grid.features is not None:
        here = here + jnp.asarray(grid.features, dtype)[jnp.asarray(grid.cells)] @ beta
        there = there + (jnp.asarray(features, dtype) @ beta).reshape(there.shape)
    misfit = jnp.asarray(grid.y, dtype) - here - noise
    found = responses(grid, kernels, noise_scale, feature_scale, misfit[None], solver)
    correction = mean(grid, kernels, found.values[0], axes)
    return there + correction + effects(grid, feature_scale, found.values[0], features, there.shape), found


def effects(grid: Grid, feature_scale: Any, dual: jax.Array, features: Any, shape: tuple[int, ...]) -> jax.Array:
    """Posterior mean of the fixed effects at new cells, ``Φ* S² Φᵀ α``."""
    if grid.features is None:
        return jnp.zeros(shape, dual.dtype)
    Phi = jnp.asarray(grid.features, dual.dtype)[jnp.asarray(grid.cells)]
    return (jnp.asarray(features, dual.dtype) @ (feature_scale**2 * (dual @ Phi))).reshape(shape)
