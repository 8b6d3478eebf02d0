"""Local interpolation on a one-dimensional grid g₁ < … < g_m, as weights (n, m) of the grid points.

Inputs x (n,) outside the grid count as its nearest end.

References
    1. Keys, R. G. (1981), Cubic convolution interpolation for digital image processing.
    2. Shepard, D. (1968), A two-dimensional interpolation function for irregularly-spaced data.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any


def linear(x: Any, grid: Any, xp: ModuleType) -> Any:
    """Piecewise linear functions, equal to 1 at their own grid point."""
    within = (x[:, None] - grid[None, :-1]) / (grid[1:] - grid[:-1])[None, :]
    return _steps(xp.clip(within, 0, 1), xp)


def nearest(x: Any, grid: Any, xp: ModuleType) -> Any:
    """1 for the nearest grid point, the left one of two."""
    middles = (grid[1:] + grid[:-1]) / 2
    return _steps((x[:, None] > middles[None, :]).astype(x.dtype), xp)


def cubic(x: Any, grid: Any, xp: ModuleType) -> Any:
    """Keys' convolution [1] on an equally spaced grid: once differentiable, exact for quadratic functions.

    Beyond either end it needs one more value, extrapolated from three: ``f₀ = 3f₁ − 3f₂ + f₃``.
    """
    size = grid.shape[0]
    position = (xp.clip(x, grid[0], grid[-1]) - grid[0]) * ((size - 1) / (grid[-1] - grid[0]))
    distance = xp.abs(position[:, None] - xp.arange(-1, size + 1, dtype=x.dtype)[None, :])
    near = (1.5 * distance - 2.5) * distance**2 + 1
    far = ((2.5 - 0.5 * distance) * distance - 4) * distance + 2
    weights = xp.where(distance <= 1, near, xp.where(distance < 2, far, 0))
    left = xp.concatenate([xp.asarray([3.0, -3.0, 1.0], dtype=x.dtype), xp.zeros(size - 3, dtype=x.dtype)])
    return weights[:, 1:-1] + weights[:, :1] * left[None, :] + weights[:, -1:] * left[None, ::-1]


def shepard(X: Any, grids: tuple[Any, ...], xp: ModuleType) -> Any:
    """Inverse squared distances to the 2^d corners of the cell, in cells, normalised [2]: weights (n, Π m)."""
    corners, distances = zip(*[_corners(X[:, i], grid, xp) for i, grid in enumerate(grids)], strict=True)
    corner, distance = across(corners, xp.logical_and), across(distances, xp.add)
    hit = corner & (distance < 1e-30)  # at a grid point, which takes all
    inverse = xp.where(corner & ~hit, 1 / xp.where(corner & ~hit, distance, 1), 0)
    weights = xp.where(hit.any(axis=1, keepdims=True), hit.astype(X.dtype), inverse)
    return weights / weights.sum(axis=1, keepdims=True)


def across(parts: Any, operation: Callable[[Any, Any], Any]) -> Any:
    """All combinations of columns of the (n, mᵢ) in a row, by ``operation``: (n, Π mᵢ), row-major."""
    n = parts[0].shape[0]

    def combine(left: Any, right: Any) -> Any:
        return operation(left[:, :, None], right[:, None, :]).reshape(n, left.shape[1] * right.shape[1])

    return functools.reduce(combine, parts)


def _steps(passed: Any, xp: ModuleType) -> Any:
    """Weights from how far x has passed each gap (n, m−1), from 0 to 1: they sum to one."""
    one = xp.ones_like(passed[:, :1])
    return xp.concatenate([one, passed], axis=1) - xp.concatenate([passed, xp.zeros_like(one)], axis=1)


def _corners(x: Any, grid: Any, xp: ModuleType) -> tuple[Any, Any]:
    """Which grid points are the ends of the cell of x, and squared distances to them in cells: both (n, m)."""
    x = xp.clip(x, grid[0], grid[-1])
    cell = xp.clip((x[:, None] >= grid[None, :]).sum(axis=1) - 1, 0, grid.shape[0] - 2)[:, None]
    left, right = grid[cell], grid[cell + 1]
    within = (x[:, None] - left) / (right - left)
    index = xp.arange(grid.shape[0])[None, :]
    return (index == cell) | (index == cell + 1), xp.where(index == cell, within, 1 - within) ** 2
