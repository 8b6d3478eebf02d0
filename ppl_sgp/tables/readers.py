"""Tables of other libraries as blocks of rows: each column an array, by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._internal.extras import optional_import

#: Columns of a block of rows, by name.
Block = dict[str, np.ndarray]
#: By library, an attribute of its tables that its arrays lack.
HAS_COLUMNS = {"pandas": "columns", "dask": "columns", "pyarrow": "schema", "xarray": "data_vars"}


class Reader(NamedTuple):
    """How a table is read.

    :ivar names: names of its columns.
    :ivar read: from some of the names to blocks of rows. Text is an array of objects, with ``None`` or NaN where it is
        missing; instants are of ``datetime64``.
    :ivar zoned: names of columns of instants with a time zone, which are read in UTC.
    """

    names: list[Any]
    read: Callable[[list[str]], Iterator[Block]]
    zoned: frozenset[Any] = frozenset()


def library_of(table: Any) -> str:
    """The name of the library that an object's class comes from."""
    return type(table).__module__.split(".")[0]


def is_table(value: Any) -> bool:
    """Whether this has rows in columns that go by name."""
    if isinstance(value, (str, Path, Mapping)):
        return True
    return hasattr(value, HAS_COLUMNS.get(library_of(value), "__arrow_c_stream__"))


def reader_of(table: Any, chunk_size: int, owner: str) -> tuple[Any, Reader]:
    """The table, opened if it is a path, and how it is read.

    :param chunk_size: rows at a time.
    :param owner: who asks, for messages.
    :raises ValueError: for something else.
    """
    if isinstance(table, (str, Path)):
        dataset = optional_import("pyarrow.dataset", "parquet", f"{owner}: reading Parquet files")
        table = dataset.dataset(table)
    library = library_of(table)
    if library in READERS:
        return table, READERS[library](table, chunk_size)
    if isinstance(table, Mapping):
        return table, _of_mapping(table, chunk_size)
    if hasattr(table, "__arrow_c_stream__"):
        return table, _of_stream(table, chunk_size, owner)
    raise ValueError(
        f"{owner}: `table` must be of {', '.join(sorted(READERS))}, or another that speaks Arrow's PyCapsule protocol "
        "(Polars, DuckDB), or a dictionary of arrays, or the path of a Parquet file; got "
        f"{type(table).__module__}.{type(table).__name__}. Arrays go into sufficient_statistics directly."
    )


def _of_mapping(table: Mapping[Any, Any], chunk_size: int) -> Reader:
    arrays = {name: _of_values(values) for name, values in table.items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
        raise ValueError(f"A dictionary that is a table must hold arrays (n,) of one length; got shapes {shapes}.")

    def read(names: list[str]) -> Iterator[Block]:
        for start in range(0, len(arrays[names[0]]), chunk_size):
            yield {name: arrays[name][start : start + chunk_size] for name in names}

    return Reader(list(arrays), read)


def _of_values(values: Any) -> np.ndarray:
    array = np.asarray(values)
    # A list of text and numbers would be text.
    return array if hasattr(values, "dtype") or array.dtype.kind not in "US" else np.array(values, dtype=object)


def _of_pandas(table: Any, chunk_size: int) -> Reader:
    def read(names: list[str]) -> Iterator[Block]:
        for start in range(0, len(table), chunk_size):
            part = table.iloc[start : start + chunk_size]
            yield {name: _of_column(part[name]) for name in names}

    return Reader(list(table.columns), read, _zoned(table.columns, table.dtypes))


def _zoned(names: Any, types: Any) -> frozenset[Any]:
    return frozenset(name for name, kind in zip(names, types, strict=True) if getattr(kind, "tz", None) is not None)


def _of_column(column: Any) -> np.ndarray:
    if hasattr(column, "cat"):  # whole numbers as categories have no value for those that are missing
        return np.asarray(column)
    if getattr(column.dtype, "kind", "") == "M":
        return (column.dt.tz_convert(None) if getattr(column.dtype, "tz", None) is not None else column).to_numpy()
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

    return Reader(list(table.schema.names), read, _zoned(table.schema.names, table.schema.types))


def _of_stream(table: Any, chunk_size: int, owner: str) -> Reader:
    """Tables of any library that exports a stream of Arrow's, as often as it is asked: Polars, DuckDB, and others."""
    arrow = optional_import("pyarrow", "parquet", f"{owner}: tables of {library_of(table)}")

    def read(names: list[str]) -> Iterator[Block]:
        for batch in arrow.RecordBatchReader.from_stream(table):
            for start in range(0, batch.num_rows, chunk_size):
                part = batch.slice(start, chunk_size)
                yield {name: part.column(name).to_numpy(zero_copy_only=False) for name in names}

    schema = arrow.RecordBatchReader.from_stream(table).schema
    return Reader(list(schema.names), read, _zoned(schema.names, schema.types))


def _of_xarray(table: Any, chunk_size: int) -> Reader:
    def read(names: list[str]) -> Iterator[Block]:
        shapes = {name: table[name].dims for name in names}
        if len(set(shapes.values())) != 1 or len(shapes[names[0]]) != 1:
            raise ValueError(f"table_chunks: variables must share one dimension, that of the rows; got {shapes}.")
        (dim,) = shapes[names[0]]
        for start in range(0, table.sizes[dim], chunk_size):
            part = table[names].isel({dim: slice(start, start + chunk_size)})
            yield {name: part[name].values for name in names}

    return Reader([*table.data_vars, *table.coords], read)


def _of_dask(table: Any, chunk_size: int) -> Reader:
    def read(names: list[str]) -> Iterator[Block]:
        for i in range(table.npartitions):
            yield from _of_pandas(table[names].partitions[i].compute(), chunk_size).read(names)

    return Reader(list(table.columns), read, _zoned(table.columns, table.dtypes))


#: By the name of the library that a table's class comes from.
READERS: dict[str, Callable[[Any, int], Reader]] = {
    "pandas": _of_pandas,
    "pyarrow": _of_arrow,
    "xarray": _of_xarray,
    "dask": _of_dask,
}
