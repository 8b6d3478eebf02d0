"""Tables whose columns are numbers as chunks of rows, columns by name."""

from __future__ import annotations

import decimal
import functools
import numbers
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .._internal import checks
from .readers import Block, reader_of

NUMBERS = (numbers.Real, np.bool_, decimal.Decimal)
MISSING = ("refuse", "drop")
#: What keeps the other outputs of a row of which one is missing.
BY_OUTPUT = (
    " That drops the other outputs of these rows too: to keep them, make chunks, and statistics, of each output alone."
)


class TableChunks:
    """Chunks ``(X, y)`` or ``(X, y, row_weights)`` of a table; made by :func:`table_chunks`. May be iterated again.

    :ivar num_dropped: rows that were left out for missing values, in the last or current iteration.
    :ivar table: the table.
    :ivar columns: names of the columns of X, of y, and of the row weights if there are any.
    :ivar chunks_of: chunks of another table in the same way, a function of the table.
    """

    def __init__(
        self,
        table: Any,
        blocks: Callable[[list[str]], Iterator[Block]],
        chunks_of: Callable[[Any], TableChunks],
        columns: list[str],
        rows_of: Callable[[Block, int], tuple[tuple[np.ndarray, ...], int]],
    ) -> None:
        self.table, self._blocks, self.chunks_of, self.columns, self._rows_of = (
            table,
            blocks,
            chunks_of,
            columns,
            rows_of,
        )
        self.num_dropped = 0

    def __iter__(self) -> Iterator[tuple[np.ndarray, ...]]:
        self.num_dropped, first = 0, 0
        for block in self._blocks(self.columns):
            rows, dropped = self._rows_of(block, first)
            self.num_dropped += dropped
            first += len(rows[0]) + dropped
            if len(rows[0]):
                yield rows


def _plain_rows(
    inputs: Sequence[str], output: Any, row_weights: str | None, missing: str, block: Block, first: int
) -> tuple[tuple[np.ndarray, ...], int]:
    """Rows of a block whose columns are numbers, and how many were left out."""
    outputs = names_of(output)
    names = [*inputs, *outputs, *names_of(row_weights)]
    rows = np.stack([floating("table_chunks", name, block[name], name in outputs) for name in names], axis=1)
    bad = np.isnan(rows)
    if bad.any() and missing == "refuse":
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"table_chunks: {names[column]!r} is missing at row {first + row}. Impute missing values, or leave "
            "such rows out with `missing='drop'`, which counts them in `.num_dropped`."
            + (BY_OUTPUT if len(outputs) > 1 and names[column] in outputs else "")
        )
    kept = rows[~bad.any(axis=1)]
    d = len(inputs)
    y = kept[:, d : d + len(outputs)] if isinstance(output, (list, tuple)) else kept[:, d]
    return (kept[:, :d], y) if row_weights is None else (kept[:, :d], y, kept[:, -1]), len(rows) - len(kept)


