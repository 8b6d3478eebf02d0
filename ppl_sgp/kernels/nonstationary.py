"""Kernels of scalar products: linear, polynomial, arc-cosine.

All three are functions of ``u(x) . u(x')`` with ``u(x) = (bias, scale_1 x_1, ..., scale_d x_d)``: the inputs, scaled,
and a constant. Their variance grows away from the origin, so centre inputs first.
"""

from __future__ import annotations

import abc
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .._internal import checks
from .._internal.batching import full_precision
from .._internal.pytree import pytree_dataclass, static
from .inputs import input_pair
from .kernel import Kernel
from .spectra import dtype_of


class ScalarProductKernel(Kernel):
    """What kernels of ``u(x) . u(x')`` share: ``weight_scale`` scales the inputs, and ``bias`` is the constant."""

    weight_scale: ArrayLike
    bias: ArrayLike

    def __post_init__(self) -> None:
        owner, scale = type(self).__name__, self.weight_scale
        checks.positive("weight_scale", scale, owner)
        if isinstance(scale, list | tuple):  # a sequence would be a branch of the pytree, not a leaf
            object.__setattr__(self, "weight_scale", np.asarray(scale, dtype=np.float64))
        if np.ndim(scale) > 1:
            raise ValueError(f"{owner}: `weight_scale` must be a scalar or of shape (d,); got shape {np.shape(scale)}.")
        if np.ndim(self.bias) > 0:
            raise ValueError(f"{owner}: `bias` must be a scalar; got shape {np.shape(self.bias)}.")
        if checks.is_concrete(self.bias) and not 0 <= float(self.bias) < math.inf:  # type: ignore[arg-type]
            raise ValueError(
                f"{owner}: `bias` must be finite and at least 0, as it is a standard deviation; got {self.bias}."
            )

    @property
    def variance(self) -> ArrayLike:
        raise ValueError(
            f"{type(self).__name__} is not stationary: it has no one variance, and no spectral density. `diag(X)` is "
            "its variance at inputs X; for features use a basis that knows it, such as LinearBasis or PolynomialBasis."
        )

    def input_scales(self, input_dim: int, dtype: jnp.dtype) -> Array:
        """The constant and the scale of each input, ``(bias, scale_1, ..., scale_d)``, shape (d + 1,)."""
        scale = self.weight_scale
        if np.shape(scale) not in ((), (input_dim,)):
            raise ValueError(
                f"{type(self).__name__}: `weight_scale` has {np.size(scale)} entries but there are {input_dim} "
                "inputs. Give one for each column of `X`, or a scalar for all."
            )
        scale = jnp.broadcast_to(jnp.asarray(scale, dtype), (input_dim,))
        return jnp.concatenate([jnp.asarray(self.bias, dtype)[None], scale])

    def _scaled_inputs(self, X: ArrayLike, dtype: jnp.dtype) -> Array:
        """``u(x)`` for each row, shape (n, d + 1)."""
        X = jnp.asarray(X, dtype)
        ones = jnp.ones((X.shape[0], 1), dtype)
        return jnp.concatenate([ones, X], axis=1) * self.input_scales(X.shape[1], dtype)[None, :]

    def _scaled_pair(self, X: ArrayLike, X2: ArrayLike | None) -> tuple[Array, Array]:
        X, X2 = input_pair(self, X, X2)
        dtype = dtype_of(self, X, X2)
        return self._scaled_inputs(X, dtype), self._scaled_inputs(X2, dtype)

    def _squared_norms(self, X: ArrayLike) -> Array:
        checks.inputs_matrix(X, None, type(self).__name__)
        return jnp.sum(self._scaled_inputs(X, dtype_of(self, X)) ** 2, axis=1)


class _Power(ScalarProductKernel):
    """A power of the scalar product."""

    @property
    @abc.abstractmethod
    def _power(self) -> int:
        """The exponent."""

    def __call__(self, X: ArrayLike, X2: ArrayLike | None = None) -> Array:
        U, U2 = self._scaled_pair(X, X2)
        with full_precision():
            return (U @ U2.T) ** self._power

    def diag(self, X: ArrayLike) -> Array:
        return self._squared_norms(X) ** self._power


@pytree_dataclass
class Linear(_Power):
    """``weight_scale**2 x . x' + bias**2``: straight lines, with normal slopes and a normal intercept.

    :param weight_scale: standard deviation of the slopes, units of ``f`` per unit of ``x``; scalar, or (d,) for one
        per input.
    :param bias: standard deviation of the intercept, units of ``f``; 0 for lines through the origin.

    >>> float(Linear(weight_scale=2.0, bias=1.0)(np.array([[3.0]]))[0, 0])
    37.0
    """

    weight_scale: ArrayLike = 1.0
    bias: ArrayLike = 0.0

    _power = 1


@pytree_dataclass
class Polynomial(_Power):
    """``(weight_scale**2 x . x' + bias**2)**degree``: polynomials of a total degree, with normal coefficients.

    The product of ``degree`` linear kernels; so ``f`` has the units of ``bias**degree``, and ``weight_scale`` scales
    inputs. A monomial ``x^a`` of total degree ``|a|`` has a coefficient of variance
    ``degree! / (a! (degree - |a|)!) bias**(2 (degree - |a|)) prod weight_scale_i**(2 a_i)``: without bias only those
    of the full degree remain. (Rasmussen & Williams 2006, section 4.2.2.)

    :param degree: total degree, at least 1; static.
    :param weight_scale: scale of the inputs, units of ``bias`` per unit of ``x``; scalar, or (d,) for one per input.
    :param bias: constant added to the scalar product, as a square root; 0 for a homogeneous polynomial.

    >>> float(Polynomial(degree=3)(np.array([[2.0]]), np.array([[0.5]]))[0, 0])
    8.0
    """

    degree: int = static()
    weight_scale: ArrayLike = 1.0
    bias: ArrayLike = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "degree", checks.whole_number("degree", self.degree, 1, "Polynomial"))

    @property
    def _power(self) -> int:
        return self.degree


