"""Systems of the observed cells, through the eigenvectors of the full grid: fill-gaps, generalised to unequal noise.

With ``A₀ = K + sI`` for the least noise variance s, V the selection of the cells to be filled (the gaps, and cells with
more noise than s, whose excess is E), and ``S = V A₀⁻¹ Vᵀ + E⁻¹`` (E⁻¹ = 0 at gaps),

    z = S⁻¹ V A₀⁻¹ y₀,   ỹ = y₀ − Vᵀz,   α = A₀⁻¹ỹ   (zero at gaps, where −z is the posterior mean),
    y_Xᵀα_X = ỹᵀA₀⁻¹ỹ + zᵀE⁻¹z,   log|A_XX| = log|A₀| + log|S| + log|E|,

which is eq 3.5 of Evans (2022) where all noise is s; the quadratic form is a sum of positive terms and stationary in z,
so errors of a solve enter squared. For any symmetric change of A₀ and E⁻¹

    d(quadratic form + log-determinant) = tr(A₀⁻¹ dA₀) + Σ_c [z_cᵀ dE⁻¹ z_c − a_cᵀ dA₀ a_c] + d log|E|

over *columns* (a, z): that of the solution, and ``a = A₀⁻¹Vᵀc`` with ``z = c`` for any c with ``Σ ccᵀ = S⁻¹``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from .._internal.batching import full_precision
from . import conjugate_gradients, kronecker
from .grid import Grid
from .kronecker import Eigen

#: Numbers of blocks of columns that are worked on together: no more than caches hold.
BLOCK = 2**18


class System(NamedTuple):
    """Of one draw of hyperparameters.

    :ivar noise_variance: s, the least of a cell.
    :ivar inverse: eigenvalues of A₀⁻¹, shape of the grid.
    :ivar stiffness: E⁻¹, of the filled cells.
    """

    eigen: Eigen
    noise_variance: jax.Array
    inverse: jax.Array
    stiffness: jax.Array


class Columns(NamedTuple):
    """Columns (a, z): a among eigenvectors, shape (c, m_1, …, m_d), and z, (c, filled)."""

    a: jax.Array
    z: jax.Array


def system(grid: Grid, covariances: Any, noise_scale: Any) -> System:
    """The eigendecompositions of the axes' covariances, O(Σ m_l³), and what follows from them in O(M)."""
    found = kronecker.eigen(covariances)
    variance = noise_scale**2
    s = variance * jnp.asarray(grid.base, variance.dtype)
    stiffness = jnp.asarray(grid.stiffness, variance.dtype) / variance
    return System(found, s, 1 / (found.spectrum + s), stiffness)


def scattered(grid: Grid, numbers: Any, values: jax.Array) -> jax.Array:
    """Values (c, k) at cells of these numbers, zero elsewhere, shape (c, m_1, …, m_d)."""
    zeros = jnp.zeros((len(values), grid.num_cells), values.dtype)
    return zeros.at[:, numbers].set(values).reshape(-1, *grid.shape)


def gathered(cells: jax.Array, numbers: Any) -> jax.Array:
    """Values (c, k) of the cells of these numbers."""
    return cells.reshape(len(cells), math.prod(cells.shape[1:]))[:, numbers]


def in_basis(grid: Grid, system: System, numbers: Any, values: jax.Array) -> jax.Array:
    """``A₀⁻¹`` times values at some cells, among eigenvectors."""
    return system.eigen.to_basis(scattered(grid, numbers, values)) * system.inverse[None]


def filled_product(grid: Grid, system: System, z: jax.Array) -> jax.Array:
    """S times columns (c, filled)."""
    return returned(grid, system, in_basis(grid, system, grid.filled, z), z)


def returned(grid: Grid, system: System, a: jax.Array, z: jax.Array) -> jax.Array:
    """S z from ``a = A₀⁻¹Vᵀz`` among eigenvectors."""
    return gathered(system.eigen.from_basis(a), grid.filled) + system.stiffness[None, :] * z


def filled_diagonal(grid: Grid, system: System) -> jax.Array:
    """The diagonal of S, O(M Σ m_l)."""
    squares = kronecker.apply([Q**2 for Q in system.eigen.vectors], system.inverse)
    return squares.ravel()[jnp.asarray(grid.filled)] + system.stiffness


def filled_factor(grid: Grid, system: System) -> jax.Array:
    """The Cholesky factor of S: O(L M Σ m_l + L³), in memory of O(L²)."""
    count = grid.filled.shape[0]
    if count == 0:
        return jnp.zeros((0, 0), system.inverse.dtype)
    width = block_width(grid)

    def row(index: jax.Array) -> jax.Array:
        return filled_product(grid, system, (jnp.arange(count) == index).astype(system.inverse.dtype)[None, :])[0]

    S = jax.lax.map(row, jnp.arange(count), batch_size=width)
    with full_precision():
        return jnp.linalg.cholesky(0.5 * (S + S.T))


