"""What posteriors ask of statistics and of rows alike."""

from __future__ import annotations

from typing import Any, overload

from ..grids.grid import Grid
from ..statistics.grouped import GroupedStatistics
from ..statistics.kept_rows import ChunkedRows, Rows
from ..statistics.rows import RowArrays
from ..statistics.same_rows import require_same_rows
from ..statistics.statistics import SufficientStatistics
from ..tables.recipe import Recipe, inputs_of_table, rows_of_table

Data = SufficientStatistics | GroupedStatistics | Rows | ChunkedRows | Grid
#: Data that are compressed through a basis.
COMPRESSED = (SufficientStatistics, GroupedStatistics)


def input_dim(data: Data) -> int:
    """The number of inputs d."""
    return data.basis.input_dim if isinstance(data, COMPRESSED) else data.input_dim


def recipe_of(data: Data) -> Recipe | None:
    """What makes inputs of tables, if the basis has it."""
    return data.basis.recipe if isinstance(data, COMPRESSED) else None


def new_inputs(data: Data, X_new: Any) -> Any:
    """New inputs, or those of a table of new rows."""
    return inputs_of_table(recipe_of(data), X_new)


def input_range(data: Data) -> tuple[Any, Any]:
    """Least and largest value of each input, shape (d,) each."""
    return (data.moments.x_min, data.moments.x_max) if isinstance(data, SufficientStatistics) else data.input_range


@overload
def rows_in_memory(data: Rows | ChunkedRows) -> Rows: ...


@overload
def rows_in_memory(data: Rows | ChunkedRows | Grid) -> Rows | Grid: ...


def rows_in_memory(data: Any) -> Any:
    """Rows with their inputs, which chunks are read for."""
    return data.in_memory() if isinstance(data, ChunkedRows) else data


def training_rows(data: Data, X: Any, y: Any, row_weights: Any, owner: str) -> RowArrays:
    """Inputs, outputs and row weights that the data were made of; statistics have to be told them, rows know them."""
    if not isinstance(data, COMPRESSED):
        data = rows_in_memory(data)
        data.require_same(X, y, row_weights, owner)
        return data.X, data.y, data.row_weights
    X, y, row_weights = rows_of_table(recipe_of(data), X, y, row_weights)
    if X is None or y is None:
        raise ValueError(f"{owner}: statistics do not keep their rows; pass the training rows as `X` and `y`.")
    if isinstance(data, GroupedStatistics):
        return data.require_same_rows(X, y, row_weights, owner)
    return require_same_rows(data, X, y, row_weights, owner=owner)
