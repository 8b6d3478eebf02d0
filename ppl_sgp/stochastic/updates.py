"""Optimisers: AdaGrad where few of many parameters are touched, Adam for the few hyperparameters.

Optax has neither for parameters of which a step touches some: its states are updated whole, O(m) a step.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

T = TypeVar("T")
#: Of Adam: how slowly means of gradients and of their squares forget.
FIRST, SECOND = 0.9, 0.999


def put(array: jax.Array, indices: jax.Array, rows: jax.Array) -> jax.Array:
    """An array with rows replaced, in place where the array is not needed any more; indices beyond it are left out."""
    return array.at[indices].set(rows, mode="drop", indices_are_sorted=True)


def adagrad(gradient: T, squares: T, rate: Any) -> tuple[T, T]:
    """Sums of squared gradients, and the size of each step (Duchi, Hazan & Singer 2011), of what a step touches."""
    squares = jax.tree.map(lambda total, g: total + g**2, squares, gradient)
    return squares, jax.tree.map(lambda total: rate * jax.lax.rsqrt(total + jnp.finfo(total.dtype).tiny), squares)


class Adam(NamedTuple):
    """Parameters in any tree, with running means of gradients and of their squares (Kingma & Ba 2015).

    :ivar value: the parameters.
    :ivar first: means of gradients; ``second`` those of their squares.
    :ivar time: steps made, floating.
    """

    value: Any
    first: Any
    second: Any
    time: jax.Array

    @classmethod
    def of(cls, value: Any, dtype: Any) -> Adam:
        """Before the first step."""
        zeros = jax.tree.map(jnp.zeros_like, value)
        return cls(value, zeros, jax.tree.map(jnp.zeros_like, value), jnp.zeros((), dtype))

    def moved(self, gradient: Any, rate: Any, active: jax.Array) -> Adam:
        """After a step downhill, if it is ``active``."""
        time = self.time + 1
        first = jax.tree.map(lambda mean, g: FIRST * mean + (1 - FIRST) * g, self.first, gradient)
        second = jax.tree.map(lambda mean, g: SECOND * mean + (1 - SECOND) * g**2, self.second, gradient)
        shrunk, spread = 1 - FIRST**time, 1 - SECOND**time

        def move(value: jax.Array, mean: jax.Array, square: jax.Array) -> jax.Array:
            return value - rate * (mean / shrunk) / (jnp.sqrt(square / spread) + 1e-12)

        new = Adam(jax.tree.map(move, self.value, first, second), first, second, time)
        return jax.tree.map(lambda after, before: jnp.where(active, after, before), new, self)
