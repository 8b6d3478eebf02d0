"""Evidences of kernels on a grid, checked: what sites and diagnostics ask."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.batching import full_precision, vectorize
from ..evidence import exact
from ..kernels import Kernel
from . import evidence
from .grid import Grid
from .solver import GridSolver

#: How far above its tolerance a residual may be, by the rounding of conjugate gradients.
ROUNDING = 10.0


def checked_kernels(owner: str, grid: Any, kernels: Any) -> tuple[Kernel, ...]:
    """One kernel an axis, finite where it can be read."""
    if not isinstance(grid, Grid):
        raise ValueError(f"{owner}: `grid` must be an sgp.Grid(axes, values); got {type(grid).__name__}.")
    found = (kernels,) if isinstance(kernels, Kernel) else tuple(kernels)
    if len(found) != len(grid.axes) or not all(isinstance(kernel, Kernel) for kernel in found):
        shown = [each.__name__ if isinstance(each, type) else type(each).__name__ for each in found]
        raise ValueError(
            f"{owner}: `kernels` must be a kernel with its hyperparameters for each of the {len(grid.axes)} axes "
            f"{list(grid.dims)}; got {shown}. Their product is the covariance, so one amplitude is enough."
        )
    if checks.is_concrete(found, grid.axes):
        for dim, kernel, points in zip(grid.dims, found, grid.axes, strict=True):
            K = kernel(points)
            if checks.is_concrete(K) and not np.isfinite(np.asarray(K)).all():
                raise ValueError(
                    f"{owner}: {type(kernel).__name__} is not finite on the axis {dim!r}: look at its hyperparameters, "
                    "and at the units of the axis."
                )
    return found


def checked_feature_scale(owner: str, grid: Grid, feature_scale: Any) -> Any:
    """Standard deviations of the fixed effects, (q,); none without features."""
    if (feature_scale is None) != (grid.features is None):
        raise ValueError(
            f"{owner}: `feature_scale`, the prior standard deviation of fixed effects, belongs to the `features` of a "
            f"grid; this one has {grid.num_features}."
        )
    if feature_scale is None:
        return jnp.zeros(0)
    checks.positive("feature_scale", feature_scale, owner)
    if np.shape(feature_scale) not in ((), (grid.num_features,)):
        raise ValueError(
            f"{owner}: `feature_scale` must be one number, or one for each of {grid.num_features} features; got shape "
            f"{np.shape(feature_scale)}."
        )
    return jnp.broadcast_to(jnp.asarray(feature_scale), (grid.num_features,))


def require_solvable(owner: str, grid: Grid, solver: Any) -> None:
    """Refuse a solver that is none, or that does not fit the grid."""
    if not isinstance(solver, GridSolver):
        raise ValueError(f"{owner}: `solver` must be an sgp.GridSolver(...); got {type(solver).__name__}.")
    plan = solver.plan(grid)
    if solver.log_determinant == "nystrom" and grid.num_gaps < grid.filled.shape[0]:
        raise ValueError(
            f"{owner}: the Nyström log-determinant is for equal noise, and the grid has `noise_weights`: 'lanczos'."
        )
    if "gaps" in plan or "rows" in plan:
        size = min(grid.num_rows, grid.filled.shape[0]) if plan[1] == "rows" else grid.filled.shape[0]
        exact.require_memory(owner, size)
    for dim, points in zip(grid.dims, grid.axes, strict=True):
        if len(points) > 20_000:
            raise ValueError(
                f"{owner}: the axis {dim!r} has {len(points)} points, whose covariance is factorised: O(m³). Split it "
                "into two axes (days and hours), or take a basis: `sgp.FourierBasis`."
            )


def axis_covariances(grid: Grid, kernels: tuple[Kernel, ...], dtype: Any) -> tuple[jax.Array, ...]:
    """The covariance of each axis, (m_l, m_l)."""
    with full_precision():
        return tuple(
            jnp.asarray(kernel(jnp.asarray(points, dtype)), dtype)
            for kernel, points in zip(kernels, grid.axes, strict=True)
        )


def settings_of(kernels: tuple[Kernel, ...], solver: GridSolver) -> evidence.Settings:
    """What is static."""
    return evidence.Settings(solver, tuple(bool(kernel.has_spectrum) for kernel in kernels))


def converged(residual: Any, solver: GridSolver) -> Any:
    """Whether a solution is one: NaN is none."""
    return residual <= ROUNDING * solver.tolerance


@functools.partial(jax.jit, static_argnums=0)
def _batched(
    settings: evidence.Settings,
    grid: Grid,
    kernels: tuple[Kernel, ...],
    noise_scale: Any,
    values: Any,
    feature_scale: Any,
) -> evidence.Evidence:
    dtype = jnp.result_type(noise_scale)
    covariances = axis_covariances(grid, kernels, dtype)
    scale = jnp.asarray(feature_scale, dtype)

    def one(noise_scale: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(evidence.evidence(settings, grid, evidence.Parameters(covariances, noise_scale, y, scale)))

    return evidence.Evidence(*vectorize(one, "(),(n)->(),(),(),()", (noise_scale, values), dtype))


def evaluate(
    grid: Grid, kernels: tuple[Kernel, ...], noise_scale: Any, values: Any, feature_scale: Any, solver: GridSolver
) -> evidence.Evidence:
    """Of any batch of noise scales and values (…, N), without checks."""
    noise_scale = jnp.asarray(noise_scale, checks.common_dtype(*jax.tree.leaves(kernels), noise_scale))
    return _batched(settings_of(kernels, solver), grid, kernels, noise_scale, values, feature_scale)


def not_converged(owner: str, iterations: Any, residual: Any, solver: GridSolver) -> str:
    """What to say of a solution that is none."""
    return (
        f"{owner}: conjugate gradients ended after {int(np.max(iterations))} iterations with a relative residual of "
        f"{float(np.max(residual)):.1e}, above the tolerance of {solver.tolerance:.1e}. Raise `max_iterations`, take "
        "another `method` ('ignore' with a `rank` of some hundred where few cells are observed or the noise is tiny, "
        "'fill' where gaps are few), or bound the noise from below: `sgp.GridSolver(...)`."
    )
