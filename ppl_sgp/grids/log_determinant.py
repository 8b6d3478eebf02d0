"""``log|S|`` of the filled cells with the columns of its derivative: by a factor, or by probes that stay the same."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from . import lanczos
from .grid import Grid
from .solver import GridSolver
from .system import Columns, Contraction, System, contraction, contraction_of, in_basis, returned


class LogDeterminant(NamedTuple):
    """``log|S|``, the standard error of an estimate with what its last Lanczos step changed, and its derivative."""

    value: jax.Array
    error: jax.Array
    contraction: Contraction


def of_factor(grid: Grid, system: System, factor: jax.Array) -> LogDeterminant:
    """Exact. The columns are those of ``L⁻ᵀ``: ``S⁻¹ = L⁻ᵀL⁻¹``."""
    identity = jnp.eye(len(factor), dtype=factor.dtype)
    columns = solve_triangular(factor, identity, lower=True) if len(factor) else identity
    value = 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))
    return LogDeterminant(value, jnp.zeros((), factor.dtype), contraction_of(grid, system, columns))


def of_probes(grid: Grid, system: System, solver: GridSolver) -> LogDeterminant:
    """Estimated from ``S̃ = s R^-½ S R^-½``, R = 1 + base·stiffness, whose eigenvalues are in (0, 1].

    R does not depend on θ. The derivative of ``−L log s`` cancels against that of s in S̃, as ``‖z‖² = L`` for each
    probe: what is left are columns ``√s R^-½ c``. O(probes · steps) products with S and contractions, and memory for
    ``3 · steps`` vectors of all cells.
    """
    count = grid.filled.shape[0]
    steps = min(solver.lanczos_steps, count)
    dtype = system.inverse.dtype
    s = system.noise_variance
    excess = 1 + jnp.asarray(grid.base, dtype) * jnp.asarray(grid.stiffness, dtype)
    root = jnp.sqrt(s / excess)

    def product(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        a = in_basis(grid, system, grid.filled, (root * x)[None])
        return root * returned(grid, system, a, (root * x)[None])[0], a[0]

    key = jax.random.key(solver.seed)
    probes = jax.random.rademacher(key, (solver.num_probes, count), dtype)

    def one(total: Contraction, z: jax.Array) -> tuple[Contraction, tuple[jax.Array, jax.Array]]:
        found = lanczos.log_quadrature(product, z, steps)
        share = jnp.sqrt(jnp.asarray(solver.num_probes, dtype))
        columns = Columns(found.images / share, root[None, :] * found.columns / share)
        total = jax.tree.map(jnp.add, total, contraction(system, columns))
        return total, (found.value, found.truncation)

    zero = jnp.zeros((), dtype)
    nothing = Contraction(tuple(jnp.zeros((len(t), len(t)), dtype) for t in system.eigen.values), zero, zero)
    total, (values, truncations) = jax.lax.scan(one, nothing, probes)
    value = jnp.mean(values) + jnp.sum(jnp.log(excess)) - count * jnp.log(s)
    error = jnp.std(values, ddof=1) / jnp.sqrt(jnp.asarray(solver.num_probes, dtype)) + jnp.mean(truncations)
    return LogDeterminant(value, error, total)


def nystrom_spectrum(grid: Grid, system: System) -> tuple[jax.Array, jax.Array]:
    """``Σ log(N/M λ + σ²)`` over the N largest eigenvalues (Evans 2022, section 3.4), and its derivative in each.

    Biased; exact only for N = M.
    """
    spectrum = system.eigen.spectrum.ravel()
    share = grid.num_rows / grid.num_cells
    kept = jnp.zeros(grid.num_cells, bool).at[jnp.argsort(-spectrum)[: grid.num_rows]].set(True)
    total = share * spectrum + system.noise_variance
    slope = jnp.where(kept, 1 / total, 0)
    return jnp.sum(jnp.where(kept, jnp.log(total), 0)), slope.reshape(grid.shape)
