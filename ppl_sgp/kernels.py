"""Covariance functions: value, diagonal, spectral density and spectral sampling; sums and products.

Every base kernel here is a scale mixture of Gaussians, and that one fact gives all of its spectral side.
A frequency of the kernel (cycles per unit of ``x``) is ``mix * z / (2 pi lengthscale)`` with ``z`` standard
normal in ``d`` dimensions, and ``mix**2`` is

* 1 for the squared exponential,
* ``1 / m`` with ``m ~ Gamma(nu) / nu`` for the Matern kernel of smoothness ``nu``,
* ``m`` with ``m ~ Gamma(alpha) / alpha`` for the rational quadratic.

Conventions: an amplitude is a standard deviation, and ``S(xi) = int k(tau) exp(-2 pi i xi . tau) dtau``, hence
``int S(xi) dxi = k(0) = amplitude**2``. Results follow the dtype of the arrays passed in; Python numbers do
not promote.

References: Rasmussen & Williams (2006), chapter 4, for the kernels and their spectra; Evans (2022), Eq. (5.13),
for the squared-exponential spectrum in cycles.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike
from scipy.special import gammaincinv

from ppl_sgp import _bessel, _checks
from ppl_sgp._pytree import pytree_dataclass

__all__ = ["Kernel", "Matern12", "Matern32", "Matern52", "Product", "RationalQuadratic", "SquaredExponential", "Sum"]

TWO_PI = 2 * math.pi


class Kernel:
    """A covariance function; ``k1 + k2`` and ``k1 * k2`` combine kernels.

    >>> k = SquaredExponential(1.0, amplitude=2.0) + Matern32(3.0)
    >>> k.variance
    5.0
    """

    def __call__(self, X: ArrayLike, X2: ArrayLike | None = None) -> Array:
        """The covariance matrix, in O(n n2 d).

        :param X: inputs (n, d).
        :param X2: inputs (n2, d); ``X`` if left out.
        :return: (n, n2), in squared units of the amplitude.
        """
        raise NotImplementedError

    def diag(self, X: ArrayLike) -> Array:
        """The diagonal of ``self(X)``, in O(n).

        :param X: inputs (n, d).
        :return: (n,), in squared units of the amplitude.
        """
        raise NotImplementedError

    @property
    def variance(self) -> ArrayLike:
        """``k(0)``: the prior variance at any point, and the integral of the spectral density."""
        raise NotImplementedError

    def log_spectral_density(self, frequencies: ArrayLike) -> Array:
        """The logarithm of :meth:`spectral_density`, finite where the density itself underflows.

        :param frequencies: (..., d), in cycles per unit of ``x``.
        :return: (...).
        """
        raise NotImplementedError

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
        raise NotImplementedError

    def spectral_components(self) -> tuple[tuple[ArrayLike, Kernel], ...]:
        """``(variance, kernel)`` of each additive part; a kernel that is no sum is its own only part."""
        return ((self.variance, self),)

    def __add__(self, other: Kernel) -> Sum:
        return Sum((self, self._operand("add", other)))

    def __mul__(self, other: Kernel) -> Product:
        return Product((self, self._operand("multiply", other)))

    # reached only if the left operand is no kernel: always refused, with the remedy
    __radd__ = __add__
    __rmul__ = __mul__

    def _operand(self, action: str, other: Any) -> Kernel:
        if not isinstance(other, Kernel):
            raise TypeError(
                f"{type(self).__name__}: cannot {action} a kernel and {type(other).__name__}. To rescale a kernel set "
                "its `amplitude` (a standard deviation); sums and products take kernels only, as in `k1 + k2`."
            )
        return other


def _dtype(kernel: Kernel, *values: ArrayLike) -> jnp.dtype:
    """The floating dtype of the hyperparameters and ``values``; integers take no part."""
    leaves = jax.tree.leaves((kernel, values))
    return _checks.common_dtype(*[v for v in leaves if jnp.issubdtype(jnp.result_type(v), jnp.floating)])


def _frequencies(kernel: Kernel, frequencies: ArrayLike) -> Array:
    """``frequencies`` as an array of at least one axis."""
    if np.ndim(frequencies) == 0:
        raise ValueError(
            f"{type(kernel).__name__}: `frequencies` must have shape (..., d); got a scalar. "
            "For one input use `frequencies[..., None]`."
        )
    return jnp.asarray(frequencies, _dtype(kernel, frequencies))


def _variates(
    kernel: _ScaleMixture | Product, normals: ArrayLike, uniforms: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """The variates of :meth:`frequencies_from` in float64, checked."""
    owner, (blocks, e) = type(kernel).__name__, kernel.spectral_shape
    if not _checks.is_concrete(kernel, normals, uniforms):
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


@dataclass(frozen=True, eq=False)
class _ScaleMixture(Kernel):
    """What the base kernels share; with no mixing variable unless a subclass gives one."""

    lengthscale: ArrayLike
    amplitude: ArrayLike = 1.0

    #: Blocks of normals and number of uniforms that make one frequency.
    spectral_shape: ClassVar[tuple[int, int]] = (1, 0)
    _power: ClassVar[int] = 0

    def __post_init__(self) -> None:
        owner = type(self).__name__
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            _checks.positive(name, value, owner)
            if isinstance(value, list | tuple):  # a sequence would be a branch of the pytree, not a leaf
                value = np.asarray(value, dtype=np.float64)
                object.__setattr__(self, name, value)
            if np.ndim(value) > (name == "lengthscale"):
                wanted = "a scalar or of shape (d,)" if name == "lengthscale" else "a scalar"
                raise ValueError(
                    f"{owner}: `{name}` must be {wanted}; got shape {np.shape(value)}. "
                    "For many kernels at once use `jax.vmap` over the hyperparameters."
                )

    def __call__(self, X: ArrayLike, X2: ArrayLike | None = None) -> Array:
        X2 = X if X2 is None else X2
        for inputs in (X, X2):
            _checks.inputs_matrix(inputs, None, type(self).__name__)
        if np.shape(X)[1] != np.shape(X2)[1]:
            raise ValueError(
                f"{type(self).__name__}: `X` and `X2` must have the same columns; got shapes {np.shape(X)} and "
                f"{np.shape(X2)}. Pass both in the same input space."
            )
        dtype = _dtype(self, X, X2)
        # subtract before scaling: the difference of near inputs is exact, that of scaled ones is not
        difference = jnp.asarray(X, dtype)[:, None, :] - jnp.asarray(X2, dtype)[None, :, :]
        scaled = difference / self._lengthscales(np.shape(X)[1], dtype)[None, None, :]
        return jnp.asarray(self.amplitude, dtype) ** 2 * self._correlation(jnp.sum(scaled**2, axis=-1))

    def diag(self, X: ArrayLike) -> Array:
        _checks.inputs_matrix(X, None, type(self).__name__)
        dtype = _dtype(self, X)
        self._lengthscales(np.shape(X)[1], dtype)
        return jnp.broadcast_to(jnp.asarray(self.amplitude, dtype) ** 2, np.shape(X)[:1])

    @property
    def variance(self) -> ArrayLike:
        return self.amplitude**2

    def log_spectral_density(self, frequencies: ArrayLike) -> Array:
        return _log_mixture((self,), _frequencies(self, frequencies))

    def sample_frequencies(self, key: Array, shape: Sequence[int]) -> Array:
        shape, dtype = tuple(shape), _dtype(self)
        key_normal, key_mix = jax.random.split(key)
        z = jax.random.normal(key_normal, shape, dtype) / (TWO_PI * self._lengthscales(shape[-1], dtype, shape))
        return self._mix_sample(key_mix, shape[:-1], dtype)[..., None] * z

    def frequencies_from(self, normals: ArrayLike, uniforms: ArrayLike) -> np.ndarray:
        """Frequencies made of given variates, for quasi-random or orthogonal points: float64 NumPy, on the host.

        :param normals: standard normal variates (N, blocks, d), with ``blocks, e = spectral_shape``.
        :param uniforms: uniform variates (N, e) in [0, 1].
        :return: frequencies (N, d), in cycles per unit of ``x``.
        """
        normals, uniforms = _variates(self, normals, uniforms)
        self._lengthscales(normals.shape[-1], _dtype(self))
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

    def _correlation(self, r2: Array) -> Array:
        """The kernel over its variance, from squared scaled distances."""
        raise NotImplementedError

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


@pytree_dataclass
class SquaredExponential(_ScaleMixture):
    """``amplitude**2 exp(-r**2 / 2)``, with ``r`` the distance over the lengthscale.

    :param lengthscale: scalar, or (d,) for one per input; units of ``x``.
    :param amplitude: standard deviation, units of ``f``.

    >>> kernel = SquaredExponential(lengthscale=2.0, amplitude=3.0)
    >>> round(float(kernel(np.zeros((1, 1)), np.ones((1, 1)))[0, 0]), 3)
    7.942
    """

    def _correlation(self, r2: Array) -> Array:
        return jnp.exp(-r2 / 2)


class _GammaMixture(_ScaleMixture):
    """``mix**2 = m**power`` with ``m ~ Gamma(shape) / shape``."""

    spectral_shape: ClassVar[tuple[int, int]] = (1, 1)

    @property
    def _shape(self) -> ArrayLike:
        raise NotImplementedError

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
        return log_weight + _bessel.log_gamma_law(t, a), self._power * t

    def _mix_nodes(self, a: Array, xi2: Array, unit: Array, log_other: Array | None) -> tuple[Array, Array]:
        """Nodes ``log m`` and log weights, from the arguments of :meth:`_mix_rule`."""
        raise NotImplementedError


class _Matern(_GammaMixture):
    """A Matern kernel of half-integer smoothness ``_order + 1/2``."""

    _power = -1
    _order: ClassVar[int]

    @property
    def _shape(self) -> float:
        return self._order + 0.5

    def _correlation(self, r2: Array) -> Array:
        return _matern(self._order, 2 * self._shape * r2)

    def _mix_nodes(self, a: Array, xi2: Array, unit: Array, log_other: Array | None) -> tuple[Array, Array]:
        # between the law given the frequency with no other factor, and the prior, where the others explain it all
        w2, shape = jnp.sum(xi2 / unit, axis=-1), a + xi2.shape[-1] / 2
        none = jnp.full_like(w2, _bessel.floor(w2.dtype))
        return _bessel.trapezoid([_bessel.peak(shape, a + w2 / 2, none), _bessel.peak(a, a, none)])

    def log_spectral_density(self, frequencies: ArrayLike) -> Array:
        # a multivariate t with 2 nu degrees of freedom; the quadrature of the mixture gives the same, more slowly
        xi, nu = _frequencies(self, frequencies), self._shape
        d = xi.shape[-1]
        constant = math.lgamma(nu + d / 2) - math.lgamma(nu) + d / 2 * math.log(TWO_PI / nu)
        lengthscale = self._lengthscales(d, xi.dtype)
        log_scale = jnp.sum(jnp.log(lengthscale)) + 2 * jnp.log(jnp.asarray(self.amplitude, xi.dtype))
        w2 = jnp.sum((TWO_PI * jnp.broadcast_to(lengthscale, xi.shape) * xi) ** 2, axis=-1)
        return log_scale + constant - (nu + d / 2) * jnp.log1p(w2 / (2 * nu))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _matern(order: int, q: Array) -> Array:
    """The correlation of smoothness ``order + 1/2`` at ``q = 2 nu r**2``, differentiable in ``q`` at zero.

    The derivative is the correlation of the next lower order, so none is taken of a square root except at order 0,
    where it diverges and its finite product with the derivative of ``q`` is set to zero.
    """
    z = jnp.where(q > 0, jnp.sqrt(jnp.where(q > 0, q, 1.0)), 0.0)
    return (1.0, 1.0 + z, 1.0 + z + q / 3)[order] * jnp.exp(-z)


@_matern.defjvp
def _matern_jvp(order: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (q,), (tangent,) = primals, tangents
    if order == 0:
        z = jnp.sqrt(jnp.where(q > 0, q, 1.0))
        slope = jnp.where(q > 0, -jnp.exp(-z) / (2 * z), 0.0)
    else:
        slope = -_matern(order - 1, q) / (2 * (2 * order - 1))
    return _matern(order, q), slope * tangent


@pytree_dataclass
class Matern12(_Matern):
    """``amplitude**2 exp(-r)``, with ``r`` the distance over the lengthscale: continuous, rough functions.

    :param lengthscale: scalar, or (d,) for one per input; units of ``x``.
    :param amplitude: standard deviation, units of ``f``.

    >>> round(float(Matern12(lengthscale=0.5).spectral_density(np.zeros(1))), 3)
    1.0
    """

    _order = 0


@pytree_dataclass
class Matern32(_Matern):
    """``amplitude**2 (1 + sqrt(3) r) exp(-sqrt(3) r)``: once differentiable functions.

    :param lengthscale: scalar, or (d,) for one per input; units of ``x``.
    :param amplitude: standard deviation, units of ``f``.

    >>> round(float(Matern32(lengthscale=2.0)(np.zeros((1, 1)), np.ones((1, 1)))[0, 0]), 3)
    0.785
    """

    _order = 1


@pytree_dataclass
class Matern52(_Matern):
    """``amplitude**2 (1 + sqrt(5) r + 5 r**2 / 3) exp(-sqrt(5) r)``: twice differentiable functions.

    :param lengthscale: scalar, or (d,) for one per input; units of ``x``.
    :param amplitude: standard deviation, units of ``f``.

    >>> Matern52(lengthscale=[1.0, 2.0]).sample_frequencies(jax.random.key(0), (5, 2)).shape
    (5, 2)
    """

    _order = 2


@pytree_dataclass
class RationalQuadratic(_GammaMixture):
    """``amplitude**2 (1 + r**2 / (2 alpha))**(-alpha)``: smooth functions with many lengthscales.

    The spectral density costs a quadrature of 128 nodes per frequency. At frequency zero it is infinite if
    ``2 alpha <= d``, as the kernel is then not integrable.

    :param lengthscale: scalar, or (d,) for one per input; units of ``x``.
    :param amplitude: standard deviation, units of ``f``.
    :param alpha: shape; the squared exponential is the limit of large ``alpha``.

    >>> kernel = RationalQuadratic(1.0, alpha=2.0)
    >>> round(float(kernel(np.zeros((1, 1)), 2 * np.ones((1, 1)))[0, 0]), 3)
    0.25
    """

    alpha: ArrayLike = 1.0
    _power = 1

    @property
    def _shape(self) -> ArrayLike:
        return self.alpha

    def _mix_nodes(self, a: Array, xi2: Array, unit: Array, log_other: Array | None) -> tuple[Array, Array]:
        none = _bessel.floor(xi2.dtype)
        if log_other is None:  # a generalised inverse Gaussian law, with a Bessel function as its integral
            w2 = jnp.maximum(jnp.sum(xi2 / unit, axis=-1), none)
            return _bessel.trapezoid([_bessel.peak(a - xi2.shape[-1] / 2, a, w2 / 2)])
        given = _bessel.convolved_peak(a, unit, jnp.exp(log_other), xi2)
        # below the variance of the others the law is the prior's slow exponential, from wherever the peak is
        none = jnp.full_like(given.where, none)
        prior = _bessel.Peak(jnp.zeros_like(none), jnp.broadcast_to(a, none.shape), none)
        return _bessel.trapezoid([given], [prior, prior._replace(where=given.where)])

    def _correlation(self, r2: Array) -> Array:
        alpha = jnp.asarray(self.alpha, r2.dtype)
        return jnp.exp(-alpha * jnp.log1p(r2 / (2 * alpha)))


@jax.jit
def _log_mixture(kernels: tuple[_ScaleMixture, ...], xi: Array) -> Array:
    """The log spectral density of a product of scale mixtures, (...) from frequencies (..., d).

    Given the mixing variables each factor's frequency is normal, so their sum is, with the sum of the variances;
    the mixing variables are integrated out on the tensor grid of the factors' rules.
    """
    d, dtype, tiny = xi.shape[-1], xi.dtype, jnp.finfo(xi.dtype).tiny
    # Nodes of vanishing variance carry no weight; the floor keeps their exponents, and derivatives, from overflowing.
    floor = jnp.maximum(jnp.log(jnp.maximum(xi**2, tiny)) - 70, 0.9 * math.log(tiny))[..., None, :]
    floor, xi = jax.lax.stop_gradient(floor), xi[..., None, :]
    log_weight, log_variance = jnp.zeros_like(xi[..., 0]), None
    for kernel in sorted(kernels, key=lambda kernel: kernel._power):  # rational quadratics last: they look at the rest
        log_unit = -2 * jnp.log(TWO_PI * kernel._lengthscales(d, dtype, (1,) * (xi.ndim - 1) + (d,)))
        weight, log_mix2 = kernel._mix_rule(xi, log_unit, log_variance)
        log_weight = log_weight[..., None] + weight + 2 * jnp.log(jnp.asarray(kernel.amplitude, dtype))
        added = log_mix2[..., None] + log_unit[..., None, :]
        added = added if log_variance is None else jnp.logaddexp(log_variance[..., None, :], added)
        log_weight = log_weight.reshape(*xi.shape[:-2], -1)
        log_variance = jnp.maximum(added.reshape(*xi.shape[:-2], -1, d), floor)
    terms = log_variance + math.log(TWO_PI) + xi**2 * jnp.exp(-log_variance)
    value = logsumexp(log_weight - jnp.sum(terms, axis=-1) / 2, axis=-1)
    if all(isinstance(kernel, RationalQuadratic) for kernel in kernels):  # the one family with kernels of heavy tails
        alpha = sum(jnp.asarray(kernel.alpha, dtype) for kernel in kernels)
        value = jnp.where(jnp.all(xi == 0, axis=(-1, -2)) & (2 * alpha <= d), jnp.inf, value)
    return value


@dataclass(frozen=True, eq=False)
class _Composite(Kernel):
    """Kernels combined by one operation; nested composites of the same class are flattened."""

    kernels: tuple[Kernel, ...]

    _combine: ClassVar[Callable[[Any, Any], Any]]

    def __post_init__(self) -> None:
        owner, flat = type(self), []
        for kernel in self.kernels:
            if not isinstance(kernel, Kernel):
                raise TypeError(f"{owner.__name__}: `kernels` must be kernels; got {type(kernel).__name__}.")
            flat += kernel.kernels if isinstance(kernel, owner) else [kernel]
        if not flat:
            raise ValueError(f"{owner.__name__}: `kernels` must hold at least one kernel; got none.")
        object.__setattr__(self, "kernels", tuple(flat))

    def __call__(self, X: ArrayLike, X2: ArrayLike | None = None) -> Array:
        return functools.reduce(self._combine, [kernel(X, X2) for kernel in self.kernels])

    def diag(self, X: ArrayLike) -> Array:
        return functools.reduce(self._combine, [kernel.diag(X) for kernel in self.kernels])

    @property
    def variance(self) -> ArrayLike:
        return functools.reduce(self._combine, [kernel.variance for kernel in self.kernels])


@pytree_dataclass
class Sum(_Composite):
    """The sum of kernels: independent functions added up. Written ``k1 + k2``.

    :param kernels: the terms.

    >>> k = SquaredExponential(1.0) + Matern12(2.0, amplitude=3.0)
    >>> [variance for variance, _ in k.spectral_components()]
    [1.0, 9.0]
    """

    _combine = staticmethod(operator.add)

    def log_spectral_density(self, frequencies: ArrayLike) -> Array:
        frequencies = _frequencies(self, frequencies)
        return logsumexp(jnp.stack([kernel.log_spectral_density(frequencies) for kernel in self.kernels]), axis=0)

    def sample_frequencies(self, key: Array, shape: Sequence[int]) -> Array:
        shape, dtype = tuple(shape), _dtype(self)
        key, *keys = jax.random.split(key, len(self.kernels) + 1)
        log_variances = jnp.log(jnp.stack([jnp.asarray(kernel.variance, dtype) for kernel in self.kernels]))
        choice = jnp.broadcast_to(jax.random.categorical(key, log_variances, shape=shape[:-1])[..., None], shape)
        draws = [kernel.sample_frequencies(k, shape) for kernel, k in zip(self.kernels, keys, strict=True)]
        return jnp.take_along_axis(jnp.stack(draws).astype(dtype), choice[None], axis=0)[0]

    def spectral_components(self) -> tuple[tuple[ArrayLike, Kernel], ...]:
        return tuple(part for kernel in self.kernels for part in kernel.spectral_components())


@pytree_dataclass
class Product(_Composite):
    """The product of kernels, all on the same inputs. Written ``k1 * k2``.

    The spectral density is a closed form for squared exponentials; one Matern or rational-quadratic factor makes it
    a quadrature of 128 nodes per frequency, two of 128**2. More of them, or two rational quadratics, are refused.
    Sums among the factors are multiplied out.

    :param kernels: the factors.

    >>> k = SquaredExponential(2.0, amplitude=3.0) * Matern32(1.0)
    >>> k.variance, k.spectral_shape
    (9.0, (2, 1))
    """

    _combine = staticmethod(operator.mul)

    def log_spectral_density(self, frequencies: ArrayLike) -> Array:
        parts = [kernel for _, kernel in self.spectral_components()]
        if len(parts) > 1:
            return Sum(tuple(parts)).log_spectral_density(frequencies)
        mixed = [isinstance(kernel, RationalQuadratic) for kernel in self.kernels if isinstance(kernel, _GammaMixture)]
        if not all(isinstance(kernel, _ScaleMixture) for kernel in self.kernels) or len(mixed) > 2 or sum(mixed) > 1:
            raise ValueError(
                f"Product: no spectral density for {' * '.join(type(kernel).__name__ for kernel in self.kernels)}. "
                "Supported are squared exponentials times at most two Matern kernels, of which one may be a rational "
                "quadratic. Add kernels instead, or use a basis for each input; sampling frequencies is not limited."
            )
        return _log_mixture(self.kernels, _frequencies(self, frequencies))

    def sample_frequencies(self, key: Array, shape: Sequence[int]) -> Array:
        keys = jax.random.split(key, len(self.kernels))
        draws = [kernel.sample_frequencies(k, shape) for kernel, k in zip(self.kernels, keys, strict=True)]
        return functools.reduce(operator.add, draws)

    def spectral_components(self) -> tuple[tuple[ArrayLike, Kernel], ...]:
        parts = [[kernel for _, kernel in factor.spectral_components()] for factor in self.kernels]
        if all(len(part) == 1 for part in parts):
            return ((self.variance, self),)
        products = [Product(factors) for factors in itertools.product(*parts)]
        return tuple((product.variance, product) for product in products)

    @property
    def spectral_shape(self) -> tuple[int, int]:
        """Blocks of normals and number of uniforms that make one frequency."""
        if any(isinstance(kernel, Sum) for kernel in self.kernels):
            raise ValueError("Product: a factor is a sum. Take each kernel of `spectral_components()` instead.")
        blocks, uniforms = zip(*[kernel.spectral_shape for kernel in self.kernels], strict=True)
        return sum(blocks), sum(uniforms)

    def frequencies_from(self, normals: ArrayLike, uniforms: ArrayLike) -> np.ndarray:
        """The sum of the factors' frequencies; the variates are shared out in the order of the factors.

        :param normals: standard normal variates (N, blocks, d), with ``blocks, e = spectral_shape``.
        :param uniforms: uniform variates (N, e) in [0, 1].
        :return: frequencies (N, d), in cycles per unit of ``x``.
        """
        normals, uniforms = _variates(self, normals, uniforms)
        shapes = np.cumsum([kernel.spectral_shape for kernel in self.kernels], axis=0)[:-1]
        shares = zip(
            self.kernels, np.split(normals, shapes[:, 0], axis=1), np.split(uniforms, shapes[:, 1], axis=1), strict=True
        )
        return sum(kernel.frequencies_from(z, u) for kernel, z, u in shares)
