"""Squared distances of all pairs of inputs, in lengthscales, with derivatives at the price of thin matrix products.

Values are of differences, which are exact for near inputs. Differentiating those takes d passes over numbers of all
pairs, ten times the cost of the value; multiplied out, the derivative is a sum of products of the inputs.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

#: Largest rounding, relative to derivatives of order one, with which they are multiplied out.
MOST_ROUNDING = 1e-10


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def squared_distances(multiply_out: bool, X: jax.Array, X2: jax.Array, lengthscales: jax.Array) -> jax.Array:
    """``Σ_d (x_d − x'_d)²/ℓ_d²``, shape (n, k). O(n·k·d).

    :param multiply_out: whether derivatives may be multiplied out, where that loses no digits: in float64, and unless
        the spread of the inputs is beyond some 1e3 lengthscales. Not for functions of the distance that are not
        differentiable at zero, which magnify rounding there.
    :param X: inputs, shape (n, d).
    :param X2: inputs, shape (k, d).
    :param lengthscales: shape (d,).
    """
    del multiply_out
    return _of_differences(X, X2, lengthscales)


def _of_differences(X: jax.Array, X2: jax.Array, lengthscales: jax.Array) -> jax.Array:
    # subtract before scaling: the difference of near inputs is exact, that of scaled ones is not
    def add(total: jax.Array, column: Any) -> tuple[jax.Array, None]:
        x, x2, lengthscale = column
        return total + ((x[:, None] - x2[None, :]) / lengthscale) ** 2, None

    nothing: Any = np.zeros((X.shape[0], X2.shape[0]), X.dtype)
    return jax.lax.scan(add, nothing, (X.T, X2.T, lengthscales))[0]


@squared_distances.defjvp
def _jvp(multiply_out: bool, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[jax.Array, jax.Array]:
    X, X2, lengthscales = primals

    def by_differences(tangents: Any) -> jax.Array:
        return jax.jvp(_of_differences, primals, tangents)[1]

    value = squared_distances(multiply_out, *primals)
    if not multiply_out or X.dtype != jnp.float64:
        return value, by_differences(tangents)
    centre = jax.lax.stop_gradient(jnp.mean(X2, axis=0))
    U, U2 = ((inputs - centre[None, :]) / lengthscales[None, :] for inputs in (X, X2))

    def by_products(tangents: Any) -> jax.Array:
        V, V2 = (tangent / lengthscales[None, :] for tangent in tangents[:2])
        return 2 * (_row_products(U, U2, V, V2) - _weighted(U, U2, tangents[2] / lengthscales))

    spread = jnp.max(jnp.sum(U**2, axis=1)) + jnp.max(jnp.sum(U2**2, axis=1))
    exact = spread * jnp.finfo(X.dtype).eps < MOST_ROUNDING
    # Recomputed in reverse mode: kept numbers of all pairs would cost more than the branch that is taken.
    branches = map(jax.checkpoint, (by_products, by_differences))
    return value, jax.lax.cond(exact, *branches, tangents)


def _row_products(U: jax.Array, U2: jax.Array, V: jax.Array, V2: jax.Array) -> jax.Array:
    """``(u − u')ᵀ(v − v')`` of all pairs."""
    return jnp.sum(U * V, axis=1)[:, None] + jnp.sum(U2 * V2, axis=1)[None, :] - V @ U2.T - U @ V2.T


def _weighted(U: jax.Array, U2: jax.Array, weights: jax.Array) -> jax.Array:
    """``Σ_d weights_d (u_d − u'_d)²`` of all pairs."""
    return (U**2 @ weights)[:, None] + (U2**2 @ weights)[None, :] - 2 * (U * weights[None, :]) @ U2.T
