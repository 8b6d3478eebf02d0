"""One pass: rows of arrays in blocks side by side, chunks in turn, partitions of Dask by its workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from tqdm.auto import tqdm

from ..bases.basis import Basis
from ..statistics.accumulate import BLOCK_BYTES, default_chunk_size
from ..statistics.moments import describe
from ..statistics.rows import as_float64
from ..statistics.side_by_side import side_by_side, worker_count
from .sums import Point, RunningSums, Sums


class LikelihoodRows(NamedTuple):
    """Rows, validated: inputs (n, d), outcomes (n,) or (n, c), and perhaps offsets (n,) or (n, K) and weights (n,)."""

    X: Any
    y: Any
    offset: Any
    row_weights: Any

    def take(self, rows: Any) -> LikelihoodRows:
        """Some of them, in float64."""
        return LikelihoodRows(*(None if array is None else as_float64(np.asarray(array[rows])) for array in self))


def sum_rows(
    basis: Basis,
    rows: LikelihoodRows,
    point: Point,
    *,
    chunk_size: int | None = None,
    bar: tqdm | None = None,
    single: bool = False,
    workers: int | None = None,
) -> Sums:
    """Sums over rows of arrays. O(n m²) time for one predictor a row, O(m² + block·m) memory for each worker.

    :param bar: shows how many rows are done.
    :param single: evaluate features in float32.
    :raises ValueError: for features that are not finite.
    """
    m, n = basis.num_features, len(rows.X)
    sums = RunningSums(m, point)
    block_size = max(1, BLOCK_BYTES // (8 * m))
    size = min(n, default_chunk_size(basis) if chunk_size is None else chunk_size)
    at_a_time = min(block_size, size)

    def part(block: tuple[int, LikelihoodRows], memory: tuple[np.ndarray, np.ndarray]) -> tuple[Sums, dict[str, Any]]:
        first_row, own = block
        Phi = memory[0][: len(own.X)]
        basis.fill_features(own.X, Phi, single)
        if not np.isfinite(Phi.sum()):  # infinite features make it so, and so does NaN
            basis.require_finite(Phi, own.X, first_row, "compress_likelihood")
        with np.errstate(over="ignore", invalid="ignore"):  # steps that are too long are refused by their value
            found = sums.part(Phi, own.y, own.offset, own.row_weights, at_a_time, memory[1])
        return found, describe(own.X, np.zeros(len(own.X)), None)

    count = worker_count(workers, 8 * (sums.width**2 + 2 * at_a_time * sums.width), size, at_a_time)
    with side_by_side(count) as run:
        memories = [(np.empty((at_a_time, m)), sums.memory()) for _ in range(1 + count * (count > 1))]
        for start in range(0, n, size):
            chunk = rows.take(slice(start, start + size))
            for found, described in run(part, _blocks(start, chunk, at_a_time), memories):
                sums.add(found, described)
            if bar is not None:
                bar.update(len(chunk.X))
    assert sums.total is not None
    return sums.total


def _blocks(first_row: int, rows: LikelihoodRows, size: int) -> Iterator[tuple[int, LikelihoodRows]]:
    for start in range(0, len(rows.X), size):
        yield first_row + start, rows.take(slice(start, start + size))
