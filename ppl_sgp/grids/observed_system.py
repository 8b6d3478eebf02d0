"""Systems on the observed cells themselves: ignore-gaps with a preconditioner of low rank, and penalised gaps.

Both find α with the covariances as they are, not their inverse: ``W(K + σ²Ω⁻¹)Wᵀα_X = y_X`` (Evans 2022, eq 3.4), and
``(K + γR + σ²Ω⁻¹)α = y`` with R one at gaps (proposition 3.1, where it is printed one at the observed cells), whose
solution is biased by O(1/γ). The preconditioner is the symmetric form of eq 3.7, for noise of any diagonal N,

    (B T_p Bᵀ + N)⁻¹ = N^-½ (I − G(I + GᵀG)⁻¹Gᵀ) N^-½,   G = N^-½ B T_p^½,   B = W Q S_pᵀ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from . import conjugate_gradients, kronecker
from .grid import Grid
from .kronecker import Eigen
from .low_rank import woodbury
from .system import Columns, System, gathered, scattered
from .toeplitz import FASTER_FROM, Toeplitz


def axis_products(grid: Grid, stationary: tuple[bool, ...], covariances: Any) -> list[Any]:
    """The covariances of the axes, by FFT where an axis is regular, its kernel stationary, and that is faster."""
    return [
        Toeplitz(K[:, 0]) if regular and is_stationary and len(K) >= FASTER_FROM else K
        for K, is_stationary, regular in zip(covariances, stationary, grid.regular, strict=True)
    ]


def noise_of_cells(grid: Grid, noise_scale: Any) -> jax.Array:
    """Noise variances of the observed cells, (N,)."""
    one = jnp.ones(grid.num_rows, noise_scale.dtype)
    return noise_scale**2 * (one if grid.row_weights is None else 1 / jnp.asarray(grid.row_weights, one.dtype))


def low_rank_preconditioner(grid: Grid, eigen: Eigen, noise: jax.Array, rank: int) -> Callable[[jax.Array], jax.Array]:
    """The inverse of the p largest eigenfunctions and the noise: O(Np² + p³) to set up, O(Np) a column."""
    if rank == 0:
        return lambda x: x / noise[None, :]
    largest, chosen = jax.lax.top_k(eigen.spectrum.ravel(), min(rank, grid.num_cells))
    B = kronecker.at_cells(eigen.vectors, jnp.asarray(grid.cells), chosen, grid.shape)
    return woodbury(B * jnp.sqrt(largest)[None, :], noise)


def solved_by_ignoring(
    grid: Grid,
    system: System,
    factors: Any,
    noise_scale: Any,
    right: jax.Array,
    rank: int,
    tolerance: float,
    max_iterations: int,
) -> tuple[Columns, jax.Array, jax.Array]:
    """Columns of ``A_XX α = y`` by conjugate gradients on the observed cells."""
    noise = noise_of_cells(grid, noise_scale)

    def product(x: jax.Array) -> jax.Array:
        return gathered(kronecker.apply(factors, scattered(grid, grid.cells, x)), grid.cells) + noise[None, :] * x

    precondition = low_rank_preconditioner(grid, system.eigen, noise, rank)
    solved = conjugate_gradients.solve(product, right, precondition, tolerance, max_iterations)
    return columns_of(grid, system, solved.x), solved.iterations, solved.residual


def solved_by_penalising(
    grid: Grid, factors: Any, noise_scale: Any, right: jax.Array, penalty: float, tolerance: float, max_iterations: int
) -> conjugate_gradients.Solved:
    """α at all cells by a large noise at gaps; those of the observed cells are off by O(1/penalty)."""
    noise = jnp.full(grid.num_cells, penalty, right.dtype).at[grid.cells].set(noise_of_cells(grid, noise_scale))

    def product(x: jax.Array) -> jax.Array:
        return kronecker.apply(factors, x.reshape(-1, *grid.shape)).reshape(x.shape) + noise[None, :] * x

    y = scattered(grid, grid.cells, right).reshape(len(right), -1)
    return conjugate_gradients.solve(product, y, lambda x: x / noise[None, :], tolerance, max_iterations)


def columns_of(grid: Grid, system: System, alpha: jax.Array) -> Columns:
    """Columns of weights (c, N): among eigenvectors, and what is taken for noise beyond the least, ``z = Eα``."""
    cells = scattered(grid, grid.cells, alpha)
    stiff = system.stiffness[None, :]
    z = gathered(cells, grid.filled) / jnp.where(stiff > 0, stiff, 1)
    return Columns(system.eigen.to_basis(cells), jnp.where(stiff > 0, z, 0))
