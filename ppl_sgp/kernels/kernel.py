"""What every covariance function offers."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .._internal import checks

TWO_PI = 2 * math.pi


class Kernel(abc.ABC):
    """A covariance function; ``k1 + k2`` and ``k1 * k2`` combine kernels.

    >>> from ppl_sgp.kernels import Matern32, SquaredExponential
    >>> k = SquaredExponential(1.0, amplitude=2.0) + Matern32(3.0)
    >>> k.variance
    5.0
    """

    @abc.abstractmethod
    def __call__(self, X: ArrayLike, X2: ArrayLike | None = None) -> Array:
        """The covariance matrix, in O(n n2 d).

        :param X: inputs (n, d).
        :param X2: inputs (n2, d); ``X`` if left out.
        :return: (n, n2), in squared units of the amplitude.
        """

    @abc.abstractmethod
    def diag(self, X: ArrayLike) -> Array:
        """The diagonal of ``self(X)``, in O(n).

        :param X: inputs (n, d).
        :return: (n,), in squared units of the amplitude.
        """

    @property
    @abc.abstractmethod
    def variance(self) -> ArrayLike:
        """``k(0)``: the prior variance at any point, and the integral of the spectral density."""

    def log_spectral_density(self, frequencies: ArrayLike) -> Array:
        """The logarithm of :meth:`spectral_density`, finite where the density itself underflows.

        :param frequencies: (..., d), in cycles per unit of ``x``.
        :return: (...).
        """
        raise self._no_spectrum()

    def spectral_density(self, frequencies: ArrayLike) -> Array:
        """The Fourier transform of the kernel; it integrates to :attr:`variance`.

        :param frequencies: (..., d), in cycles per unit of ``x``.
        :return: (...), in squared units of the amplitude times units of ``x`` to the power ``d``.
        """
        return jnp.exp(self.log_spectral_density(frequencies))

    def sample_frequencies(self, key: Array, shape: Sequence[int]) -> Array:
        """Independent draws from the normalised spectral density; works under ``jit``.

        :param key: a JAX random key.
        :param shape: (..., d), the full shape of the result.
        :return: frequencies (..., d), in cycles per unit of ``x``.
        """
        raise self._no_spectrum()

    @property
    def spectral_shape(self) -> tuple[int, int]:
        """Blocks of normals and number of uniforms that make one frequency."""
        raise self._no_spectrum()

    def frequencies_from(self, normals: ArrayLike, uniforms: ArrayLike) -> np.ndarray:
        """Frequencies made of given variates, for quasi-random or orthogonal points: float64 NumPy, on the host.

        :param normals: standard normal variates (N, blocks, d), with ``blocks, e = spectral_shape``.
        :param uniforms: uniform variates (N, e) in [0, 1].
        :return: frequencies (N, d), in cycles per unit of ``x``.
        """
        raise self._no_spectrum()

    def spectral_components(self) -> tuple[tuple[ArrayLike, Kernel], ...]:
        """``(variance, kernel)`` of each additive part; a kernel that is no sum is its own only part."""
        return ((self.variance, self),)

    def __add__(self, other: Kernel) -> Kernel:
        from .composites import Sum

        return Sum((self, self._operand("add", other)))

    def __mul__(self, other: Kernel) -> Kernel:
        from .composites import Product

        return Product((self, self._operand("multiply", other)))

    # reached only if the left operand is no kernel: always refused, with the remedy
    __radd__ = __add__
    __rmul__ = __mul__

    def _no_spectrum(self) -> ValueError:
        return ValueError(
            f"{type(self).__name__} has no spectral density that can be sampled, so it has no Fourier features. Use a "
            "stationary kernel such as SquaredExponential or Matern52; for a sum, take its `spectral_components()`."
        )

    def _operand(self, action: str, other: Any) -> Kernel:
        if not isinstance(other, Kernel):
            raise TypeError(
                f"{type(self).__name__}: cannot {action} a kernel and {type(other).__name__}. To rescale a kernel set "
                "its `amplitude` (a standard deviation); sums and products take kernels only, as in `k1 + k2`."
            )
        return other


def dtype_of(kernel: Kernel, *values: ArrayLike) -> jnp.dtype:
    """The floating dtype of the hyperparameters and ``values``; integers take no part."""
    leaves = jax.tree.leaves((kernel, values))
    return checks.common_dtype(*[v for v in leaves if jnp.issubdtype(jnp.result_type(v), jnp.floating)])


def frequency_array(kernel: Kernel, frequencies: ArrayLike) -> Array:
    """``frequencies`` as an array of at least one axis."""
    if np.ndim(frequencies) == 0:
        raise ValueError(
            f"{type(kernel).__name__}: `frequencies` must have shape (..., d); got a scalar. "
            "For one input use `frequencies[..., None]`."
        )
    return jnp.asarray(frequencies, dtype_of(kernel, frequencies))


def checked_variates(kernel: Kernel, normals: ArrayLike, uniforms: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The variates of :meth:`frequencies_from` in float64, checked."""
    owner, (blocks, e) = type(kernel).__name__, kernel.spectral_shape
    if not checks.is_concrete(kernel, normals, uniforms):
        raise ValueError(
            f"{owner}: `frequencies_from` runs on the host and cannot be traced. Call it outside `jit`, `grad` and "
            "`vmap`, or use `sample_frequencies`."
        )
    normals, uniforms = np.asarray(normals, dtype=np.float64), np.asarray(uniforms, dtype=np.float64)
    if normals.ndim != 3 or normals.shape[1] != blocks or uniforms.shape != (len(normals), e):
        raise ValueError(
            f"{owner}: `normals` must have shape (N, {blocks}, d) and `uniforms` (N, {e}); got {normals.shape} and "
            f"{uniforms.shape}. `spectral_shape` says how many blocks and uniforms a kernel takes."
        )
    if not ((uniforms >= 0) & (uniforms <= 1)).all():
        raise ValueError(f"{owner}: `uniforms` must lie in [0, 1]; pass uniform variates, not normal ones.")
    return normals, uniforms
