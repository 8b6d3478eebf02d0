"""Monomials as features: Bayesian polynomial regression."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from ..kernels import Kernel, Polynomial
from ..priors import DiagonalPrior
from .basis import Basis
from .inputs import bounding_box, checked_kernel, one_per_input
from .linear import log_input_scales


@pytree_dataclass
class PolynomialBasis(Basis):
    """Monomials of the standardised inputs ``z = (x − centre)/scale``: all up to a total degree, or of single inputs.

    In the order of their degree: for two inputs and degree 2 ``1, z₁, z₂, z₁², z₁z₂, z₂²``. There are
    ``(d + degree)!/(d! degree!)`` of them with interactions, ``1 + d·degree`` without. Features cost O(n m).
    Standardise the inputs to [−1, 1] (:meth:`from_data`), or high powers span many orders of magnitude.

    :param input_dim: the number of input columns d.
    :param degree: the largest total degree, at least 1.
    :param interactions: whether products of different inputs are among the features.
    :param centre: subtracted from inputs, shape (d,), units of x; ``None`` for zero.
    :param scale: what inputs are then divided by, shape (d,), units of x; ``None`` for one.
    :raises ValueError: for numbers that are not positive integers, or a centre or scale not of shape (d,).

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> basis = sgp.PolynomialBasis(input_dim=2, degree=2)
        >>> basis.host_features([[3.0, 10.0]]).tolist()
        [[1.0, 3.0, 10.0, 9.0, 30.0, 100.0]]
    """

    centre: Any
    scale: Any
    dim: int = static()
    degree: int = static()
    interactions: bool = static()

    def __init__(
        self, input_dim: int, degree: int, interactions: bool = True, *, centre: Any = None, scale: Any = None
    ) -> None:
        owner = "PolynomialBasis"
        object.__setattr__(self, "dim", checks.whole_number("input_dim", input_dim, 1, owner))
        object.__setattr__(self, "degree", checks.whole_number("degree", degree, 1, owner))
        object.__setattr__(self, "interactions", bool(interactions))
        centre = np.zeros(self.dim) if centre is None else one_per_input("centre", centre, self.dim, owner)
        scale = np.ones(self.dim) if scale is None else one_per_input("scale", scale, self.dim, owner)
        checks.positive("scale", scale, owner)
        object.__setattr__(self, "centre", centre)
        object.__setattr__(self, "scale", scale)

    @classmethod
    def from_data(cls, X: Any, degree: int, interactions: bool = True) -> PolynomialBasis:
        """A basis for inputs brought to [−1, 1]; the centre and scale are frozen.

        :param X: training inputs, shape (n, d); only the range of each column is used.
        :param degree: the largest total degree, at least 1.
        :param interactions: whether products of different inputs are among the features.
        :raises ValueError: if ``X`` is not a finite (n, d) array, or a column is constant.

        .. doctest::

            >>> import numpy as np, ppl_sgp as sgp
            >>> basis = sgp.PolynomialBasis.from_data(np.array([[1990.0], [2020.0]]), degree=3)
            >>> basis.host_features([[2020.0], [2005.0]]).tolist()
            [[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]]
        """
        centre, half_range = bounding_box(X, "PolynomialBasis.from_data")
        return cls(len(centre), degree, interactions, centre=centre, scale=half_range)

    @property
    def num_features(self) -> int:
        """The number of features m."""
        return sum(map(len, _monomials(self.dim, self.degree, self.interactions)))

    @property
    def input_dim(self) -> int:
        """The number of input columns d."""
        return self.dim

    @property
    def powers(self) -> np.ndarray:
        """The power of each input in each monomial, shape (m, d), integers."""
        monomials = itertools.chain(*_monomials(self.dim, self.degree, self.interactions))
        return np.array([np.bincount(factors, minlength=self.dim) for factors in monomials])

    @property
    def constant_features(self) -> np.ndarray:
        """Whether each feature is the constant, shape (m,), Boolean: the first is."""
        return np.arange(self.num_features) == 0

    def feature_names(self, inputs: Sequence[str]) -> list[str]:
        """Those of the monomials of standardised inputs: ``constant``, ``z0``, ``z1``, ``z0^2``, ``z0 z1``, …"""
        factors = [
            [f"z{j}" if power == 1 else f"z{j}^{power}" for j, power in enumerate(powers) if power]
            for powers in self.powers.tolist()
        ]
        return [" ".join(names) or "constant" for names in factors]

    def features(self, X: Any, xp: ModuleType) -> Any:
        Z = (X - xp.asarray(self.centre, dtype=X.dtype)[None, :]) / xp.asarray(self.scale, dtype=X.dtype)[None, :]
        columns = [xp.ones_like(X[:, :1])]
        for lower, upper in itertools.pairwise(_monomials(self.dim, self.degree, self.interactions)):
            place = {factors: i for i, factors in enumerate(lower)}
            parents = np.array([place[factors[:-1]] for factors in upper])
            columns.append(columns[-1][:, parents] * Z[:, np.array([factors[-1] for factors in upper])])
        return xp.concatenate(columns, axis=1)

    def weight_prior(self, kernel: Kernel) -> DiagonalPrior:
        """Prior variances for which f has the kernel exactly, taken of the standardised inputs z. O(m d).

        The multinomial coefficients of the kernel: see :class:`~ppl_sgp.Polynomial`. A bias of zero leaves the
        monomials below the full degree without variance.

        :param kernel: a :class:`~ppl_sgp.Polynomial` kernel of the basis's degree; weight_scale and bias may be traced.
        :return: a :class:`~ppl_sgp.DiagonalPrior` of shape (m,).
        :raises ValueError: for another kernel or degree, or a basis of several inputs without interactions.
        """
        remedy = "For a prior of your own pass `DiagonalPrior(scale)`, m standard deviations."
        polynomial = checked_kernel(kernel, Polynomial, "PolynomialBasis", remedy)
        if polynomial.degree != self.degree:
            raise ValueError(
                f"PolynomialBasis: the kernel has degree {polynomial.degree}, the basis {self.degree}. Use the same."
            )
        powers = self.powers
        if len(powers) < math.comb(self.dim + self.degree, self.degree):
            raise ValueError(
                "PolynomialBasis: a Polynomial kernel has products of inputs, which a basis with `interactions=False` "
                "lacks. Use `interactions=True`, or stack a basis for each input."
            )
        powers = np.concatenate([self.degree - powers.sum(axis=1, keepdims=True), powers], axis=1)  # of the bias first
        log_factorial = np.array([math.lgamma(k + 1) for k in range(self.degree + 1)])
        log_coefficients = log_factorial[-1] - log_factorial[powers].sum(axis=1)
        log_scales = log_input_scales(polynomial, self.dim)
        dtype = log_scales.dtype
        log_scale = jnp.sum(jnp.asarray(powers, dtype) * log_scales[None, :], axis=1)
        return DiagonalPrior.from_log_scale(jnp.asarray(log_coefficients / 2, dtype) + log_scale)


@functools.lru_cache(maxsize=64)
def _monomials(input_dim: int, degree: int, interactions: bool) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """The monomials of each degree from 0, each as the sorted tuple of the inputs that it multiplies."""
    return tuple(
        tuple(
            factors
            for factors in itertools.combinations_with_replacement(range(input_dim), power)
            if interactions or len(set(factors)) <= 1
        )
        for power in range(degree + 1)
    )
