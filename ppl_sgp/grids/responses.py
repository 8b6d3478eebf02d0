"""What posteriors ask of a grid at one draw: ``(A + FFᵀ)⁻¹`` times vectors over the observed cells."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from .._internal.batching import full_precision
from ..kernels import Kernel
from . import kronecker
from .evaluate import axis_covariances, settings_of
from .evidence import Parameters, observed_features, solve
from .grid import Grid
from .observed_system import noise_of_cells
from .solver import GridSolver
from .system import filled_factor, gathered, system, weights


class Responses(NamedTuple):
    """``(A + FFᵀ)⁻¹`` of columns (c, N); with the iterations, and the largest relative residual."""

    values: jax.Array
    iterations: jax.Array
    residual: jax.Array


def responses(
    grid: Grid, kernels: tuple[Kernel, ...], noise_scale: Any, feature_scale: Any, right: Any, solver: GridSolver
) -> Responses:
    """As the solver says, for right-hand sides (c, N)."""
    dtype = right.dtype
    covariances = axis_covariances(grid, kernels, dtype)
    if solver.plan(grid)[0] == "rows":
        cells = jnp.asarray(grid.cells)
        K = kronecker.at_cells(covariances, cells, cells, grid.shape)
        F = feature_scale[:, None] * observed_features(grid, dtype)
        with full_precision():
            factor = jnp.linalg.cholesky(K + F.T @ F + jnp.diag(noise_of_cells(grid, noise_scale)))
            found = cho_solve((factor, True), right.T).T
        return Responses(found, jnp.zeros((), jnp.int32), jnp.zeros((), dtype))
    parameters = Parameters(covariances, noise_scale, right[0], feature_scale)
    state = system(grid, covariances, noise_scale)
    factor = filled_factor(grid, state) if solver.plan(grid)[0] == "gaps" else None
    F = feature_scale[:, None] * observed_features(grid, dtype)
    both = jnp.concatenate([right, F])
    columns, iterations, residual = solve(settings_of(kernels, solver), grid, state, parameters, both, factor)
    found = gathered(weights(grid, state, columns), jnp.asarray(grid.cells))
    plain, of_features = found[: len(right)], found[len(right) :]
    with full_precision():
        small = jnp.linalg.cholesky(jnp.eye(len(F), dtype=dtype) + F @ of_features.T)
        effects = cho_solve((small, True), F @ plain.T)
        return Responses(plain - effects.T @ of_features, iterations, jnp.max(residual))


def split_inputs(grid: Grid, X: Any) -> tuple[list[Any], Any]:
    """Inputs (k, input_dim) as those of each axis, and features (k, q)."""
    ends = [sum(grid.widths[:number]) for number in range(1, len(grid.widths) + 1)]
    parts = [X[:, end - width : end] for end, width in zip(ends, grid.widths, strict=True)]
    return parts, X[:, ends[-1] :]


def cross_covariance(grid: Grid, kernels: tuple[Kernel, ...], feature_scale: Any, X: Any) -> jax.Array:
    """Covariances of f, fixed effects in, at inputs with the observed cells, (k, N)."""
    parts, phi = split_inputs(grid, X)
    numbers = jnp.unravel_index(jnp.asarray(grid.cells), grid.shape)
    total = jnp.ones((1, 1), X.dtype)
    for kernel, points, part, i in zip(kernels, grid.axes, parts, numbers, strict=True):
        total = total * kernel(part, jnp.asarray(points, X.dtype))[:, i]
    return total + (phi * feature_scale[None, :] ** 2) @ observed_features(grid, X.dtype)


def covariance(grid: Grid, kernels: tuple[Kernel, ...], feature_scale: Any, X: Any) -> jax.Array:
    """Prior covariances of f between inputs, (k, k)."""
    parts, phi = split_inputs(grid, X)
    total = jnp.ones((1, 1), X.dtype)
    for kernel, part in zip(kernels, parts, strict=True):
        total = total * kernel(part)
    return total + (phi * feature_scale[None, :] ** 2) @ phi.T


def variances(grid: Grid, kernels: tuple[Kernel, ...], feature_scale: Any, X: Any) -> jax.Array:
    """Prior variances of f at inputs, (k,)."""
    parts, phi = split_inputs(grid, X)
    total = jnp.ones(1, X.dtype)
    for kernel, part in zip(kernels, parts, strict=True):
        total = total * kernel.diag(part)
    return total + phi**2 @ feature_scale**2
