"""Derivatives and integrals of the functions of a basis: linear in the same weights, so that their rows join values.

References
    1. Rasmussen, C. E. & Williams, C. K. I. (2006), section 9.4.
    2. O'Hagan, A. (1991), Bayes-Hermite quadrature: integrals of a Gaussian process.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.batching import full_precision
from .._internal.pytree import pytree_dataclass, static
from ..tables.recipe import Recipe
from .basis import Basis
from .wrapped import WrappedBasis

#: Difference of an integral and one by half as many nodes, in units of its interval times the feature's largest value,
#: above which it is refused; of smooth features the error is near its square.
ROUGH = 1e-4


class Functional(WrappedBasis):
    """Features of a linear functional of f: of the weights of another basis, its field ``basis``."""

    basis: Basis
    column: int

    def _check(self) -> None:
        owner = type(self).__name__
        if not isinstance(self.basis, Basis):
            raise ValueError(f"{owner}: `basis` must be a Basis; got {type(self.basis).__name__}.")
        checks.whole_number("column", self.column, 0, owner)
        if self.column >= self.basis.input_dim:
            raise ValueError(
                f"{owner}: `column` must be one of the {self.basis.input_dim} inputs of the "
                f"{type(self.basis).__name__}, from 0; got {self.column}."
            )
        # What lies between two codes of a category belongs to one of them.
        probes = np.zeros((2, self.basis.input_dim))
        probes[1, self.column] = 1e-3
        if checks.is_concrete(self.basis) and np.ptp(self.basis.admissible(probes)[:, self.column]) == 0:
            raise ValueError(f"{owner}: input {self.column} of the basis has codes of levels, with nothing between.")

    @property
    def weights_of(self) -> Basis:
        """The basis whose weights these features are of."""
        return self.basis.weights_of

    @property
    def num_features(self) -> int:
        """The number of features m: those of the basis."""
        return self.basis.num_features

    @property
    def recipe(self) -> Recipe | None:
        """``None``: rows are arrays of the basis's own inputs."""
        return None

    @property
    def has_float32_features(self) -> bool:
        """False."""
        return False

    def weight_prior(self, kernel: Any) -> Any:
        """The prior of the basis: its weights are the same.

        :param kernel: the kernel of f.
        """
        return self.basis.weight_prior(kernel)

    def name_of(self, feature: int) -> str:
        """The feature of the basis, in messages."""
        return f"{type(self).__name__} of {self.basis.name_of(feature)}"


@pytree_dataclass
class DerivativeBasis(Functional):
    """Features ``∂φ/∂x_j`` of another basis: rows of slopes of its f, as a laboratory or a sensor of velocity has them.

    The weights are those of the basis, so :func:`~ppl_sgp.sufficient_statistics` of these rows are statistics *of the
    basis*, and add to those of values, ``sufficient_statistics(basis, X, y) + sufficient_statistics(DerivativeBasis(
    basis, 0), X_slopes, slopes)``: exact, whatever the kernel. Their noise is in other units: give row weights, or a
    noise scale each by :meth:`GroupedStatistics.of <ppl_sgp.GroupedStatistics.of>` and
    :func:`~ppl_sgp.observe_groups`. Default hyper-priors of ready models take the scale of all y together; write
    priors of your own where the units of slopes are others. Derivatives are automatic, at two to three times the cost
    of the features; applied twice it has second ones.

    :param basis: the basis φ, of d inputs, with features that JAX can differentiate.
    :param column: the input j, from 0. With a recipe an input is a column that it makes, in the units it gives it.
    :raises ValueError: for a column that there is not, or of codes; when evaluated, for a function of NumPy.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> basis = sgp.PolynomialBasis(1, 2)
        >>> slopes = sgp.DerivativeBasis(basis, 0)
        >>> basis.host_features([[3.0]]).tolist(), slopes.host_features([[3.0]]).tolist()
        ([[1.0, 3.0, 9.0]], [[0.0, 1.0, 6.0]])
        >>> stats = sgp.sufficient_statistics(basis, [[0.0]], np.ones(1))
        >>> (stats + sgp.sufficient_statistics(slopes, [[0.0], [1.0]], np.ones(2))).num_rows
        3
    """

    basis: Basis
    column: int = static()

    def __post_init__(self) -> None:
        self._check()

    @property
    def input_dim(self) -> int:
        """The number of inputs d."""
        return self.basis.input_dim

    def check_domain(self, X: Any) -> None:
        self.basis.check_domain(X)

    def features(self, X: Any, xp: ModuleType) -> Any:
        direction = np.zeros(X.shape[1])
        direction[self.column] = 1
        return directional(self.basis, X, np.broadcast_to(direction, X.shape), xp)

    def not_finite_at(self, x: np.ndarray) -> str | None:
        return self.basis.not_finite_at(x)


