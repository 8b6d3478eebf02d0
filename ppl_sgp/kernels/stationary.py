"""The base kernels: squared exponential, Matern, rational quadratic."""

from __future__ import annotations

import abc
import functools
import math
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .._internal import checks
from .._internal.pytree import pytree_dataclass
from . import quadrature
from .distances import squared_distances
from .inputs import input_pair
from .kernel import Kernel
from .scale_mixture import GammaSpectrum, MixtureSpectrum
from .spectra import TWO_PI, dtype_of, frequency_array


@dataclass(frozen=True, eq=False, repr=False)
class StationaryKernel(MixtureSpectrum, Kernel):
    """What the base kernels share: functions of the distance over the lengthscale."""

    lengthscale: ArrayLike
    amplitude: ArrayLike = 1.0

    def __post_init__(self) -> None:
        owner = type(self).__name__
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            checks.positive(name, value, owner)
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
        X, X2 = input_pair(self, X, X2)
        dtype = dtype_of(self, X, X2)
        lengthscales = self._lengthscales(np.shape(X)[1], dtype)
        r2 = squared_distances(self.differentiable, jnp.asarray(X, dtype), jnp.asarray(X2, dtype), lengthscales)
        return jnp.asarray(self.amplitude, dtype) ** 2 * self._correlation(r2)

    def diag(self, X: ArrayLike) -> Array:
        checks.inputs_matrix(X, None, type(self).__name__)
        dtype = dtype_of(self, X)
        self._lengthscales(np.shape(X)[1], dtype)
        return jnp.broadcast_to(jnp.asarray(self.amplitude, dtype) ** 2, np.shape(X)[:1])

    @property
    def variance(self) -> ArrayLike:
        return self.amplitude**2

    def along_inputs(self, input_dim: int) -> tuple[Kernel, ...]:
        """The same kernel of each input alone, with its lengthscale; the amplitude on the first."""
        self._lengthscales(input_dim, dtype_of(self))

        def of_input(index: int) -> Kernel:
            one = self.lengthscale[index] if np.ndim(self.lengthscale) else self.lengthscale  # type: ignore[index]
            return replace(self, lengthscale=one, amplitude=self.amplitude if index == 0 else 1.0)

        return tuple(map(of_input, range(input_dim)))

    @abc.abstractmethod
    def _correlation(self, r2: Array) -> Array:
        """The kernel over its variance, from squared scaled distances."""


@pytree_dataclass
class SquaredExponential(StationaryKernel):
    """``amplitude**2 exp(-r**2 / 2)``, with ``r`` the distance over the lengthscale.

    :param lengthscale: scalar, or (d,) for one per input; units of ``x``.
    :param amplitude: standard deviation, units of ``f``.

    >>> import numpy as np
    >>> kernel = SquaredExponential(lengthscale=2.0, amplitude=3.0)
    >>> round(float(kernel(np.zeros((1, 1)), np.ones((1, 1)))[0, 0]), 3)
    7.942
    """

    separable = True

    def _correlation(self, r2: Array) -> Array:
        return jnp.exp(-r2 / 2)


class _Matern(GammaSpectrum, StationaryKernel):
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
        none = jnp.full_like(w2, quadrature.floor(w2.dtype))
        return quadrature.trapezoid([quadrature.peak(shape, a + w2 / 2, none), quadrature.peak(a, a, none)])

    def log_spectral_density(self, frequencies: ArrayLike) -> Array:
        # a multivariate t with 2 nu degrees of freedom; the quadrature of the mixture gives the same, more slowly
        xi, nu = frequency_array(self, frequencies), self._shape
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

    >>> import numpy as np
    >>> round(float(Matern12(lengthscale=0.5).spectral_density(np.zeros(1))), 3)
    1.0
    """

    _order = 0
    differentiable = False


@pytree_dataclass
class Matern32(_Matern):
    """``amplitude**2 (1 + sqrt(3) r) exp(-sqrt(3) r)``: once differentiable functions.

    :param lengthscale: scalar, or (d,) for one per input; units of ``x``.
    :param amplitude: standard deviation, units of ``f``.

    >>> import numpy as np
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
class RationalQuadratic(GammaSpectrum, StationaryKernel):
    """``amplitude**2 (1 + r**2 / (2 alpha))**(-alpha)``: smooth functions with many lengthscales.

    The spectral density costs a quadrature of 128 nodes per frequency. At frequency zero it is infinite if
    ``2 alpha <= d``, as the kernel is then not integrable.

    :param lengthscale: scalar, or (d,) for one per input; units of ``x``.
    :param amplitude: standard deviation, units of ``f``.
    :param alpha: shape; the squared exponential is the limit of large ``alpha``.

    >>> import numpy as np
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
        nothing = quadrature.floor(xi2.dtype)
        if log_other is None:  # a generalised inverse Gaussian law, with a Bessel function as its integral
            w2 = jnp.maximum(jnp.sum(xi2 / unit, axis=-1), nothing)
            return quadrature.trapezoid([quadrature.peak(a - xi2.shape[-1] / 2, a, w2 / 2)])
        given = quadrature.convolved_peak(a, unit, jnp.exp(log_other), xi2)
        # below the variance of the others the law is the prior's slow exponential, from wherever the peak is
        none = jnp.full_like(given.where, nothing)
        prior = quadrature.Peak(jnp.zeros_like(none), jnp.broadcast_to(a, none.shape), none)
        return quadrature.trapezoid([given], [prior, prior._replace(where=given.where)])

    def _correlation(self, r2: Array) -> Array:
        alpha = jnp.asarray(self.alpha, r2.dtype)
        return jnp.exp(-alpha * jnp.log1p(r2 / (2 * alpha)))