@pytree_dataclass
class ArcCosine(ScalarProductKernel):
    """Networks with one hidden layer of infinitely many units: steps (order 0), rectified lines (1), their squares (2).

    ``amplitude**2 / pi (|u| |u'|)**order J(angle)``, with the angle between ``u`` and ``u'``, and ``J`` equal to
    ``pi - angle``, ``sin(angle) + (pi - angle) cos(angle)`` or
    ``3 sin(angle) cos(angle) + (pi - angle) (1 + 2 cos(angle)**2)``. That is
    ``2 amplitude**2 E[h(w . u) h(w . u')]``, with ``h(a) = max(a, 0)**order`` the activation of a unit and ``w`` its
    standard normal weights; the variance is ``amplitude**2 |u|**(2 order)``, three times that at order 2. Functions are
    rough (order 0, as Matern12) or ``order`` times differentiable. Where inputs coincide derivatives in them are
    finite: at order 0, where the kernel has a cusp, they are set to zero. Costs O(n n2 d) memory.

    Source: Cho & Saul (2009), Kernel methods for deep learning, eqs 3-7.

    :param order: 0, 1 or 2; static.
    :param amplitude: standard deviation, units of ``f`` per unit of ``u`` to the power ``order``.
    :param weight_scale: standard deviation of the weights of a unit, per unit of ``x``; scalar, or (d,) for one per
        input.
    :param bias: standard deviation of the bias of a unit; positive, so that ``u`` has a direction at the origin.

    >>> round(float(ArcCosine(order=1)(np.array([[2.0]]))[0, 0]), 6)
    5.0
    """

    order: int = static()
    amplitude: ArrayLike = 1.0
    weight_scale: ArrayLike = 1.0
    bias: ArrayLike = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive("amplitude", self.amplitude, "ArcCosine")
        if np.ndim(self.amplitude):
            raise ValueError(f"ArcCosine: `amplitude` must be a scalar; got shape {np.shape(self.amplitude)}.")
        checks.positive("bias", self.bias, "ArcCosine")
        if isinstance(self.order, (bool, float)) or self.order not in (0, 1, 2):
            raise ValueError(f"ArcCosine: `order` must be 0, 1 or 2, from rough to smooth; got {self.order!r}.")

    @property
    def differentiable(self) -> bool:  # type: ignore[override]
        """Whether functions have derivatives: those of order 0 are steps."""
        return self.order > 0

    def __call__(self, X: ArrayLike, X2: ArrayLike | None = None) -> Array:
        U, U2 = self._scaled_pair(X, X2)
        (length, direction), (length2, direction2) = _polar(U), _polar(U2)
        # the chords to u' and -u': angles near 0 or pi keep digits that their cosine loses
        near = jnp.sum((direction[:, None, :] - direction2[None, :, :]) ** 2, axis=-1)
        far = jnp.sum((direction[:, None, :] + direction2[None, :, :]) ** 2, axis=-1)
        scale = jnp.asarray(self.amplitude, U.dtype) ** 2 / math.pi * (length * length2.T) ** self.order
        return scale * _arc_cosine(self.order, near, far)

    def diag(self, X: ArrayLike) -> Array:
        norms = self._squared_norms(X)
        return (1, 1, 3)[self.order] * jnp.asarray(self.amplitude, norms.dtype) ** 2 * norms**self.order


def _polar(U: Array) -> tuple[Array, Array]:
    """The length (n, 1) and the direction (n, d + 1) of each row."""
    length = jnp.sqrt(jnp.sum(U**2, axis=1, keepdims=True))
    return length, U / length


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _arc_cosine(order: int, near: Array, far: Array) -> Array:
    """``J`` of the given order at squared chords ``near`` and ``far = 4 - near``; differentiable in ``near`` at zero.

    The derivative of order 1 is ``-J / 2`` of order 0, and that of order 2 ``-2 J`` of order 1; that of order 0
    diverges at angles 0 and pi, where it is set to zero, as its finite product with the derivative of the chord.
    """
    rest = math.pi - 2 * jnp.arctan2(jnp.sqrt(near), jnp.sqrt(far))
    sine, cosine = jnp.sqrt(near * far) / 2, (far - near) / 4
    return (rest, sine + rest * cosine, 3 * sine * cosine + rest * (1 + 2 * cosine**2))[order]


@_arc_cosine.defjvp
def _arc_cosine_jvp(order: int, primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (near, far), (tangent, _) = primals, tangents  # far follows from near
    if order == 0:
        product = near * far
        slope = jnp.where(product > 0, -1 / jnp.sqrt(jnp.where(product > 0, product, 1.0)), 0.0)
    else:
        slope = -(0.5, 2.0)[order - 1] * _arc_cosine(order - 1, near, far)
    return _arc_cosine(order, near, far), slope * tangent