def block_width(grid: Grid) -> int:
    """How many columns of cells are worked on together."""
    return max(1, min(64, BLOCK // grid.num_cells))


def solved_by_filling(
    grid: Grid, system: System, right: jax.Array, factor: jax.Array | None, tolerance: float, max_iterations: int
) -> tuple[Columns, jax.Array, jax.Array]:
    """Columns of ``A_XX α = y``, for several y (c, N); iterations, and the relative residual of each column's z.

    :param factor: that of S; without it by conjugate gradients, preconditioned by the diagonal of S.
    """
    first = in_basis(grid, system, grid.cells, right)
    nothing = jnp.zeros((), jnp.int32), jnp.zeros(len(right), right.dtype)
    if grid.filled.shape[0] == 0:
        return Columns(first, jnp.zeros((len(right), 0), right.dtype)), *nothing
    b = gathered(system.eigen.from_basis(first), grid.filled)
    if factor is not None:
        half = solve_triangular(factor, b.T, lower=True)
        z, found = solve_triangular(factor, half, lower=True, trans="T").T, nothing
    else:
        diagonal = filled_diagonal(grid, system)
        solved = conjugate_gradients.solve(
            lambda x: filled_product(grid, system, x), b, lambda x: x / diagonal[None, :], tolerance, max_iterations
        )
        z, found = solved.x, (solved.iterations, solved.residual)
    return Columns(first - in_basis(grid, system, grid.filled, z), z), *found


def quadratic(system: System, left: Columns, right: Columns) -> jax.Array:
    """``yᵀA_XX⁻¹y'`` of columns of solutions, (c, c')."""
    size = system.inverse.size  # columns may be none, so that no size can be left to be found
    a = left.a.reshape(len(left.a), size)
    weighted = (right.a / system.inverse[None]).reshape(len(right.a), size)
    return a @ weighted.T + (left.z * system.stiffness[None, :]) @ right.z.T


def weights(grid: Grid, system: System, columns: Columns) -> jax.Array:
    """α at all cells, (c, m_1, …, m_d), zero at gaps but for the errors of a solve."""
    return system.eigen.from_basis(columns.a)


class Contraction(NamedTuple):
    """What a sum over columns contributes to derivatives.

    :ivar axes: matrices C_l with ``Σ aᵀ dK a = Σ_l ⟨Q_l C_l Q_lᵀ, dK_l⟩``.
    :ivar squares: ``Σ aᵀa``.
    :ivar stiff: ``Σ zᵀ E⁻¹ z``.
    """

    axes: tuple[jax.Array, ...]
    squares: jax.Array
    stiff: jax.Array


def contraction(system: System, columns: Columns) -> Contraction:
    """O(M m_l) for each axis and column."""
    found = []
    for axis, t in enumerate(system.eigen.values):
        left = jnp.moveaxis(columns.a, axis + 1, 0).reshape(len(t), -1)
        right = jnp.moveaxis(columns.a * system.eigen.others(axis)[None], axis + 1, 0).reshape(len(t), -1)
        with full_precision():
            found.append(left @ right.T)
    stiff = jnp.sum(system.stiffness[None, :] * columns.z**2)
    return Contraction(tuple(found), jnp.sum(columns.a**2), stiff)


def contraction_of(grid: Grid, system: System, c: jax.Array) -> Contraction:
    """The sum over columns ``a = A₀⁻¹Vᵀc``, z = c, for c of shape (k, filled), some at a time."""
    zero = jnp.zeros((), c.dtype)
    nothing = Contraction(tuple(jnp.zeros((len(t), len(t)), c.dtype) for t in system.eigen.values), zero, zero)
    if len(c) == 0:
        return nothing
    width = block_width(grid)
    count = -(-len(c) // width)
    blocks = jnp.zeros((count * width, c.shape[1]), c.dtype).at[: len(c)].set(c).reshape(count, width, -1)

    def add(total: Contraction, block: jax.Array) -> tuple[Contraction, None]:
        columns = Columns(in_basis(grid, system, grid.filled, block), block)
        return jax.tree.map(jnp.add, total, contraction(system, columns)), None

    return jax.lax.scan(add, nothing, blocks)[0]


def traces(system: System) -> tuple[jax.Array, ...]:
    """Vectors τ_l with ``tr(A₀⁻¹ dK) = Σ_l ⟨Q_l diag(τ_l) Q_lᵀ, dK_l⟩``."""
    rank = system.inverse.ndim
    return tuple(
        jnp.sum(system.inverse * system.eigen.others(axis), axis=tuple(other for other in range(rank) if other != axis))
        for axis in range(rank)
    )
