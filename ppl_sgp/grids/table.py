"""Rows of a table that lie on a product grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

#: Share of the cells below which a table is no grid.
LEAST_SHARE = 1e-3


def cells_of_table(
    table: Any, value: str, axes: Sequence[str | Sequence[str]], points: dict[str, Any], gaps: Any
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Points of each axis by its name, values of all cells and which are gaps; ``Grid.from_table`` documents it."""
    groups = [[axis] if isinstance(axis, str) else list(axis) for axis in axes]
    columns_of_axes = [name for group in groups for name in group]
    missing = [name for name in [value, *columns_of_axes] if name not in table]
    if missing:
        raise ValueError(f"Grid.from_table: the table has no columns {missing}; it has {list(table)}.")
    unknown = sorted(set(points) - {group[0] for group in groups})
    if unknown:
        raise ValueError(f"Grid.from_table: `points` has {unknown}, which are no axes: {[g[0] for g in groups]}.")
    y = np.asarray(table[value], dtype=np.float64)
    found, numbers = {}, []
    for group in groups:
        columns = [_column(table[name], name) for name in group]
        given = points.get(group[0])
        found[group[0]], number = _positions(columns, group, given)
        numbers.append(number)
    shape = tuple(len(each) for each in found.values())
    if len(y) < LEAST_SHARE * math.prod(shape):
        raise ValueError(
            f"Grid.from_table: {len(y)} rows on {math.prod(shape)} cells, {shape}, are no grid: they share too few "
            "coordinates. For scattered rows take `sgp.rows` with `sgp.models.exact_gp`, or a basis."
        )
    cells = np.ravel_multi_index(tuple(numbers), shape)
    _, first, counts = np.unique(cells, return_index=True, return_counts=True)
    if (counts > 1).any():
        row = first[np.argmax(counts > 1)]
        again = int(np.flatnonzero(cells == cells[row])[1])
        where = {name: np.asarray(table[name])[row].item() for name in columns_of_axes}
        raise ValueError(
            f"Grid.from_table: {int((counts > 1).sum())} cells have several rows, the first of them rows {row} and "
            f"{again} at {where}. Average them, or give the repetition an axis of its own."
        )
    unknown_values = np.isnan(y)
    if unknown_values.any() and gaps != "nan":
        raise ValueError(
            f"Grid.from_table: `{value}` has {unknown_values.sum()} rows without a number (first: row "
            f"{int(np.argmax(unknown_values))}). If these are gaps, say so: `gaps='nan'`."
        )
    values, is_gap = np.zeros(math.prod(shape)), np.ones(math.prod(shape), dtype=bool)
    values[cells], is_gap[cells] = np.where(unknown_values, 0.0, y), unknown_values
    return found, values.reshape(shape), is_gap.reshape(shape)


def _column(column: Any, name: str) -> np.ndarray:
    array = np.asarray(column)
    array = array.astype(str) if array.dtype.kind == "O" and all(isinstance(v, str) for v in array) else array
    if array.dtype.kind not in "iufMU" or (array.dtype.kind in "fM" and (array != array).any()):
        raise ValueError(f"Grid.from_table: `{name}` must be numbers, dates or text, and none missing; {array.dtype}.")
    return array


def _positions(columns: list[np.ndarray], group: list[str], given: Any) -> tuple[np.ndarray, np.ndarray]:
    """The points of an axis, and the position of each row on it."""
    if len(columns) == 1:
        rows, known = columns[0], None if given is None else np.asarray(given)
    else:
        rows, known = np.column_stack(columns), None if given is None else np.asarray(given)
    if known is None:
        known, inverse = np.unique(rows, axis=0, return_inverse=True)
        return known, np.ravel(inverse)
    places = {_key(point): position for position, point in enumerate(known)}
    positions = np.array([places.get(_key(row), -1) for row in rows])
    if (positions < 0).any():
        row = int(np.argmax(positions < 0))
        raise ValueError(
            f"Grid.from_table: {int((positions < 0).sum())} rows are off the grid, the first of them row {row} with "
            f"{'/'.join(group)} = {rows[row].tolist()}, which is not among the `points`."
        )
    return known, positions


def _key(point: Any) -> Any:
    return tuple(point.tolist()) if np.ndim(point) else np.asarray(point).item()
