"""What kernels with a spectral density offer besides their values: the density, draws from it, additive parts."""

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


class Spectral(abc.ABC):
    """A kernel with a spectral density: ``class Mine(Spectral, Kernel)``.

    Fourier features (:class:`~ppl_sgp.FourierBasis`) need two members more of each of the
    :meth:`spectral_components`: ``spectral_shape``, blocks b of normals and number e of uniforms that make one
    frequency, and ``frequencies_from(normals, uniforms)``, frequencies (N, d) in float64 NumPy from variates
    (N, b, d) and (N, e).
    """

    has_spectrum = True

    @property
    @abc.abstractmethod
    def variance(self) -> ArrayLike:
        """``k(0)``: the prior variance at any point, and the integral of the spectral density."""

    @abc.abstractmethod
    def log_spectral_density(self, frequencies: ArrayLike) -> Array:
        """The logarithm of :meth:`spectral_density`, finite where the density itself underflows.

        :param frequencies: (..., d), in cycles per unit of ``x``.
        :return: (...).
        """

    def spectral_density(self, frequencies: ArrayLike) -> Array:
        """The Fourier transform of the kernel; it integrates to :attr:`variance`.

        :param frequencies: (..., d), in cycles per unit of ``x``.
        :return: (...), in squared units of the amplitude times units of ``x`` to the power ``d``.
        """
        return jnp.exp(self.log_spectral_density(frequencies))

    @abc.abstractmethod
    def sample_frequencies(self, key: Array, shape: Sequence[int]) -> Array:
        """Independent draws from the normalised spectral density; works under ``jit``.

        :param key: a JAX random key.
        :param shape: (..., d), the full shape of the result.
        :return: frequencies (..., d), in cycles per unit of ``x``.
        """

    def spectral_components(self) -> tuple[tuple[ArrayLike, Any], ...]:
        """``(variance, kernel)`` of each additive part; a kernel that is no sum is its own only part."""
        return ((self.variance, self),)


def with_spectrum(kernel: Any, owner: str) -> Any:
    """The kernel, which must have a spectral density, as must all that it is a sum or a product of."""
    if kernel.has_spectrum:
        return kernel
    lacking = sorted({type(base).__name__ for base in _bases_of(kernel) if not base.has_spectrum})
    raise ValueError(
        f"{owner}: no spectral density for {' and '.join(lacking)}. Use stationary kernels such as SquaredExponential "
        "or Matern52. For sums make a basis for each term and `sgp.stack` them: PeriodicBasis, LinearBasis and "
        "PolynomialBasis know theirs. InterpolationBasis takes any kernel, also products, with free "
        "hyperparameters."
    )


def _bases_of(kernel: Any) -> list[Any]:
    """The kernels that a kernel is made of by sums and products."""
    inner = kernel.terms if kernel.terms[0] is not kernel else kernel.factors
    return [kernel] if inner[0] is kernel else [base for each in inner for base in _bases_of(each)]


def dtype_of(kernel: Any, *values: ArrayLike) -> jnp.dtype:
    """The floating dtype of the hyperparameters and ``values``; integers take no part."""
    leaves = jax.tree.leaves((kernel, values))
    return checks.common_dtype(*[v for v in leaves if jnp.issubdtype(jnp.result_type(v), jnp.floating)])


def frequency_array(kernel: Any, frequencies: ArrayLike) -> Array:
    """``frequencies`` as an array of at least one axis."""
    if np.ndim(frequencies) == 0:
        raise ValueError(
            f"{type(kernel).__name__}: `frequencies` must have shape (..., d); got a scalar. "
            "For one input use `frequencies[..., None]`."
        )
    return jnp.asarray(frequencies, dtype_of(kernel, frequencies))


def checked_variates(kernel: Any, normals: ArrayLike, uniforms: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The variates of ``frequencies_from`` in float64, checked."""
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
