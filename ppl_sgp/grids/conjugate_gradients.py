"""Preconditioned conjugate gradients for several right-hand sides at once, which say how they ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Operator = Callable[[jax.Array], jax.Array]


class Solved(NamedTuple):
    """Solutions (c, L), with the iterations that the slowest took, and each one's ``‖b − Ax‖ / ‖b‖``, (c,)."""

    x: jax.Array
    iterations: jax.Array
    residual: jax.Array


def solve(operator: Operator, right: Any, precondition: Operator, tolerance: float, max_iterations: int) -> Solved:
    """``A x = b`` for positive definite A, until all relative residuals are at most the tolerance.

    :param operator: A times columns, (c, L) to (c, L).
    :param right: right-hand sides, shape (c, L).
    :param precondition: the same of an approximate inverse, positive definite.
    :param tolerance: largest ``‖b − Ax‖ / ‖b‖``, as the recursion has it; the residual returned is computed anew.
    :param max_iterations: how many at most. Columns that have converged stand still.

    >>> import jax.numpy as jnp
    >>> solved = solve(lambda x: 2 * x, jnp.ones((1, 3)), lambda x: x, 1e-6, 10)
    >>> solved.x.tolist(), int(solved.iterations), float(solved.residual[0])
    ([[0.5, 0.5, 0.5]], 1, 0.0)
    """
    size = jnp.sum(right**2, axis=1)
    enough = tolerance**2 * size

    def goes_on(state: Any) -> jax.Array:
        _, residual, _, _, count = state
        square = jnp.sum(residual**2, axis=1)
        return (count < max_iterations) & jnp.any(square > enough)  # NaN ends it, and is seen in the residual

    def step(state: Any) -> Any:
        x, residual, direction, rho, count = state
        active = jnp.sum(residual**2, axis=1) > enough
        image = operator(direction)
        curvature = jnp.sum(direction * image, axis=1)
        length = jnp.where(active, rho / jnp.where(active, curvature, 1), 0)
        x = x + length[:, None] * direction
        residual = residual - length[:, None] * image
        z = precondition(residual)
        new = jnp.sum(residual * z, axis=1)
        turn = jnp.where(active, new / jnp.where(active, rho, 1), 0)
        return x, residual, z + turn[:, None] * direction, new, count + 1

    z = precondition(right)
    start = jnp.zeros_like(right), right, z, jnp.sum(right * z, axis=1), jnp.zeros((), jnp.int32)
    x, _, _, _, count = jax.lax.while_loop(goes_on, step, start)
    left = jnp.sum((right - operator(x)) ** 2, axis=1)
    return Solved(x, count, jnp.sqrt(left / jnp.where(size > 0, size, 1)))
