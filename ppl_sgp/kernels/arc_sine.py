"""The arc-sine kernel: networks of sigmoid units."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .._internal import checks
from .._internal.batching import full_precision
from .._internal.pytree import pytree_dataclass
from .nonstationary import ScalarProductKernel


@pytree_dataclass
class ArcSine(ScalarProductKernel):
    """The neural network kernel: one hidden layer of infinitely many sigmoid units, here error functions.

    ``amplitude**2 (2 / pi) arcsin(2 u . u' / sqrt((1 + 2 |u|**2) (1 + 2 |u'|**2)))`` with
    ``u = (bias, weight_scale x)``, that is ``amplitude**2 E[erf(w . u) erf(w . u')]`` for standard normal weights
    ``w``. Functions are smooth, and level off away from the origin: their variance stays below ``amplitude**2``. Large
    weights make steps. Costs O(n n2 d) memory.

    Source: Williams (1998), Computation with infinite neural networks, eq 11; Rasmussen & Williams (2006), eq 4.29.
    (Slides that leave out the 2 in the numerator, or mix ``u`` and ``u'`` in the root, have another function.)

    :param amplitude: standard deviation, units of ``f``, that is approached far from the origin.
    :param weight_scale: standard deviation of the weights of a unit, per unit of ``x``; scalar, or (d,) for one per
        input.
    :param bias: standard deviation of the bias of a unit; 0 for odd functions.

    >>> round(float(ArcSine(weight_scale=1.0, bias=0.0)(np.array([[0.5]]))[0, 0]), 6)
    0.216347
    """

    amplitude: ArrayLike = 1.0
    weight_scale: ArrayLike = 1.0
    bias: ArrayLike = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive("amplitude", self.amplitude, "ArcSine")
        if np.ndim(self.amplitude):
            raise ValueError(f"ArcSine: `amplitude` must be a scalar; got shape {np.shape(self.amplitude)}.")

    def __call__(self, X: ArrayLike, X2: ArrayLike | None = None) -> Array:
        U, U2 = self._scaled_pair(X, X2)
        with full_precision():
            product = U @ U2.T
        norms = jnp.sum(U**2, axis=1)[:, None] + jnp.sum(U2**2, axis=1)[None, :]
        # |u|^2 |u'|^2 - (u . u')^2 by the middle and the difference: no digits are lost where u and u' are near
        middle, difference = (U[:, None, :] + U2[None, :, :]) / 2, U[:, None, :] - U2[None, :, :]
        area = (
            jnp.sum(middle**2, axis=-1) * jnp.sum(difference**2, axis=-1) - jnp.sum(middle * difference, axis=-1) ** 2
        )
        return self._of(2 * product, 1 + 2 * norms + 4 * jnp.where(area >= 0, area, 0.0))

    def diag(self, X: ArrayLike) -> Array:
        norms = self._squared_norms(X)
        return self._of(2 * norms, 1 + 4 * norms)

    def _of(self, opposite: Array, adjacent_squared: Array) -> Array:
        """From the sides of a right triangle with the angle of the arc sine, whose derivatives are finite: the adjacent
        one is at least 1."""
        scale = 2 / math.pi * jnp.asarray(self.amplitude, opposite.dtype) ** 2
        return scale * jnp.arctan2(opposite, jnp.sqrt(adjacent_squared))
