"""Data on a product grid, some of whose cells may be gaps: what grid sites observe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from .._internal import checks
from .._internal.pytree import pytree_dataclass, rebuild, static
from ..statistics.kept_rows import KeptOutputs
from . import axes as axis_checks
from .gaps import observed_cells, spread_over_cells
from .table import cells_of_table


@pytree_dataclass
class Grid(KeptOutputs):
    """Observations on a product grid of M cells, N observed and L = M − N gaps. A pytree: pass it to models.

    Cells are in row-major order, that of ``values.ravel()``. What a site observes is ``grid.values``, the observed
    cells alone, shape (N,), in that order.

    :param axes: the points of each axis: numbers (k,), dates (in days since the first), text (numbers 0, 1, …), or
        groups of columns (k, d), such as places. The order of points is kept; they need not be sorted.
    :param values: shape (m_1, …, m_d), in the order of the axes.
    :param gaps: which cells are not observed: ``"nan"`` declares that NaN means so; or a Boolean array of the shape of
        ``values``, ``True`` at gaps, where values are not read. Default none; masked arrays declare theirs.
    :param noise_weights: known relative noise precisions ω of the cells, shape of ``values``: cell i has noise variance
        ``σ²/ωᵢ``. Not read at gaps.
    :param features: fixed effects at all cells, shape of ``values`` + (q,): trends, altitudes, indicators.
    :param dims: names of the axes.
    :ivar shape: (m_1, …, m_d).
    :ivar num_cells: M; ``num_rows`` is N, ``num_gaps`` L.
    :raises ValueError: for shapes that do not fit, points that occur twice, NaN that was not declared a gap, no
        observed cell, or values that are not finite.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> values = [[1.0, np.nan, 2.0], [0.5, 1.5, 2.5]]
        >>> sgp.Grid([[1990, 1991], [1, 2, 3]], values, gaps="nan", dims=("year", "week"))
        Grid(year=2, week=3, observed=5, gaps=1)
    """

    axes: tuple[Any, ...]
    y: Any
    cells: Any
    #: Cells that a solver fills: the gaps, and whatever has more noise than the least, whose excess ``σ²/stiffness`` is
    #: taken for a part of the function: 0 at gaps. The least noise variance is ``σ²·base``.
    filled: Any
    stiffness: Any
    base: Any
    row_weights: Any
    features: Any
    dims: tuple[str, ...] = static()
    labels: tuple[tuple[str, ...] | None, ...] = static()
    regular: tuple[bool, ...] = static()

    def __init__(
        self,
        axes: Sequence[Any],
        values: Any,
        *,
        gaps: Any = None,
        noise_weights: Any = None,
        features: Any = None,
        dims: Sequence[str] | None = None,
    ) -> None:
        if isinstance(values, xr.DataArray):
            raise ValueError("Grid: a DataArray knows its axes: `sgp.Grid.from_xarray(array, gaps='nan')`.")
        checked = axis_checks.checked_axes(axes, "Grid")
        shape = tuple(len(axis.points) for axis in checked)
        y, cells = observed_cells(values, gaps, shape)
        weights = None if noise_weights is None else spread_over_cells("noise_weights", noise_weights, shape)[cells]
        if weights is not None:
            checks.row_precisions(weights, len(cells), "Grid")
        found = {
            "axes": tuple(axis.points for axis in checked),
            "y": y,
            "cells": cells,
            **_filled(cells, weights, math.prod(shape)),
            "row_weights": weights,
            "features": None if features is None else _checked_features(features, shape),
            "dims": axis_checks.checked_dims(dims, len(checked), "Grid"),
            "labels": tuple(axis.labels for axis in checked),
            "regular": tuple(axis.is_regular for axis in checked),
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_xarray(cls, array: xr.DataArray, *, gaps: Any = None, **options: Any) -> Grid:
        """The grid of a ``DataArray``, with its dims and coordinates, which results keep.

        Every dimension needs a coordinate of numbers, dates or text.

        :param array: the values.
        :param gaps: as :class:`Grid` has it, or a ``DataArray`` of the same dims, in any order.
        :param options: ``noise_weights`` and ``features`` of :class:`Grid`, arrays or DataArrays.

        >>> import numpy as np, xarray as xr, ppl_sgp as sgp
        >>> sgp.Grid.from_xarray(xr.DataArray(np.ones((2, 3)), {"x": [0.0, 1.0], "y": [0.0, 2.0, 3.0]}))
        Grid(x=2, y=3, observed=6, gaps=0)
        """
        if not isinstance(array, xr.DataArray):
            raise ValueError(f"Grid.from_xarray: `array` must be an xarray.DataArray; got {type(array).__name__}.")
        bare = [str(dim) for dim in array.dims if dim not in array.coords]
        if bare:
            raise ValueError(
                f"Grid.from_xarray: dimensions {bare} have no coordinates; `array.assign_coords(...)` first."
            )
        dims = array.dims
        aligned = {
            name: value.transpose(*dims, ...).values if isinstance(value, xr.DataArray) else value
            for name, value in {"gaps": gaps, **options}.items()
        }
        return cls([array[dim].values for dim in dims], array.values, dims=[str(d) for d in dims], **aligned)

    @classmethod
    def from_table(
        cls,
        table: Any,
        value: str,
        axes: Sequence[str | Sequence[str]],
        *,
        points: dict[str, Any] | None = None,
        gaps: Any = None,
    ) -> Grid:
        """The grid on which the rows of a table lie; cells without a row are gaps.

        :param table: a pandas table, or a dictionary of columns.
        :param value: name of the column with the values.
        :param axes: name of the column of each axis; for groups of columns, such as places, a list of names.
        :param points: points of some axes, by the name of the (first) column; a row elsewhere is refused. Default the
            values that occur, sorted.
        :param gaps: ``"nan"`` declares that rows whose value is NaN are gaps.
        :raises ValueError: for cells with two rows, rows off the grid, and tables that are no grid: with less than a
            thousandth of the cells.

        >>> import ppl_sgp as sgp
        >>> table = {"year": [1, 1, 2], "week": [1, 2, 1], "y": [0.1, 0.2, 0.3]}
        >>> sgp.Grid.from_table(table, "y", ["year", "week"])
        Grid(year=2, week=2, observed=3, gaps=1)
        """
        found, values, is_gap = cells_of_table(table, value, axes, points or {}, gaps)
        return cls(list(found.values()), values, gaps=is_gap, dims=list(found))

    @property
    def shape(self) -> tuple[int, ...]:
        """Points of each axis."""
        return tuple(len(points) for points in self.axes)

    @property
    def num_cells(self) -> int:
        """The number of cells M."""
        return math.prod(self.shape)

    @property
    def num_rows(self) -> int:  # type: ignore[override]
        """The number of observed cells N."""
        return self.cells.shape[0]

    @property
    def num_gaps(self) -> int:
        """The number of gaps L."""
        return self.num_cells - self.num_rows

    @property
    def input_dim(self) -> int:  # type: ignore[override]
        """Columns of all axes together, and after them the features."""
        return sum(self.widths) + self.num_features

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of each axis."""
        return tuple(points.shape[1] for points in self.axes)

    @property
    def num_features(self) -> int:
        """The number of fixed effects q."""
        return 0 if self.features is None else self.features.shape[-1]

    @property
    def gaps(self) -> np.ndarray:
        """Which cells are gaps, Boolean, shape (m_1, …, m_d)."""
        observed = np.zeros(self.num_cells, dtype=bool)
        observed[np.asarray(self.cells)] = True
        return ~observed.reshape(self.shape)

    @property
    def X(self) -> np.ndarray:
        """Inputs of the observed cells, shape (N, input_dim): columns of all axes in their order, then features."""
        cells = np.asarray(self.cells)
        numbers = np.unravel_index(cells, self.shape)
        parts = [np.asarray(p)[i] for p, i in zip(self.axes, numbers, strict=True)]
        return np.concatenate(parts if self.features is None else [*parts, np.asarray(self.features)[cells]], axis=1)

    @property
    def columns(self) -> list[str]:
        """Names of the columns of :attr:`X`."""
        named = []
        for dim, points in zip(self.dims, self.axes, strict=True):
            named += [dim] if points.shape[1] == 1 else [f"{dim}_{j}" for j in range(points.shape[1])]
        return named + [f"feature_{j}" for j in range(self.num_features)]

    @property
    def input_scale(self) -> np.ndarray:
        """Standard deviation of each column over its axis, or of a feature over all cells; zero for constants."""
        parts = [np.asarray(part) for part in self._inputs]
        return np.concatenate([part.std(axis=0) * (np.ptp(part, axis=0) > 0) for part in parts])

    @property
    def input_range(self) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest value of each column, (input_dim,) each."""
        ends = [(np.min(part, axis=0), np.max(part, axis=0)) for part in self._inputs]
        return np.concatenate([low for low, _ in ends]), np.concatenate([high for _, high in ends])

    @property
    def _inputs(self) -> list[Any]:
        return [*self.axes, *([] if self.features is None else [self.features])]

    @property
    def coords(self) -> dict[str, np.ndarray]:
        """Coordinates of the axes, by name, as xarray takes them."""
        return {
            dim: axis_checks.coordinates(np.asarray(points), labels)
            for dim, points, labels in zip(self.dims, self.axes, self.labels, strict=True)
        }

    @property
    def cell_coords(self) -> dict[str, np.ndarray]:
        """Coordinates of the observed cells, (N,) each, by the name of the axis."""
        numbers = np.unravel_index(np.asarray(self.cells), self.shape)
        return {dim: values[i] for (dim, values), i in zip(self.coords.items(), numbers, strict=True)}

    def to_xarray(self, cell_values: Any = None, name: str | None = None) -> xr.DataArray:
        """Numbers of all cells, or the observations with NaN at gaps, as a ``DataArray`` with the grid's coordinates.

        :param cell_values: shape (…, m_1, …, m_d), with ``draw`` for a first axis more.
        """
        if cell_values is None:
            cell_values = np.full(self.num_cells, np.nan)
            cell_values[np.asarray(self.cells)] = np.asarray(self.y)
        extra = np.ndim(cell_values) - len(self.shape) if np.shape(cell_values) != (self.num_cells,) else 0
        array = np.asarray(cell_values).reshape(*np.shape(cell_values)[:extra], *self.shape)
        return xr.DataArray(array, dims=("draw",) * extra + self.dims, coords=self.coords, name=name)

    @property
    def parts(self) -> dict[str, Any]:
        """What is written to a file, by name."""
        return {"grid": self}

    @classmethod
    def of_parts(cls, parts: dict[str, Any], path: Any) -> Grid:
        """The grid of a file."""
        found = parts.get("grid")
        if not isinstance(found, cls):
            raise ValueError(f"{path} holds {sorted(parts)}, and no grid.")
        return found

    def require_same(self, X: Any, y: Any, row_weights: Any, owner: str) -> None:
        """Refuse rows that are not the observed cells of the grid, in their order. Each may be ``None``."""
        for name, given in (("X", X), ("y", y), ("row_weights", row_weights)):
            if given is not None and not np.array_equal(checks.host_numbers(name, given, owner), getattr(self, name)):
                raise ValueError(
                    f"{owner}: `{name}` is not that of the observed cells of this posterior, which knows them: leave "
                    "it out."
                )

    def _with_outputs(self, values: Any) -> Grid:
        """The same cells with other observations."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return rebuild(Grid, {**fields, "y": values})

    def __repr__(self) -> str:
        sizes = ", ".join(f"{dim}={size}" for dim, size in zip(self.dims, self.shape, strict=True))
        return f"Grid({sizes}, observed={self.num_rows}, gaps={self.num_gaps})"


def _filled(cells: np.ndarray, weights: np.ndarray | None, num_cells: int) -> dict[str, Any]:
    """Cells beyond the least noise, their stiffness, and that noise in units of σ²."""
    least = 1.0 if weights is None else 1.0 / weights.max()
    excess = np.full(num_cells, np.inf)
    excess[cells] = 0.0 if weights is None else 1.0 / weights - least
    filled = np.flatnonzero(excess > 1e-12 * least)
    return {"filled": filled, "stiffness": 1.0 / excess[filled], "base": np.float64(least)}


def _checked_features(features: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = checks.host_numbers("features", features, "Grid").astype(np.float64)
    if array.shape[:-1] != shape or array.shape[-1:] in ((), (0,)):
        raise ValueError(f"Grid: `features` must have shape {(*shape, 'q')}, a number a cell; got {array.shape}.")
    array = array.reshape(-1, array.shape[-1])
    checks.require_finite("features", array, "Grid", " They are needed at gaps too, which are filled.")
    return array
