"""Covariance functions: what each offers, and their sums and products."""

from __future__ import annotations

import abc
import functools
import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike

from .._internal.pytree import pytree_dataclass
from .scale_mixture import MixtureSpectrum, log_mixture
from .spectra import Spectral, checked_variates, dtype_of, frequency_array, with_spectrum


class Kernel(abc.ABC):
    """A covariance function; ``k1 + k2`` and ``k1 * k2`` combine kernels.

    Subclasses are pytree dataclasses (:func:`~ppl_sgp.pytree_dataclass`) whose fields are hyperparameters. They
    implement :meth:`__call__` and :meth:`diag`; those with a spectral density derive from
    :class:`~ppl_sgp.Spectral` as well.

    >>> from ppl_sgp.kernels import Matern32, SquaredExponential
    >>> k = SquaredExponential(1.0, amplitude=2.0) + Matern32(3.0)
    >>> k.variance
    5.0
    """

    #: Whether the kernel has a spectral density: see :class:`~ppl_sgp.Spectral`.
    has_spectrum: bool = False
    #: Whether its spectrum is lines, so that products with kernels that have a density have one: copies of it there.
    has_lines: bool = False
    #: Whether the kernel is the product over inputs of :meth:`along_inputs`, and not only related to it.
    separable: bool = False
    #: Whether functions have derivatives (in mean square) in all inputs.
    differentiable: bool = True

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
    def terms(self) -> tuple[Kernel, ...]:
        """The kernels of which it is a sum; itself if it is none."""
        return (self,)

    @property
    def factors(self) -> tuple[Kernel, ...]:
        """The kernels of which it is a product; itself if it is none."""
        return (self,)

    def along_inputs(self, input_dim: int) -> tuple[Kernel, ...] | None:
        """Kernels ``k₁ … k_d`` of one input each whose product is the kernel, or its separable relative.

        :param input_dim: the number of inputs d.
        :return: the kernels, the amplitude on the first; ``None`` if the kernel has no such relative.
        """
        return None

    def __add__(self, other: Kernel) -> Kernel:
        return Sum((self, self._operand("add", other)))

    def __mul__(self, other: Kernel) -> Kernel:
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


@dataclass(frozen=True, eq=False, repr=False)
class Composite(Spectral, Kernel):
    """Kernels combined by one operation; nested composites of the same class are flattened.

    There is a spectral density if all of them have one.
    """

    kernels: tuple[Kernel, ...]

    _combine: ClassVar[Any]  # of two results

    def __post_init__(self) -> None:
        owner = type(self)
        flat: list[Kernel] = []
        for kernel in self.kernels:
            if not isinstance(kernel, Kernel):
                raise TypeError(f"{owner.__name__}: `kernels` must be kernels; got {type(kernel).__name__}.")
            flat += kernel.kernels if isinstance(kernel, owner) else [kernel]
        if not flat:
            raise ValueError(f"{owner.__name__}: `kernels` must hold at least one kernel; got none.")
        object.__setattr__(self, "kernels", tuple(flat))

    @property
    def has_spectrum(self) -> bool:  # type: ignore[override]
        """Whether all of the kernels have a spectral density."""
        return all(kernel.has_spectrum for kernel in self.kernels)

    @property
    def differentiable(self) -> bool:  # type: ignore[override]
        """Whether functions of all of the kernels have derivatives."""
        return all(kernel.differentiable for kernel in self.kernels)

    @property
    def _spectral(self) -> tuple[Any, ...]:
        """The kernels, which must have spectral densities."""
        return with_spectrum(self, type(self).__name__).kernels

    def __call__(self, X: ArrayLike, X2: ArrayLike | None = None) -> Array:
        return functools.reduce(self._combine, [kernel(X, X2) for kernel in self.kernels])

    def diag(self, X: ArrayLike) -> Array:
        return functools.reduce(self._combine, [kernel.diag(X) for kernel in self.kernels])

    @property
    def variance(self) -> ArrayLike:
        kernels: tuple[Any, ...] = self.kernels
        return functools.reduce(self._combine, [kernel.variance for kernel in kernels])


@pytree_dataclass
class Sum(Composite):
    """The sum of kernels: independent functions added up. Written ``k1 + k2``.

    :param kernels: the terms.

    >>> from ppl_sgp.kernels import Matern12, SquaredExponential
    >>> k = SquaredExponential(1.0) + Matern12(2.0, amplitude=3.0)
    >>> [variance for variance, _ in k.spectral_components()]
    [1.0, 9.0]
    """

    _combine = staticmethod(operator.add)

    @property
    def terms(self) -> tuple[Kernel, ...]:
        """The terms."""
        return self.kernels

    def log_spectral_density(self, frequencies: ArrayLike) -> Array:
        frequencies = frequency_array(self, frequencies)
        return logsumexp(jnp.stack([kernel.log_spectral_density(frequencies) for kernel in self._spectral]), axis=0)

    def sample_frequencies(self, key: Array, shape: Sequence[int]) -> Array:
        shape, dtype, kernels = tuple(shape), dtype_of(self), self._spectral
        key, *keys = jax.random.split(key, len(kernels) + 1)
        log_variances = jnp.log(jnp.stack([jnp.asarray(kernel.variance, dtype) for kernel in kernels]))
        choice = jnp.broadcast_to(jax.random.categorical(key, log_variances, shape=shape[:-1])[..., None], shape)
        draws = [kernel.sample_frequencies(k, shape) for kernel, k in zip(kernels, keys, strict=True)]
        return jnp.take_along_axis(jnp.stack(draws).astype(dtype), choice[None], axis=0)[0]

    def spectral_components(self) -> tuple[tuple[ArrayLike, Kernel], ...]:
        return tuple(part for kernel in self._spectral for part in kernel.spectral_components())