@pytree_dataclass
class IntegralBasis(Functional):
    """Features ``∫ φ dx_j`` of another basis, between two ends: rows of totals or means of its f over intervals.

    Inputs have a column more than those of the basis: column j is the lower end, the last one the upper. By
    Gauss-Legendre quadrature, at ``num_nodes`` times the cost of the features and half as much again, for a second
    look: on the host integrals that do not agree with those of half the nodes are refused. Statistics of such rows are
    statistics *of the basis*, as those of :class:`DerivativeBasis`, and add to those of values.

    :param basis: the basis φ, of d inputs.
    :param column: the input j, from 0, along which f is integrated.
    :param average: divide by the length of the interval, for rows that are means.
    :param num_nodes: of the quadrature, an even number.
    :raises ValueError: for a column that there is not, or of codes, or an odd ``num_nodes``; when evaluated, for
        intervals that are empty or, on the host, that hold too many turns of a feature for the nodes.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> totals = sgp.IntegralBasis(sgp.PolynomialBasis(1, 2), 0)
        >>> totals.host_features([[0.0, 3.0]]).round(9).tolist()
        [[3.0, 4.5, 9.0]]
    """

    basis: Basis
    column: int = static()
    average: bool = static(default=False)
    num_nodes: int = static(default=32)

    def __post_init__(self) -> None:
        self._check()
        if checks.whole_number("num_nodes", self.num_nodes, 2, "IntegralBasis") % 2:
            raise ValueError(f"IntegralBasis: `num_nodes` must be even; got {self.num_nodes}.")

    @property
    def input_dim(self) -> int:
        """The number of inputs of the basis, and one: d + 1."""
        return self.basis.input_dim + 1

    def check_domain(self, X: Any) -> None:
        if checks.is_concrete(X):
            bad = ~(np.asarray(X)[:, -1] > np.asarray(X)[:, self.column])
            if bad.any():
                row = int(np.argmax(bad))
                raise ValueError(
                    f"IntegralBasis: the upper end, the last column of `X`, must be above the lower end in column "
                    f"{self.column}; row {row} has {X[row, self.column]} and {X[row, -1]}."
                )
        self.basis.check_domain(X[:, :-1])
        self.basis.check_domain(self._at(X, 1.0, np if isinstance(X, np.ndarray) else jnp))

    def features(self, X: Any, xp: ModuleType) -> Any:
        half = (X[:, -1:] - X[:, self.column][:, None]) / 2
        unit = xp.ones_like(half) / 2 if self.average else half
        if xp is jnp:
            nodes = tuple(jnp.asarray(each, X.dtype) for each in np.polynomial.legendre.leggauss(self.num_nodes))

            def add(total: jax.Array, node: Any) -> tuple[jax.Array, None]:
                return total + node[1] * self.basis.features(self._at(X, node[0], jnp), jnp), None

            start = jnp.zeros((X.shape[0], self.num_features), X.dtype)
            return unit * jax.lax.scan(add, start, nodes)[0]
        (total, largest), (rough, _) = (self._sums(X, count) for count in (self.num_nodes, self.num_nodes // 2))
        off = np.abs(total - rough) > ROUGH * 2 * largest
        if off.any():
            row, feature = np.argwhere(off)[0]
            raise ValueError(
                f"IntegralBasis: {self.num_nodes} nodes are too few for {self.basis.name_of(int(feature))} between "
                f"{X[row, self.column]} and {X[row, -1]} (row {row}): with half of them it has {rough[row, feature]} "
                f"instead of {total[row, feature]}, in units of half the interval. Raise `num_nodes`."
            )
        return unit * total

    def _sums(self, X: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Integrals in units of half of the interval, and the largest size of each feature at the nodes."""
        total, largest = np.zeros((2, len(X), self.num_features))
        for node, weight in zip(*np.polynomial.legendre.leggauss(count), strict=True):
            Phi = self.basis.features(self._at(X, node, np), np)
            total += weight * Phi
            np.maximum(largest, np.abs(Phi), out=largest)
        return total, largest

    def _at(self, X: Any, node: Any, xp: ModuleType) -> Any:
        """Inputs of the basis at a point of each interval, from −1 to 1."""
        lower, upper = X[:, self.column], X[:, -1]
        point = ((1 - node) * lower + (1 + node) * upper) / 2
        columns = [X[:, j] if j != self.column else point for j in range(self.basis.input_dim)]
        return xp.stack(columns, axis=1)


def directional(basis: Basis, X: Any, V: Any, xp: ModuleType = np) -> Any:
    """Derivatives of features (n, m) at inputs (n, d), each row along its own direction (n, d)."""
    # A row of features depends on its own inputs alone: one tangent has the directions of all rows.
    if xp is not np:
        return jax.jvp(lambda X: basis.features(X, jnp), (X,), (jnp.asarray(V, X.dtype),))[1]
    try:
        with jax.enable_x64(True), jax.ensure_compile_time_eval(), full_precision():
            return np.asarray(directional(basis, jnp.asarray(X), jnp.asarray(V), jnp), dtype=np.float64)
    except jax.errors.TracerArrayConversionError as error:
        raise ValueError(
            f"{type(basis).__name__}: derivatives of features need a function that JAX can differentiate; this one "
            "turns its inputs into arrays of NumPy. Write it with `jax.numpy`."
        ) from error
