"""Tables of other libraries as chunks of rows, columns by name."""

from __future__ import annotations

import decimal
import functools
import numbers
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._internal import checks
from .._internal.extras import optional_import

#: Columns of a block of rows, by name.
Block = dict[str, np.ndarray]

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
        inputs: Sequence[str],
        outputs: str | Sequence[str],
        row_weights: str | None,
        missing: str,
    ) -> None:
        self.table, self._blocks, self.chunks_of = table, blocks, chunks_of
        self._inputs, self._outputs, self._row_weights, self._missing = list(inputs), outputs, row_weights, missing
        self.columns = _columns(inputs, outputs, row_weights)
        self.num_dropped = 0

    def __iter__(self) -> Iterator[tuple[np.ndarray, ...]]:
        self.num_dropped, first = 0, 0
        names, outputs = self.columns, _names_of(self._outputs)
        for block in self._blocks(names):
            rows = np.stack([_floating(name, block[name], name in outputs) for name in names], axis=1)
            bad = np.isnan(rows)
            if bad.any() and self._missing == "refuse":
                row, column = np.argwhere(bad)[0]
                raise ValueError(
                    f"table_chunks: {names[column]!r} is missing at row {first + row}. Impute missing values, or leave "
                    "such rows out with `missing='drop'`, which counts them in `.num_dropped`."
                    + (BY_OUTPUT if len(outputs) > 1 and names[column] in outputs else "")
                )
            first += len(rows)
            kept = rows[~bad.any(axis=1)]
            self.num_dropped += len(rows) - len(kept)
            if len(kept):
                d = len(self._inputs)
                y = kept[:, d : d + len(outputs)] if isinstance(self._outputs, (list, tuple)) else kept[:, d]
                yield (kept[:, :d], y) if self._row_weights is None else (kept[:, :d], y, kept[:, -1])


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
    Dask ``DataFrame``, whose partitions are summed by its scheduler. Arrays go into ``sufficient_statistics`` directly.

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
    if isinstance(table, (str, Path)):
        dataset = optional_import("pyarrow.dataset", "parquet", "table_chunks: reading Parquet files")
        table = dataset.dataset(table)
    library = library_of(table)
    if library not in READERS:
        raise ValueError(
            f"table_chunks: `table` must be of {', '.join(sorted(READERS))}, or the path of a Parquet file; got "
            f"{type(table).__module__}.{type(table).__name__}. Arrays go into sufficient_statistics directly."
        )
    names, read = READERS[library](table, chunk_size)
    wanted = _columns(inputs, output, row_weights)
    absent = [name for name in wanted if name not in names]
    if absent:
        raise ValueError(f"table_chunks: the table lacks the columns {absent}; it has {sorted(map(str, names))}.")
    twice = [name for name in dict.fromkeys(wanted) if wanted.count(name) > 1]
    if twice:
        raise ValueError(f"table_chunks: the columns {twice} are asked for twice. Name each column once.")
    ambiguous = [name for name in wanted if names.count(name) > 1]
    if ambiguous:
        raise ValueError(
            f"table_chunks: the table has several columns of the names {ambiguous}. Rename them, so that each is one."
        )
    options: dict[str, Any] = {"row_weights": row_weights, "missing": missing, "chunk_size": chunk_size}
    chunks_of = functools.partial(table_chunks, inputs=inputs, output=output, **options)
    return TableChunks(table, read, chunks_of, inputs, output, row_weights, missing)


def _columns(inputs: Sequence[str], output: str | Sequence[str], row_weights: str | None) -> list[str]:
    return [*inputs, *_names_of(output), *([] if row_weights is None else [row_weights])]


def _names_of(output: str | Sequence[str]) -> list[str]:
    return list(output) if isinstance(output, (list, tuple)) else [output]  # type: ignore[list-item]


Reader = tuple[list[Any], Callable[[list[str]], Iterator[Block]]]


