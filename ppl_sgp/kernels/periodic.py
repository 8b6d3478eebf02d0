"""The kernel of functions that repeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike

from .._internal import checks
from .._internal.pytree import pytree_dataclass
from .inputs import input_pair
from .kernel import Kernel
from .spectra import checked_variates, dtype_of

#: Multiples of ``1 / period`` on either side that make up a spectrum. Further ones have less than 0.1% of the variance
#: if the lengthscale is above ``4 / NUM_LINES``.
NUM_LINES = 64


@pytree_dataclass
class Periodic(Kernel):
    """``amplitude**2 exp(-2 sin(pi (x - x') / period)**2 / lengthscale**2)``: functions of one input that repeat.

    The squared exponential of the point ``(cos, sin)(2 pi x / period)`` on the unit circle. It is stationary, but its
    spectrum is a line at each multiple of ``1 / period`` and no density: for its features use ``PeriodicBasis``. Its
    product with a stationary kernel, quasi-periodic, has a density, for lengthscales of 1/16 and more here, and so
    features of a ``LaplaceBasis`` or ``FourierBasis`` with the period free.
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
    has_lines = True
    #: Of a product: blocks of normals and number of uniforms that make one frequency.
    spectral_shape = (0, 1)

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

    def log_cosine_series(self, num_harmonics: int) -> Array:
        """Logarithms of ``c_0 … c_K`` of the correlation ``c_0 + 2 sum c_k cos(2 pi k x / period)``, shape (K + 1,).

        By the trapezoid rule, whose error is of the order of coefficients beyond the third K. Those below rounding of
        the correlation are raised to it, so that logarithms and their gradients stay finite.
        """
        dtype = checks.common_dtype(self.lengthscale)
        number = 4 * max(num_harmonics, 16)
        correlation = self._correlation(jnp.arange(number, dtype=dtype) / number)
        series = jnp.fft.rfft(correlation).real[: num_harmonics + 1] / number
        return jnp.log(jnp.maximum(series, jnp.finfo(dtype).eps))

    def copied_to_lines(self, log_density: Callable[[Array], Array], frequencies: Array) -> Array:
        """The log spectral density of the product with a kernel, from that of the kernel.

        :param log_density: of the kernel, from frequencies (..., 1) to (...).
        :param frequencies: (..., 1), in cycles per unit of ``x``.
        """
        self._check_one_input(frequencies.reshape(-1, frequencies.shape[-1]))
        multiples = jnp.arange(-NUM_LINES, NUM_LINES + 1)
        dtype = dtype_of(self, frequencies)
        shifts = multiples.astype(dtype) / jnp.asarray(self.period, dtype)
        log_weights = self.log_cosine_series(NUM_LINES).astype(dtype)[jnp.abs(multiples)]
        log_weights = log_weights + 2 * jnp.log(jnp.asarray(self.amplitude, dtype))
        lines = (1,) * (frequencies.ndim - 1)
        copies = log_density(frequencies[..., None, :] - shifts.reshape(*lines, -1, 1))
        return logsumexp(copies + log_weights.reshape(*lines, -1), axis=-1)

    def spectral_components(self) -> tuple[tuple[ArrayLike, Kernel], ...]:
        """Itself, its only part."""
        return ((self.variance, self),)

    def sample_frequencies(self, key: Array, shape: Sequence[int]) -> Array:
        """Lines drawn by their share of the variance: multiples of ``1 / period``.

        :param key: a JAX random key.
        :param shape: (..., 1), the full shape of the result.
        """
        self._check_one_input(jnp.zeros((1, tuple(shape)[-1])))
        log_weights = self.log_cosine_series(NUM_LINES)[jnp.abs(jnp.arange(-NUM_LINES, NUM_LINES + 1))]
        multiples = jax.random.categorical(key, log_weights, shape=tuple(shape)) - NUM_LINES
        dtype = dtype_of(self)
        return multiples.astype(dtype) / jnp.asarray(self.period, dtype)

    def frequencies_from(self, normals: ArrayLike, uniforms: ArrayLike) -> np.ndarray:
        """Lines in increasing order of the uniforms.

        :param normals: none, (N, 0, 1).
        :param uniforms: uniform variates (N, 1) in [0, 1].
        :return: frequencies (N, 1), in cycles per unit of ``x``.
        """
        normals, uniforms = checked_variates(self, normals, uniforms)
        self._check_one_input(normals[:1, 0:0].reshape(0, normals.shape[2]))
        one_side = np.exp(np.asarray(self.log_cosine_series(NUM_LINES), dtype=np.float64))
        shares = np.cumsum(np.concatenate([one_side[:0:-1], one_side]))
        multiples = np.searchsorted(shares, uniforms * shares[-1]).clip(max=2 * NUM_LINES) - NUM_LINES
        return multiples / np.asarray(self.period, dtype=np.float64)

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
