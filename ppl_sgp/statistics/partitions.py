"""The pass over collections of Dask: a part a block or partition, on its workers, joined in a tree."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from .._internal.extras import optional_import
from ..tables.chunks import TableChunks, as_triple
from ..tables.readers import library_of
from .moments import Moments
from .root_moments import is_cheap

#: Parts that are joined at a time.
FAN_IN = 8

Summed = Callable[..., Moments]


class Part(NamedTuple):
    """Sums over some partitions, ``None`` if they had no rows; what was refused; and rows left out."""

    moments: Moments | None
    refused: tuple[str, ...]
    dropped: int


def is_partitioned(X: Any) -> bool:
    """Whether the rows are in a collection of Dask, in which case it is its engine that runs the pass."""
    source = X.table if isinstance(X, TableChunks) else X
    return library_of(source) == "dask"


def kind_of_partitions(X: Any, num_features: int) -> type[Moments] | None:
    """The class of the sums over all rows, when it is not said: each partition's own where they are few or unknown."""
    rows = getattr(X, "shape", (math.nan,))[0]
    return Moments if isinstance(rows, int) and not is_cheap(rows, num_features + 1) else None


def sum_partitions(summed: Summed, X: Any, y: Any, row_weights: Any, progress: bool | None) -> Part:
    """Sums over all partitions, by the scheduler of Dask that is current: a client's workers, else threads.

    Each worker holds one partition at a time for each of its threads, and O(m²) numbers. A part that is lost with its
    worker is computed again by another.

    :param summed: from arrays ``X, y, row_weights`` to their :class:`Moments`.
    """
    owner = "sufficient_statistics: rows in collections of Dask"
    dask = optional_import("dask", "dask", owner)
    ProgressBar = optional_import("dask.diagnostics", "dask", owner).ProgressBar
    # Sent once, not with each task: it holds the basis.
    shared = dask.delayed(summed, traverse=False)
    if isinstance(X, TableChunks):
        frames = enumerate(X.table[X.columns].to_delayed())
        parts = [dask.delayed(_of_frame)(shared, X.chunks_of, frame, f"partition {i}") for i, frame in frames]
    else:
        blocks = enumerate(zip(*aligned(X, y, row_weights), strict=True))
        parts = [dask.delayed(_of_blocks)(shared, block, f"block {i} of rows") for i, block in blocks]
    while len(parts) > 1:
        parts = [dask.delayed(_joined)(parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN)]
    # Of a client's workers the dashboard shows progress; this bar is of schedulers in this process.
    with ProgressBar() if progress else contextlib.nullcontext():
        return parts[0].compute()


def _of_blocks(summed: Summed, block: tuple[Any, ...], name: str) -> Part:
    X, y, row_weights = block
    if len(X) == 0:
        return Part(None, (), 0)
    return _unless_refused(name, lambda: summed(X, y, row_weights), lambda: 0)


def _of_frame(summed: Summed, chunks_of: Callable[[Any], TableChunks], frame: Any, name: str) -> Part:
    chunks = chunks_of(frame)
    return _unless_refused(
        name, lambda: _total(summed(*as_triple(chunk)) for chunk in chunks), lambda: chunks.num_dropped
    )


def _unless_refused(name: str, compute: Callable[[], Moments | None], dropped: Callable[[], int]) -> Part:
    """Rows that are refused must not cost the sums of the others, so that the refusal travels as a value."""
    try:
        return Part(compute(), (), dropped())
    except ValueError as error:
        return Part(None, (f"{name}: {error}",), dropped())


def _joined(parts: Iterable[Part]) -> Part:
    parts = list(parts)
    refused = tuple(message for part in parts for message in part.refused)
    return Part(_total(part.moments for part in parts), refused, sum(part.dropped for part in parts))


def _total(moments: Iterable[Moments | None]) -> Moments | None:
    total = None
    for each in moments:
        total = each if total is None else total if each is None else total + each
    return total


def aligned(*arrays: Any) -> list[list[Any]]:
    """For each array the blocks of its rows, delayed, cut as those of the first."""
    da = optional_import("dask.array", "dask", "sufficient_statistics: arrays of Dask")
    X = arrays[0] if isinstance(arrays[0], da.Array) else da.asarray(arrays[0])
    X = X.rechunk({1: -1}) if X.ndim == 2 else X
    rows, cut = X.chunks[0], []
    for array in (X, *arrays[1:]):
        if array is None:
            cut.append([None] * len(rows))
            continue
        array = array if isinstance(array, da.Array) else da.asarray(np.asarray(array))
        unknown = any(map(math.isnan, (*rows, *array.chunks[0])))
        if len(array.chunks[0]) != len(rows) if unknown else sum(array.chunks[0]) != sum(rows):
            raise ValueError(
                f"sufficient_statistics: rows of Dask arrays must match; got blocks of {rows} and {array.chunks[0]} "
                "rows. If lengths are unknown (nan), call `.compute_chunk_sizes()` on both first."
            )
        array = array if unknown else array.rechunk({0: rows, **({1: -1} if array.ndim == 2 else {})})
        cut.append(array.to_delayed().ravel().tolist())
    return cut