@pytree_dataclass
class Product(Composite):
    """The product of kernels, all on the same inputs. Written ``k1 * k2``.

    The spectral density is a closed form for squared exponentials; one Matern or rational-quadratic factor makes it
    a quadrature of 128 nodes per frequency, two of 128**2. More of them, or two rational quadratics, are refused.
    Sums among the factors are multiplied out. Times one :class:`~ppl_sgp.Periodic` kernel, functions repeat but for a
    while, the other factors' lengthscale: their spectral density is copied to multiples of 1/period, all free.

    :param kernels: the factors.

    >>> from ppl_sgp.kernels import Matern32, SquaredExponential
    >>> k = SquaredExponential(2.0, amplitude=3.0) * Matern32(1.0)
    >>> k.variance, k.spectral_shape
    (9.0, (2, 1))
    """

    _combine = staticmethod(operator.mul)

    @property
    def has_spectrum(self) -> bool:  # type: ignore[override]
        """Whether all of the kernels have a spectral density, but for one of lines beside others."""
        others = [kernel for kernel in self.kernels if not kernel.has_spectrum]
        return not others or (len(others) == 1 < len(self.kernels) and others[0].has_lines)

    @property
    def factors(self) -> tuple[Kernel, ...]:
        """The factors."""
        return self.kernels

    @property
    def separable(self) -> bool:  # type: ignore[override]
        """Whether all factors are products over inputs."""
        return all(kernel.separable for kernel in self.kernels)

    def along_inputs(self, input_dim: int) -> tuple[Kernel, ...] | None:
        """The products of the kernels of one input that the factors have, if they all have them."""
        parts = [kernel.along_inputs(input_dim) for kernel in self.kernels]
        return tuple(map(Product, zip(*parts, strict=True))) if all(parts) else None  # type: ignore[arg-type]

    def log_spectral_density(self, frequencies: ArrayLike) -> Array:
        parts = [kernel for _, kernel in self.spectral_components()]
        if len(parts) > 1:
            return Sum(tuple(parts)).log_spectral_density(frequencies)
        for index, kernel in enumerate(self._spectral):
            if kernel.has_lines:
                others = self._spectral[:index] + self._spectral[index + 1 :]
                rest = others[0] if len(others) == 1 else Product(others)
                return kernel.copied_to_lines(rest.log_spectral_density, frequency_array(self, frequencies))
        factors = tuple(kernel for kernel in self.kernels if isinstance(kernel, MixtureSpectrum))
        mixed = [kernel._power > 0 for kernel in factors if kernel._power]
        if len(factors) < len(self.kernels) or len(mixed) > 2 or sum(mixed) > 1:
            raise ValueError(
                f"Product: no spectral density for {' * '.join(type(kernel).__name__ for kernel in self.kernels)}. "
                "Supported are squared exponentials times at most two Matern kernels, of which one may be a rational "
                "quadratic. Add kernels instead, or use a basis for each input, or InterpolationBasis, which takes any "
                "kernel; sampling frequencies is not limited."
            )
        return log_mixture(factors, frequency_array(self, frequencies))

    def sample_frequencies(self, key: Array, shape: Sequence[int]) -> Array:
        keys = jax.random.split(key, len(self.kernels))
        draws = [kernel.sample_frequencies(k, shape) for kernel, k in zip(self._spectral, keys, strict=True)]
        return functools.reduce(operator.add, draws)

    def spectral_components(self) -> tuple[tuple[ArrayLike, Kernel], ...]:
        parts = [[kernel for _, kernel in factor.spectral_components()] for factor in self._spectral]
        if all(len(part) == 1 for part in parts):
            return ((self.variance, self),)
        products = [Product(factors) for factors in itertools.product(*parts)]
        return tuple((product.variance, product) for product in products)

    @property
    def spectral_shape(self) -> tuple[int, int]:
        """Blocks of normals and number of uniforms that make one frequency."""
        if any(kernel.terms[0] is not kernel for kernel in self.kernels):
            raise ValueError("Product: a factor is a sum. Take each kernel of `spectral_components()` instead.")
        blocks, uniforms = zip(*[factor.spectral_shape for factor in self._spectral], strict=True)
        return sum(blocks), sum(uniforms)

    def frequencies_from(self, normals: ArrayLike, uniforms: ArrayLike) -> np.ndarray:
        """The sum of the factors' frequencies; the variates are shared out in the order of the factors.

        :param normals: standard normal variates (N, blocks, d), with ``blocks, e = spectral_shape``.
        :param uniforms: uniform variates (N, e) in [0, 1].
        :return: frequencies (N, d), in cycles per unit of ``x``.
        """
        normals, uniforms = checked_variates(self, normals, uniforms)
        factors = self._spectral
        ends = np.cumsum([factor.spectral_shape for factor in factors], axis=0)[:-1]
        shares = zip(np.split(normals, ends[:, 0], axis=1), np.split(uniforms, ends[:, 1], axis=1), strict=True)
        parts = [factor.frequencies_from(*share) for factor, share in zip(factors, shares, strict=True)]
        return np.sum(parts, axis=0)
