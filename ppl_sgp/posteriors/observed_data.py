"""What posteriors ask of statistics and of rows alike."""

from __future__ import annotations

from typing import Any

from ..statistics.kept_rows import Rows
from ..statistics.rows import RowArrays
from ..statistics.same_rows import require_same_rows
from ..statistics.statistics import SufficientStatistics

Data = SufficientStatistics | Rows


def input_dim(data: Data) -> int:
    """The number of inputs d."""
    return data.input_dim if isinstance(data, Rows) else data.basis.input_dim


def input_range(data: Data) -> tuple[Any, Any]:
    """Least and largest value of each input, shape (d,) each."""
    return data.input_range if isinstance(data, Rows) else (data.moments.x_min, data.moments.x_max)


def training_rows(data: Data, X: Any, y: Any, row_weights: Any, owner: str) -> RowArrays:
    """Inputs, outputs and row weights that the data were made of; statistics have to be told them, rows know them."""
    if isinstance(data, Rows):
        data.require_same(X, y, row_weights, owner)
        return data.X, data.y, data.row_weights
    if X is None or y is None:
        raise ValueError(f"{owner}: statistics do not keep their rows; pass the training rows as `X` and `y`.")
    return require_same_rows(data, X, y, row_weights, owner=owner)
