"""Statistics kept by group of rows: of instruments, seasons, or the outputs of rows that lack some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from ..bases.basis import Basis
from .compressed import Compressed
from .from_data import sufficient_statistics
from .groups import stack_statistics
from .moments import Moments
from .rows import RowArrays
from .same_rows import require_same_rows
from .statistics import KINDS, SufficientStatistics, with_compressed
from .storage import read, write


@pytree_dataclass
class GroupedStatistics:
    """Sufficient statistics of G groups of rows, seen through one basis, for :func:`~ppl_sgp.observe_groups`.

    Made by :func:`~ppl_sgp.grouped_statistics` of labelled rows, by :func:`~ppl_sgp.output_statistics` of several
    outputs, or by :meth:`of` from statistics a group, which may come from any source of rows.

    :param basis: the basis that all share.
    :param moments: their sums, with a leading axis of groups.
    :param compressed: their compressed forms, with as many rows of R each.
    :param names: of the groups.
    :param same_rows: whether all have one Gram matrix, as outputs of the same rows have: all outputs are then solved
        by one eigendecomposition.
    """

    basis: Basis
    moments: Moments
    compressed: Compressed
    names: tuple[str, ...] = static()
    same_rows: bool = static()

    @classmethod
    def of(cls, statistics: Mapping[Any, SufficientStatistics]) -> GroupedStatistics:
        """From statistics by group, each of one output.

        :param statistics: by the name of the group; all with the same basis.
        :raises ValueError: for none, several outputs, bases that differ, rotated statistics, or likelihoods.
        """
        if not isinstance(statistics, Mapping) or not statistics:
            raise ValueError(
                "GroupedStatistics.of: pass statistics by the name of their group, as `{'old': stats, 'new': others}`."
            )
        batch = stack_statistics(statistics.values())
        if np.ndim(batch.moments.sum_squares) != 1:
            raise ValueError(
                "GroupedStatistics.of: statistics of a group must be of one output, y of shape (n,). Of y with "
                "several columns `sgp.output_statistics(basis, X, y)` makes them."
            )
        if not batch.has_noise or batch.moments.gram.ndim != 3:
            raise ValueError(
                "GroupedStatistics.of: needs statistics of Gaussian noise as `sgp.sufficient_statistics` makes them; "
                "rotated ones and compressed likelihoods have no place here."
            )
        names = tuple(map(str, statistics))
        if len(set(names)) < len(names):
            raise ValueError(f"GroupedStatistics.of: names of groups must differ as text; got {names}.")
        gram = batch.moments.gram
        first = next(iter(statistics.values()))
        return cls(first.basis, batch.moments, batch.compressed, names, bool((gram == gram[:1]).all()))

    def group(self, name: Any) -> SufficientStatistics:
        """The statistics of one group."""
        if str(name) not in self.names:
            raise ValueError(f"There is no group {name!r}; there are {list(self.names)}.")
        index = self.names.index(str(name))
        moments, compressed = jax.tree.map(lambda leaf: leaf[index], (self.moments, self.compressed))
        return with_compressed(self.basis, moments, compressed)

    @property
    def num_groups(self) -> int:
        """The number of groups G."""
        return len(self.names)

    @property
    def num_outputs(self) -> int:
        """Outputs of predictions: one a group."""
        return len(self.names)

    @property
    def num_weights(self) -> int:
        """The number of features m."""
        return self.moments.gram.shape[-1]

    @property
    def num_rows(self) -> Any:
        """Rows of each group, shape (G,)."""
        return self.moments.num_rows

    @property
    def output_scales(self) -> Any:
        """Root mean square of y about zero in each group, shape (G,)."""
        return (self.moments.sum_squares / self.moments.num_rows) ** 0.5

    @property
    def output_scale(self) -> Any:
        """Root mean square of y about zero over all groups."""
        return (self.moments.sum_squares.sum() / self.moments.num_rows.sum()) ** 0.5

    @property
    def input_scale(self) -> Any:
        """Standard deviation of each input over the rows of all groups, shape (d,); zero for one that never varies."""
        n, means = self.moments.num_rows, self.moments.x_mean
        deviations = means - (n @ means / n.sum())[None, :]
        lower, upper = self.input_range
        return ((self.moments.x_square.sum(axis=0) + n @ deviations**2) / n.sum()) ** 0.5 * (upper > lower)

    @property
    def has_noise(self) -> bool:
        """Whether models of these statistics have a noise scale."""
        return True

    @property
    def observed(self) -> Any:
        """The compressed data of all groups in a row: the value of the site, shape (G (k + 1),)."""
        return self.compressed.projection.reshape(-1)

    @property
    def input_range(self) -> tuple[Any, Any]:
        """Least and largest value of each input over all groups, shape (d,) each."""
        return self.moments.x_min.min(axis=0), self.moments.x_max.max(axis=0)

    def save(self, path: Any) -> None:
        """Write to one file, as :meth:`SufficientStatistics.save`."""
        write(path, self.parts)

    @property
    def parts(self) -> dict[str, Any]:
        """What files hold of it, by name."""
        return {"groups": self}

    @classmethod
    def load(cls, path: Any) -> GroupedStatistics:
        """Read what :meth:`save` wrote.

        :raises ValueError: if the file is damaged or foreign.
        """
        return cls.of_parts(read(path), path)

    @classmethod
    def of_parts(cls, parts: dict[str, Any], path: Any) -> GroupedStatistics:
        """From the :attr:`parts` of a file.

        :raises ValueError: if they are no such statistics.
        """
        groups = parts.get("groups")
        if not isinstance(groups, cls):
            raise ValueError(f"{path} holds {sorted(parts)}, not grouped statistics as their `save` writes them.")
        return groups

    def columns(self, y: Any, groups: Any) -> np.ndarray:
        """Outputs of labelled rows with a column a group, shape (n, G), NaN but in the column of the row's own group.

        So leave-one-out densities take them.

        :param y: outputs, shape (n,).
        :param groups: the group of each row, shape (n,).
        """
        y, groups = np.asarray(y, dtype=np.float64), np.asarray(groups).astype(str)
        unknown = sorted(set(groups) - set(self.names))
        if unknown or y.shape != groups.shape or y.ndim != 1:
            raise ValueError(
                f"columns: `y` and `groups` must have one shape (n,), with groups among {list(self.names)}; got shapes "
                f"{y.shape} and {groups.shape}" + (f" and groups {unknown}." if unknown else ".")
            )
        return np.where(groups[:, None] == np.array(self.names), y[:, None], np.nan)

    def require_same_rows(self, X: Any, y: Any, row_weights: Any, owner: str) -> RowArrays:
        """Refuse rows that are not those of the groups; inputs, outputs (n, G) with NaN and row weights, in float64."""
        X = checks.finite_inputs(X, self.basis.input_dim, owner).astype(np.float64, copy=False)
        y = _columns_of_outputs(y, len(X), owner)
        if y.shape[1] != self.num_groups:
            raise ValueError(f"{owner}: `y` must have a column a group, {list(self.names)}; got {y.shape}.")
        omega = None if row_weights is None else checks.row_precisions(row_weights, len(X), owner).astype(np.float64)
        for name, output in zip(self.names, y.T, strict=True):
            known = np.isfinite(output)
            weights = None if omega is None else omega[known]
            require_same_rows(self.group(name), X[known], output[known], weights, owner=f"{owner} (group {name!r})")
        return X, y, omega


KINDS["groups"] = GroupedStatistics


def grouped_statistics(basis: Basis, X: Any, y: Any, groups: Any, row_weights: Any = None) -> GroupedStatistics:
    """Statistics of rows by group, such as instrument or season. O(n m² + G m³), once.

    :param basis: the basis.
    :param X: inputs, shape (n, d).
    :param y: outputs, shape (n,).
    :param groups: the group of each row, shape (n,): text or whole numbers.
    :param row_weights: known relative noise precisions within a group, shape (n,).
    :raises ValueError: as :func:`~ppl_sgp.sufficient_statistics`.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 10)
        >>> stats = sgp.grouped_statistics(basis, X, np.cos(6 * X[:, 0]), np.repeat(["old", "new"], 15))
        >>> stats.names, stats.num_rows
        (('new', 'old'), array([15., 15.]))
    """
    X = checks.finite_inputs(X, basis.input_dim, "grouped_statistics")
    y = checks.host_numbers("y", y, "grouped_statistics")
    labels = np.asarray(groups)
    if labels.dtype.kind not in "UOSiub" or labels.shape != (len(X),) or y.shape != (len(X),):
        raise ValueError(
            f"grouped_statistics: `y` and `groups` must have shape ({len(X)},), groups being text or whole numbers; "
            f"got {y.shape} and {labels.shape} of {labels.dtype}."
        )
    labels = labels.astype(str)
    omega = None if row_weights is None else checks.row_precisions(row_weights, len(X), "grouped_statistics")

    def of(name: str) -> SufficientStatistics:
        rows = labels == name
        return sufficient_statistics(basis, X[rows], y[rows], row_weights=None if omega is None else omega[rows])

    return GroupedStatistics.of({name: of(name) for name in map(str, np.unique(labels))})


def output_statistics(
    basis: Basis, X: Any, y: Any, row_weights: Any = None, *, names: Sequence[Any] | None = None
) -> GroupedStatistics:
    """Statistics by output, from the rows where each is known. O(q n m² + q m³), once.

    Noise is independent between outputs given f, so that an output enters by its own known entries alone, whichever
    others are missing beside it.

    :param basis: the basis.
    :param X: inputs, shape (n, d).
    :param y: outputs, shape (n, q), NaN where one is missing.
    :param row_weights: known relative noise precisions of rows, shape (n,).
    :param names: of the outputs; default "0", "1", ….
    :raises ValueError: as :func:`~ppl_sgp.sufficient_statistics`, or for an output that is never known.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 10)
        >>> y = np.hstack([np.cos(6 * X), np.sin(6 * X)])
        >>> y[20:, 1] = np.nan
        >>> sgp.output_statistics(basis, X, y, names=["north", "east"]).num_rows
        array([30., 20.])
    """
    X = checks.finite_inputs(X, basis.input_dim, "output_statistics")
    y = _columns_of_outputs(y, len(X), "output_statistics")
    labels = [str(name) for name in (range(y.shape[1]) if names is None else names)]
    if len(labels) != y.shape[1]:
        raise ValueError(f"output_statistics: {len(labels)} names for {y.shape[1]} outputs; give one each.")
    omega = None if row_weights is None else checks.row_precisions(row_weights, len(X), "output_statistics")

    def of(name: str, output: np.ndarray) -> SufficientStatistics:
        known = np.isfinite(output)
        if not known.any():
            raise ValueError(f"output_statistics: output {name!r} is missing in all rows; leave its column out.")
        return sufficient_statistics(
            basis, X[known], output[known], row_weights=None if omega is None else omega[known]
        )

    return GroupedStatistics.of({name: of(name, output) for name, output in zip(labels, y.T, strict=True)})


def _columns_of_outputs(y: Any, num_rows: int, owner: str) -> np.ndarray:
    y = checks.host_numbers("y", y, owner).astype(np.float64)
    if y.ndim != 2 or len(y) != num_rows or np.isinf(y).any():
        raise ValueError(
            f"{owner}: `y` must have shape ({num_rows}, q), finite or NaN where missing; got {y.shape}"
            f"{' with infinite entries' if np.isinf(y).any() else ''}."
        )
    return y