def table_chunks(
    table: Any,
    inputs: Sequence[str],
    output: str | Sequence[str],
    *,
    row_weights: str | None = None,
    missing: str = "refuse",
    chunk_size: int = 65_536,
) -> TableChunks:
    """Rows of a table for :func:`~ppl_sgp.sufficient_statistics`, a chunk in memory at a time.

    Takes a pandas ``DataFrame``; a pyarrow ``Table``, ``Dataset`` or ``RecordBatchReader``; the path of a Parquet file,
    or of a folder of them; an xarray ``Dataset`` of one-dimensional variables (from NetCDF or Zarr, opened lazily); a
    Dask ``DataFrame``, whose partitions are summed by its scheduler; a table of Polars, DuckDB or another library that
    speaks Arrow's PyCapsule protocol (with pyarrow installed); a dictionary of arrays. Arrays go into
    ``sufficient_statistics`` directly. For dates and categories make a :func:`~ppl_sgp.recipe`.

    :param table: the table.
    :param inputs: names of the columns of X, in the order of the basis's inputs.
    :param output: name of y; or several, for an output each.
    :param row_weights: name of the column of relative noise precisions, if there is one.
    :param missing: what happens to rows with missing values (null or NaN): ``"refuse"`` or ``"drop"``.
    :param chunk_size: rows in memory at a time; partitions and record batches may be smaller.
    :raises ValueError: for a table of another kind, names that it lacks, and, while iterating, for missing values and
        columns that are not numbers.

    .. doctest::

        >>> import pandas as pd, ppl_sgp as sgp
        >>> table = pd.DataFrame({"week": [0.0, 1.0, 2.0, 3.0], "ppm": [315.0, 316.0, None, 317.0]})
        >>> rows = sgp.table_chunks(table, ["week"], "ppm", missing="drop")
        >>> stats = sgp.sufficient_statistics(sgp.LinearBasis(1), rows)
        >>> stats.num_rows, rows.num_dropped
        (3, 1)
    """
    if isinstance(inputs, str):
        raise ValueError(f"table_chunks: `inputs` must be a list of names; got {inputs!r}. Use [{inputs!r}].")
    if missing not in MISSING:
        raise ValueError(f"table_chunks: `missing` must be one of {MISSING}; got {missing!r}.")
    checks.whole_number("chunk_size", chunk_size, 1, "table_chunks")
    table, reader = reader_of(table, chunk_size, "table_chunks")
    wanted = [*inputs, *names_of(output), *names_of(row_weights)]
    require_columns("table_chunks", reader.names, wanted)
    options: dict[str, Any] = {"row_weights": row_weights, "missing": missing, "chunk_size": chunk_size}
    chunks_of = functools.partial(table_chunks, inputs=inputs, output=output, **options)
    rows_of = functools.partial(_plain_rows, list(inputs), output, row_weights, missing)
    return TableChunks(table, reader.read, chunks_of, wanted, rows_of)


def require_columns(owner: str, names: list[Any], wanted: Sequence[Any]) -> None:
    """Refuse columns that the table lacks, that are asked for twice, or of which there are several."""
    absent = [name for name in wanted if name not in names]
    if absent:
        raise ValueError(f"{owner}: the table lacks the columns {absent}; it has {sorted(map(str, names))}.")
    twice = [name for name in dict.fromkeys(wanted) if wanted.count(name) > 1]
    if twice:
        raise ValueError(f"{owner}: the columns {twice} are asked for twice. Name each column once.")
    ambiguous = [name for name in wanted if names.count(name) > 1]
    if ambiguous:
        raise ValueError(
            f"{owner}: the table has several columns of the names {ambiguous}. Rename them, so that each is one."
        )


def names_of(columns: str | Sequence[str] | None) -> list[str]:
    """Names in a list, of one, several or none."""
    return [] if columns is None else list(columns) if isinstance(columns, (list, tuple)) else [columns]  # type: ignore[list-item]


def floating(owner: str, name: str, values: np.ndarray, is_output: bool) -> np.ndarray:
    """Numbers of a column in float64, NaN where missing; a Boolean output, and what is no number, are refused."""
    # Objects are numbers or Booleans beside missing values, and decimals; or text.
    types = {type(value) for value in values if value is not None} if values.dtype == object else {values.dtype.type}
    if not all(issubclass(kind, NUMBERS) and not issubclass(kind, np.timedelta64) for kind in types):
        shown = ", ".join(sorted(kind.__name__ for kind in types))
        raise ValueError(
            f"{owner}: the column {name!r} must hold numbers; got {shown}. Encode categories and dates as numbers "
            "first, as `sgp.recipe` does, and parse text, as with `pandas.to_numeric`."
        )
    if is_output and any(issubclass(kind, (bool, np.bool_)) for kind in types):
        raise ValueError(
            f"{owner}: the output {name!r} is Boolean, but compression without loss needs a Gaussian likelihood. "
            "To treat 0/1 as numbers, or as classes of `sgp.compress_likelihood`, make the column floating first."
        )
    return values.astype(np.float64)


def as_triple(chunk: Any) -> tuple[Any, Any, Any]:
    """A chunk as inputs, outputs and row weights, the last perhaps ``None``; anything else is refused."""
    if not isinstance(chunk, (tuple, list)) or len(chunk) not in (2, 3):
        raise ValueError(
            f"each chunk must be (X, y) or (X, y, row_weights); got {type(chunk).__name__}. "
            "If this is one array of inputs, pass `y` as the third argument."
        )
    return (*chunk, None) if len(chunk) == 2 else tuple(chunk)
