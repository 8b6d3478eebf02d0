"""The kernel of functions that repeat."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .._internal import checks
from .._internal.pytree import pytree_dataclass
from .inputs import input_pair
from .kernel import Kernel
from .spectra import dtype_of


@pytree_dataclass
class Periodic(Kernel):
    """``amplitude**2 exp(-2 sin(pi (x - x') / period)**2 / lengthscale**2)``: functions of one input that repeat.

    The squared exponential of the point ``(cos, sin)(2 pi x / period)`` on the unit circle. It is stationary, but its
    spectrum is a line at each multiple of ``1 / period`` and no density: for its features use ``PeriodicBasis``.
    (MacKay 1998, Introduction to Gaussian processes; Rasmussen & Williams 2006, eq. 4.31.)

    :param period: units of ``x``.
    :param lengthscale: on the unit circle, so without units: with ``lengthscale << 1`` it is about
        ``2 pi / period`` times the lengthscale within one period; with ``lengthscale >> 1`` functions are nearly
        a constant and one sine.
    :param amplitude: standard deviation, units of ``f``.

    >>> kernel = Periodic(period=12.0, lengthscale=0.5, amplitude=2.0)
    >>> [round(float(k), 6) for k in kernel(np.zeros((1, 1)), np.array([[6.0], [12.0]]))[0]]
    [0.001342, 4.0]
    """

    period: ArrayLike
    lengthscale: ArrayLike
    amplitude: ArrayLike = 1.0

    def __post_init__(self) -> None:
        for name in ("period", "lengthscale", "amplitude"):
            value = getattr(self, name)
            checks.positive(name, value, "Periodic")
            if np.ndim(value) > 0:
                raise ValueError(
                    f"Periodic: `{name}` must be a scalar, as there is one input; got shape {np.shape(value)}. "
                    "For many kernels at once use `jax.vmap` over the hyperparameters."
                )

    def __call__(self, X: ArrayLike, X2: ArrayLike | None = None) -> Array:
        X, X2 = input_pair(self, X, X2)
        self._check_one_input(X)
        dtype = dtype_of(self, X, X2)
        difference = jnp.asarray(X, dtype) - jnp.asarray(X2, dtype).T
        return jnp.asarray(self.amplitude, dtype) ** 2 * self._correlation(difference / jnp.asarray(self.period, dtype))

    def diag(self, X: ArrayLike) -> Array:
        checks.inputs_matrix(X, None, "Periodic")
        self._check_one_input(X)
        return jnp.broadcast_to(jnp.asarray(self.amplitude, dtype_of(self, X)) ** 2, np.shape(X)[:1])

    @property
    def variance(self) -> ArrayLike:
        return self.amplitude**2

    def _correlation(self, turns: Array) -> Array:
        """The kernel over its variance, from differences in periods."""
        sine = jnp.sin(math.pi * (turns - jnp.round(turns)))  # whole turns are exact to take off, and lose no digits
        return jnp.exp(-2 * (sine / jnp.asarray(self.lengthscale, turns.dtype)) ** 2)

    def _check_one_input(self, X: ArrayLike) -> None:
        if np.shape(X)[1] != 1:
            raise ValueError(
                f"Periodic: `X` must have shape (n, 1), one input; got {np.shape(X)}. Pass one column, as in "
                "`X[:, [0]]`, and add up or multiply the results of several."
            )
