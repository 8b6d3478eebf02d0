"""Looking at one solution or evidence of a grid, with how it was found: for choosing a solver."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from .._internal import checks
from .._internal.shown import Shown
from ..evidence import exact
from . import evaluate as evaluation
from . import kronecker
from .grid import Grid
from .observed_system import axis_products, solved_by_ignoring, solved_by_penalising
from .solver import GridSolver
from .system import filled_factor, gathered, scattered, solved_by_filling, system, weights


@dataclasses.dataclass(frozen=True, repr=False)
class GridSolution(Shown):
    """What :func:`solve_grid` found.

    :ivar mean: posterior mean of f at all cells, with the grid's coordinates: at gaps what they are filled with.
    :ivar weights: ``α = (K + σ²Ω⁻¹)⁻¹y`` of the observed cells, (N,).
    :ivar iterations: of conjugate gradients, 0 for a factor.
    :ivar residual: the relative residual of the system that was solved.
    :ivar converged: whether that is the tolerance.
    """

    mean: xr.DataArray
    weights: np.ndarray
    iterations: int
    residual: float
    converged: bool

    def facts(self) -> dict[str, Any]:
        """How it was found."""
        return {"iterations": self.iterations, "residual": self.residual, "converged": str(self.converged)}


@dataclasses.dataclass(frozen=True, repr=False)
class GridEvidence(Shown):
    """What :func:`grid_evidence` found.

    :ivar value: ``log p(y | θ)``, in nats.
    :ivar standard_error: that of its log-determinant, where it is estimated; else 0. Of the Nyström form, which is
        biased, ``nan``.
    :ivar iterations: of conjugate gradients.
    :ivar residual: the largest relative residual.
    :ivar solved_by: how systems were solved, and log-determinants found.
    """

    value: float
    standard_error: float
    iterations: int
    residual: float
    solved_by: tuple[str, str]

    def facts(self) -> dict[str, Any]:
        """The value, and how it was found."""
        return {**dataclasses.asdict(self), "solved_by": " and ".join(self.solved_by)}


def solve_grid(
    grid: Grid,
    kernels: Any,
    noise_scale: Any,
    *,
    method: str = "fill",
    rank: int = 0,
    penalty: float = 1e6,
    tolerance: float = 1e-9,
    max_iterations: int = 1000,
) -> GridSolution:
    """Fill the gaps of a grid at given hyperparameters, by any of the methods of Evans (2022), chapter 3.

    :param grid: the data, without features.
    :param kernels: a kernel for each axis.
    :param noise_scale: standard deviation of the noise.
    :param method: ``"fill"`` and ``"ignore"`` as in :class:`~ppl_sgp.GridSolver`; ``"factor"``, by a Cholesky factor of
        the gaps; or ``"penalise"``, a noise variance of ``penalty`` at gaps, to compare with: off by O(1/penalty).
    :param rank: of the preconditioner of ``"ignore"``.
    :raises ValueError: for arguments that do not fit. Warns, with the residual, where it has not converged.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> grid = sgp.Grid([np.arange(4.0), np.arange(3.0)], np.eye(4, 3), gaps=np.eye(4, 3) > 0)
        >>> with jax.enable_x64(True):
        ...     solution = sgp.solve_grid(grid, [sgp.Matern32(2.0), sgp.Matern32(2.0)], 0.5)
        >>> solution.converged, solution.mean.shape
        (True, (4, 3))
    """
    if method not in ("fill", "ignore", "factor", "penalise"):
        raise ValueError(f"solve_grid: `method` must be 'fill', 'ignore', 'factor' or 'penalise'; got {method!r}.")
    found = evaluation.checked_kernels("solve_grid", grid, kernels)
    checks.positive("noise_scale", noise_scale, "solve_grid")
    checks.positive("penalty", penalty, "solve_grid")
    if grid.features is not None:
        raise ValueError("solve_grid: the grid has features; take `sgp.posterior` with `sgp.predict_grid`.")
    solver = GridSolver(tolerance=tolerance, max_iterations=max_iterations, rank=rank)
    evaluation.require_solvable("solve_grid", grid, solver)
    dtype = checks.common_dtype(*jax.tree.leaves(found), noise_scale)
    exact.require_precision("solve_grid", dtype)
    static = (method, solver, tuple(bool(kernel.has_spectrum) for kernel in found), float(penalty))
    mean, alpha, iterations, residual = map(np.asarray, _solve(static, grid, found, jnp.asarray(noise_scale, dtype)))
    solved = bool(evaluation.converged(residual, solver))
    if not solved:
        checks.warn(evaluation.not_converged("solve_grid", iterations, residual, solver))
    return GridSolution(grid.to_xarray(mean, "mean"), alpha, int(iterations), float(residual), solved)


@functools.partial(jax.jit, static_argnums=0)
def _solve(static: Any, grid: Grid, kernels: Any, noise_scale: jax.Array) -> tuple[jax.Array, ...]:
    method, solver, stationary, penalty = static
    covariances = evaluation.axis_covariances(grid, kernels, noise_scale.dtype)
    factors = axis_products(grid, stationary, covariances)
    right = jnp.asarray(grid.y, noise_scale.dtype)[None]
    limits = (solver.tolerance, solver.max_iterations)
    if method == "penalise":
        solved = solved_by_penalising(grid, factors, noise_scale, right, penalty, *limits)
        mean = kronecker.apply(factors, solved.x.reshape(1, *grid.shape))
        return mean[0], gathered(solved.x, grid.cells)[0], solved.iterations, solved.residual[0]
    state = system(grid, covariances, noise_scale)
    if method == "ignore":
        columns, count, residual = solved_by_ignoring(grid, state, factors, noise_scale, right, solver.rank, *limits)
    else:
        factor = filled_factor(grid, state) if method == "factor" else None
        columns, count, residual = solved_by_filling(grid, state, right, factor, *limits)
    alpha = gathered(weights(grid, state, columns), grid.cells)
    return kronecker.apply(factors, scattered(grid, grid.cells, alpha))[0], alpha[0], count, residual[0]


def grid_evidence(
    grid: Grid, kernels: Any, noise_scale: Any, *, feature_scale: Any = None, solver: GridSolver | None = None
) -> GridEvidence:
    """``log p(y | θ)`` of a grid at given hyperparameters, with its error and how systems were solved.

    The value alone, to be differentiated, is ``sgp.GridGP(grid, kernels, noise_scale).log_prob(grid.values)``.

    :param grid: the data.
    :param kernels: a kernel for each axis.
    :param noise_scale: standard deviation of the noise.
    :param feature_scale: prior standard deviations of the fixed effects, if the grid has features.
    :param solver: :class:`~ppl_sgp.GridSolver`.
    :raises ValueError: for arguments that do not fit. Warns where conjugate gradients have not converged.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> grid = sgp.Grid([[0.0, 5.0], [0.0, 9.0]], np.zeros((2, 2)))
        >>> with jax.enable_x64(True):
        ...     print(round(sgp.grid_evidence(grid, [sgp.Matern12(0.1)] * 2, 1.0).value, 3))  # −2 log 4π
        -5.062
    """
    found = evaluation.checked_kernels("grid_evidence", grid, kernels)
    checks.positive("noise_scale", noise_scale, "grid_evidence")
    solver = GridSolver() if solver is None else solver
    evaluation.require_solvable("grid_evidence", grid, solver)
    scale = evaluation.checked_feature_scale("grid_evidence", grid, feature_scale)
    exact.require_precision("grid_evidence", checks.common_dtype(*jax.tree.leaves(found), noise_scale))
    result = evaluation.evaluate(grid, found, noise_scale, grid.values, scale, solver)
    plan = solver.plan(grid)
    if not bool(evaluation.converged(result.residual, solver)):
        checks.warn(evaluation.not_converged("grid_evidence", result.iterations, result.residual, solver))
    error = float("nan") if plan[1] == "nystrom" else float(result.error)
    return GridEvidence(float(result.value), error, int(result.iterations), float(result.residual), plan)
