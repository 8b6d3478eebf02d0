"""Generalised cross-validation on grids, as another objective than the evidence.

``N ‖α‖² / tr[(K_XX + σ²I)⁻¹]²`` with ``α = (K_XX + σ²I)⁻¹y`` (Evans 2022, eqs B.7 and B.8, where ``σ²yᵀα`` is
printed in the place of ``‖α‖²``: off by more than 90% in the case that was checked).
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from .._internal import checks
from .._internal.batching import full_precision
from ..evidence import exact
from . import evaluate as evaluation
from . import kronecker
from .evidence import Parameters, solve
from .grid import Grid
from .solver import GridSolver
from .system import gathered, scattered, system, weights


def grid_cross_validation(grid: Grid, kernels: Any, noise_scale: Any, *, solver: GridSolver | None = None) -> jax.Array:
    """The score of generalised cross-validation, in units of y²: the smaller, the better. Differentiable.

    Invariant to the amplitude and the noise multiplied by the same number, so that only their ratio is known of it.
    The trace is exact on full grids, and while the observed cells are few enough for a factor; else it is estimated by
    the probes of the solver, which stay the same.

    :param grid: the data, of equal noise and without features.
    :param kernels: a kernel for each axis.
    :param noise_scale: standard deviation of the noise.
    :param solver: :class:`~ppl_sgp.GridSolver`.
    :raises ValueError: for arguments that do not fit, and in float32. Not finite where conjugate gradients have not
        converged.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> grid = sgp.Grid([[0.0, 5.0], [0.0, 9.0]], np.ones((2, 2)))
        >>> with jax.enable_x64(True):
        ...     print(round(float(sgp.grid_cross_validation(grid, [sgp.Matern12(0.1)] * 2, 1.0)), 4))
        1.0
    """
    owner = "grid_cross_validation"
    found = evaluation.checked_kernels(owner, grid, kernels)
    checks.positive("noise_scale", noise_scale, owner)
    solver = GridSolver() if solver is None else solver
    evaluation.require_solvable(owner, grid, solver)
    if grid.features is not None or grid.filled.shape[0] != grid.num_gaps:
        raise ValueError(f"{owner}: of equal noise and without features; the grid has others.")
    dtype = checks.common_dtype(*jax.tree.leaves(found), noise_scale)
    exact.require_precision(owner, dtype)
    return _score(evaluation.settings_of(found, solver), grid, found, jnp.asarray(noise_scale, dtype))


@functools.partial(jax.jit, static_argnums=0)
def _score(settings: Any, grid: Grid, kernels: Any, noise_scale: jax.Array) -> jax.Array:
    dtype, solver = noise_scale.dtype, settings.solver
    covariances = evaluation.axis_covariances(grid, kernels, dtype)
    variance = noise_scale**2 * jnp.asarray(grid.base, dtype)
    y, n = jnp.asarray(grid.y, dtype), grid.num_rows
    with full_precision():
        if grid.num_gaps and n <= solver.dense_limit:
            cells = jnp.asarray(grid.cells)
            K = kronecker.at_cells(covariances, cells, cells, grid.shape)
            factor = jnp.linalg.cholesky(K + variance * jnp.eye(n, dtype=dtype)), True
            alpha, trace = cho_solve(factor, y), jnp.trace(cho_solve(factor, jnp.eye(n, dtype=dtype)))
            return n * jnp.sum(alpha**2) / trace**2
        if grid.num_gaps:
            probes = jax.random.rademacher(jax.random.key(solver.seed), (solver.num_probes, n), dtype)
        else:
            probes = jnp.zeros((0, n), dtype)
        found = _implicit(settings, grid, covariances, noise_scale, jnp.concatenate([y[None], probes]))
        alpha = found[0]
        if grid.num_gaps:
            trace = jnp.sum(probes * found[1:]) / solver.num_probes
        else:
            trace = _trace(covariances, variance)
    return n * jnp.sum(alpha**2) / trace**2


def _implicit(settings: Any, grid: Grid, covariances: Any, noise_scale: jax.Array, right: jax.Array) -> jax.Array:
    """``A_XX⁻¹`` of columns; derivatives are those of the product with A, eigendecompositions are constants."""
    variance = noise_scale**2 * jnp.asarray(grid.base, noise_scale.dtype)
    held, noise = jax.lax.stop_gradient((covariances, noise_scale))
    state = system(grid, held, noise)

    def product(x: jax.Array) -> jax.Array:
        return gathered(kronecker.apply(covariances, scattered(grid, grid.cells, x)), grid.cells) + variance * x

    def inverse(_: Any, b: jax.Array) -> jax.Array:
        parameters = Parameters(held, noise, b[0], jnp.zeros(0, b.dtype))
        columns, _, residual = solve(settings, grid, state, parameters, b, None)
        alpha = gathered(weights(grid, state, columns), grid.cells)
        return jnp.where(jnp.all(evaluation.converged(residual, settings.solver)), alpha, jnp.nan)

    return jax.lax.custom_linear_solve(product, right, inverse, symmetric=True)


@jax.custom_jvp
def _trace(covariances: tuple[jax.Array, ...], variance: jax.Array) -> jax.Array:
    """``tr (⊗K_l + sI)⁻¹``."""
    return jnp.sum(1 / (kronecker.eigen(covariances).spectrum + variance))


@_trace.defjvp
def _trace_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    eigen = kronecker.eigen(primals[0])
    inverse = 1 / (eigen.spectrum + primals[1])
    tangent = -jnp.sum(inverse**2) * tangents[1]
    for axis, (Q, change) in enumerate(zip(eigen.vectors, tangents[0], strict=True)):
        others = tuple(other for other in range(inverse.ndim) if other != axis)
        diagonal = jnp.sum(inverse**2 * eigen.others(axis), axis=others)
        tangent = tangent - jnp.sum((Q * diagonal[None, :]) @ Q.T * change)
    return jnp.sum(inverse), tangent