def _of_pandas(table: Any, chunk_size: int) -> Reader:
    def read(names: list[str]) -> Iterator[Block]:
        for start in range(0, len(table), chunk_size):
            part = table.iloc[start : start + chunk_size]
            yield {name: _of_column(part[name]) for name in names}

    return list(table.columns), read


def _of_column(column: Any) -> np.ndarray:
    if hasattr(column, "cat"):  # whole numbers as categories have no value for those that are missing
        return np.asarray(column)
    # pandas 2.2 writes the value of the missing even where none is missing, which integers refuse.
    return column.to_numpy(na_value=np.nan) if column.hasnans else column.to_numpy()


def _of_arrow(table: Any, chunk_size: int) -> Reader:
    def read(names: list[str]) -> Iterator[Block]:
        if hasattr(table, "combine_chunks"):  # a table in memory
            batches = table.to_batches(max_chunksize=chunk_size)
        elif hasattr(table, "to_batches"):  # a dataset: only these columns are read
            batches = table.to_batches(columns=names, batch_size=chunk_size)
        else:
            batches = table
        for batch in batches:
            yield {name: batch.column(name).to_numpy(zero_copy_only=False) for name in names}

    return list(table.schema.names), read


def _of_xarray(table: Any, chunk_size: int) -> Reader:
    def read(names: list[str]) -> Iterator[Block]:
        shapes = {name: table[name].dims for name in names}
        if len(set(shapes.values())) != 1 or len(shapes[names[0]]) != 1:
            raise ValueError(f"table_chunks: variables must share one dimension, that of the rows; got {shapes}.")
        (dim,) = shapes[names[0]]
        for start in range(0, table.sizes[dim], chunk_size):
            part = table[names].isel({dim: slice(start, start + chunk_size)})
            yield {name: part[name].values for name in names}

    return [*table.data_vars, *table.coords], read


def _of_dask(table: Any, chunk_size: int) -> Reader:
    def read(names: list[str]) -> Iterator[Block]:
        for i in range(table.npartitions):
            yield from _of_pandas(table[names].partitions[i].compute(), chunk_size)[1](names)

    return list(table.columns), read


#: By the name of the library that a table's class comes from: names of its columns, and a way to read some of them.
READERS: dict[str, Callable[[Any, int], Reader]] = {
    "pandas": _of_pandas,
    "pyarrow": _of_arrow,
    "xarray": _of_xarray,
    "dask": _of_dask,
}


def _floating(name: str, values: np.ndarray, is_output: bool) -> np.ndarray:
    # Objects are numbers or Booleans beside missing values, and decimals; or text.
    types = {type(value) for value in values if value is not None} if values.dtype == object else {values.dtype.type}
    if not all(issubclass(kind, NUMBERS) and not issubclass(kind, np.timedelta64) for kind in types):
        shown = ", ".join(sorted(kind.__name__ for kind in types))
        raise ValueError(
            f"table_chunks: the column {name!r} must hold numbers; got {shown}. Encode categories and dates as numbers "
            "first, and parse text, as with `pandas.to_numeric`."
        )
    if is_output and any(issubclass(kind, (bool, np.bool_)) for kind in types):
        raise ValueError(
            f"table_chunks: the output {name!r} is Boolean, but compression without loss needs a Gaussian likelihood. "
            "To treat 0/1 as numbers, or as classes of `sgp.compress_likelihood`, make the column floating first."
        )
    return values.astype(np.float64)


def library_of(table: Any) -> str:
    """The name of the library that an object's class comes from."""
    return type(table).__module__.split(".")[0]


def as_triple(chunk: Any) -> tuple[Any, Any, Any]:
    """A chunk as inputs, outputs and row weights, the last perhaps ``None``; anything else is refused."""
    if not isinstance(chunk, (tuple, list)) or len(chunk) not in (2, 3):
        raise ValueError(
            f"each chunk must be (X, y) or (X, y, row_weights); got {type(chunk).__name__}. "
            "If this is one array of inputs, pass `y` as the third argument."
        )
    return (*chunk, None) if len(chunk) == 2 else tuple(chunk)
