"""Spectra of scale mixtures of Gaussians, which all base kernels are, by one quadrature."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike
from scipy.special import gammaincinv

from . import quadrature
from .spectra import TWO_PI, Spectral, checked_variates, dtype_of, frequency_array


class MixtureSpectrum(Spectral):
    """The spectrum of a kernel with a lengthscale; with no mixing variable unless a subclass gives one."""

    lengthscale: ArrayLike
    amplitude: ArrayLike

    #: Blocks of normals and number of uniforms that make one frequency.
    spectral_shape: ClassVar[tuple[int, int]] = (1, 0)
    _power: ClassVar[int] = 0

    def log_spectral_density(self, frequencies: ArrayLike) -> Array:
        return log_mixture((self,), frequency_array(self, frequencies))

    def sample_frequencies(self, key: Array, shape: Sequence[int]) -> Array:
        shape, dtype = tuple(shape), dtype_of(self)
        key_normal, key_mix = jax.random.split(key)
        z = jax.random.normal(key_normal, shape, dtype) / (TWO_PI * self._lengthscales(shape[-1], dtype, shape))
        return self._mix_sample(key_mix, shape[:-1], dtype)[..., None] * z

    def frequencies_from(self, normals: ArrayLike, uniforms: ArrayLike) -> np.ndarray:
        """Frequencies made of given variates, for quasi-random or orthogonal points: float64 NumPy, on the host.

        :param normals: standard normal variates (N, blocks, d), with ``blocks, e = spectral_shape``.
        :param uniforms: uniform variates (N, e) in [0, 1].
        :return: frequencies (N, d), in cycles per unit of ``x``.
        """
        normals, uniforms = checked_variates(self, normals, uniforms)
        self._lengthscales(normals.shape[-1], dtype_of(self))
        lengthscale = np.asarray(self.lengthscale, dtype=np.float64)
        return self._mix_quantile(uniforms)[:, None] * normals[:, 0] / (TWO_PI * lengthscale)

    def _lengthscales(self, d: int, dtype: jnp.dtype, shape: tuple[int, ...] | None = None) -> Array:
        """One lengthscale for each of ``d`` inputs, broadcast to ``shape`` or (d,)."""
        if np.shape(self.lengthscale) not in ((), (d,)):
            raise ValueError(
                f"{type(self).__name__}: `lengthscale` has {np.size(self.lengthscale)} entries but there are {d} "
                "inputs. Give one lengthscale for each column of `X`, or a scalar for all."
            )
        return jnp.broadcast_to(jnp.asarray(self.lengthscale, dtype), (d,) if shape is None else shape)

    def _mix_sample(self, key: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
        """Draws of ``mix``."""
        return jnp.ones(shape, dtype)

    def _mix_quantile(self, uniforms: np.ndarray) -> np.ndarray:
        """``mix`` (N,) from uniforms (N, e)."""
        return np.ones(len(uniforms))

    def _mix_rule(self, xi: Array, log_unit: Array, log_other: Array | None) -> tuple[Array, Array]:
        """A quadrature over the mixing law: log weights and log ``mix**2``, both (..., 1 or K, nodes).

        :param xi: frequencies (..., 1, d), which place the nodes.
        :param log_unit: log variance of the frequency per unit of ``mix**2``, (..., 1, d).
        :param log_other: log variance that other factors add, (..., K, d), or None if there are none.
        """
        zero = jnp.zeros_like(xi[..., :1])
        return zero, zero


class GammaSpectrum(MixtureSpectrum):
    """``mix**2 = m**power`` with ``m ~ Gamma(shape) / shape``."""

    spectral_shape: ClassVar[tuple[int, int]] = (1, 1)

    @property
    @abc.abstractmethod
    def _shape(self) -> ArrayLike:
        """Shape parameter of the Gamma law."""

    def _mix_sample(self, key: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
        a = jnp.asarray(self._shape, dtype)
        # the logarithm, since a draw itself can underflow for small shapes
        return jnp.exp(self._power / 2 * (jax.random.loggamma(key, a, shape, dtype) - jnp.log(a)))

    def _mix_quantile(self, uniforms: np.ndarray) -> np.ndarray:
        a, half_ulp = np.asarray(self._shape, dtype=np.float64), np.finfo(np.float64).epsneg
        # unscrambled quasi-random points contain 0, at which the Matern frequency is infinite
        g = gammaincinv(a, np.clip(uniforms[:, 0], half_ulp, 1 - half_ulp))
        return (g / a) ** (self._power / 2)

    def _mix_rule(self, xi: Array, log_unit: Array, log_other: Array | None) -> tuple[Array, Array]:
        a = jnp.asarray(self._shape, xi.dtype)
        t, log_weight = self._mix_nodes(*jax.lax.stop_gradient((a, xi**2, jnp.exp(log_unit), log_other)))
        return log_weight + quadrature.log_gamma_law(t, a), self._power * t

    @abc.abstractmethod
    def _mix_nodes(self, a: Array, xi2: Array, unit: Array, log_other: Array | None) -> tuple[Array, Array]:
        """Nodes ``log m`` and log weights, from the arguments of :meth:`_mix_rule`."""


@jax.jit
def log_mixture(kernels: tuple[Any, ...], xi: Array) -> Array:
    """The log spectral density of a product of scale mixtures, (...) from frequencies (..., d).

    Given the mixing variables each factor's frequency is normal, so their sum is, with the sum of the variances;
    the mixing variables are integrated out on the tensor grid of the factors' rules.
    """
    d, dtype, tiny = xi.shape[-1], xi.dtype, jnp.finfo(xi.dtype).tiny
    # Nodes of vanishing variance carry no weight; the floor keeps their exponents, and derivatives, from overflowing.
    floor = jnp.maximum(jnp.log(jnp.maximum(xi**2, tiny)) - 70, 0.9 * math.log(tiny))[..., None, :]
    floor, xi = jax.lax.stop_gradient(floor), xi[..., None, :]
    log_weight = jnp.zeros_like(xi[..., 0])
    log_variance: Any = None
    for kernel in sorted(kernels, key=lambda kernel: kernel._power):  # rational quadratics last: they look at the rest
        log_unit = -2 * jnp.log(TWO_PI * kernel._lengthscales(d, dtype, (1,) * (xi.ndim - 1) + (d,)))
        weight, log_mix2 = kernel._mix_rule(xi, log_unit, log_variance)
        log_weight = log_weight[..., None] + weight + 2 * jnp.log(jnp.asarray(kernel.amplitude, dtype))
        log_weight = log_weight.reshape(*xi.shape[:-2], -1)
        total = log_mix2[..., None] + log_unit[..., None, :]
        if log_variance is not None:
            total = jnp.logaddexp(log_variance[..., None, :], total)
        log_variance = jnp.maximum(total.reshape(*xi.shape[:-2], -1, d), floor)
    terms = log_variance + math.log(TWO_PI) + xi**2 * jnp.exp(-log_variance)
    value = logsumexp(log_weight - jnp.sum(terms, axis=-1) / 2, axis=-1)
    if len(kernels) == 1 and kernels[0]._power > 0:  # the tails of the kernel may be too heavy
        diverges = 2 * jnp.asarray(kernels[0]._shape, dtype) <= d
        value = jnp.where(jnp.all(xi == 0, axis=(-1, -2)) & diverges, jnp.inf, value)
    return value
