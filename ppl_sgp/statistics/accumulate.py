"""The sums over rows of arrays in memory: chunks in turn, and blocks of a chunk side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from ..bases.basis import Basis
from .checkpoint import Checkpoint
from .moments import Moments, describe
from .root_moments import RootMoments, is_cheap
from .rows import as_float64, checked
from .running import RUNNING
from .side_by_side import side_by_side, worker_count

#: Bytes of features of a block: more stay less in the cache, fewer make rank-k updates slow.
BLOCK_BYTES = 2**24
#: Blocks of a chunk, when no chunk size is given.
BLOCKS = 8


def moments_of_arrays(
    basis: Basis,
    X: Any,
    y: Any,
    row_weights: Any = None,
    chunk_size: int | None = None,
    progress: bool | None = None,
    checkpoint: Checkpoint | None = None,
    single: bool = False,
    kind: type[Moments] | None = None,
    workers: int | None = None,
) -> Moments:
    """Sums over all rows. O(n m²) time, O(m² + block·m) memory for each worker, beside the arrays.

    Features are evaluated in float32 if ``single``, and summed in float64 always. With a checkpoint, sums go on from
    what it has, and are written after each chunk. ``kind`` is the class of the sums; without it a root is kept if the
    rows are few enough. Blocks join the sums in their order, so that the number of ``workers`` (default: the cores)
    changes no bit but by the threads BLAS has in each.

    :raises ValueError: for rows that cannot be used. Whatever error ends the sums midway has what was summed before it
        as ``moments``.
    """
    X, y, row_weights = checked(basis, X, y, row_weights)
    block_size = max(1, BLOCK_BYTES // (8 * basis.num_features))
    size = default_chunk_size(basis) if chunk_size is None else chunk_size
    m, outputs = basis.num_features, y.shape[1:]
    total = None if checkpoint is None else checkpoint.moments
    chosen = kind or (kind_for(len(X), m + int(np.prod(outputs))) if total is None else type(total))
    sums = RUNNING[chosen](m, outputs, total)

    def part(block: tuple[Any, ...], memory: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, dict[str, Any]]:
        first_row, X, y, weights = block
        joint = memory[0][: len(X)]
        basis.fill_features(X, joint[:, :m], single)
        joint[:, m:] = y.reshape(len(y), -1)
        with np.errstate(over="ignore", invalid="ignore"):  # such sums are refused
            if weights is not None:
                joint *= np.sqrt(weights)[:, None]
            product = sums.part(joint, memory[1])
            squares = sums.column_squares(product)
        if not np.isfinite(squares).all():
            _refuse_features(basis, joint, X, first_row, squares)
        return product, describe(X, y, weights)

    rows_at_a_time = min(block_size, size, len(X))
    count = worker_count(workers, 8 * sums.width * (sums.width + rows_at_a_time), min(size, len(X)), rows_at_a_time)
    starts = range(0, len(X), size)
    with progress_bar(progress, len(starts), len(X)) as bar, side_by_side(count) as run:
        memories = [(np.empty((rows_at_a_time, sums.width)), sums.memory()) for _ in range(1 + count * (count > 1))]
        for index, start in enumerate(starts):
            chunk = slice(start, start + size)
            rows, y_rows = as_float64(X[chunk]), as_float64(y[chunk])
            weights = None if row_weights is None else as_float64(row_weights[chunk])
            if checkpoint is None or not checkpoint.covers(index, rows, y_rows, weights):
                try:
                    for product, described in run(part, _blocks(start, rows, y_rows, weights, block_size), memories):
                        with np.errstate(over="ignore"):  # refused at the end
                            sums.add(product)
                        sums.describe(described)
                except Exception as error:
                    vars(error)["moments"] = None if sums.is_empty else sums.moments()
                    raise
                if checkpoint is not None:
                    checkpoint.record(sums.moments(), rows, y_rows, weights)
            bar.update(len(rows))
    if checkpoint is not None:
        checkpoint.require_no_more(len(starts))
    with np.errstate(over="ignore", invalid="ignore"):  # refused here
        moments = sums.moments()
    if not all(np.isfinite(squares).all() for squares in (np.diagonal(moments.gram), moments.sum_squares)):
        raise ValueError("sufficient_statistics: the sums of squares are too large for float64. Rescale `X` or `y`.")
    return moments if kind or not isinstance(moments, RootMoments) else dataclasses.replace(moments, required=False)


def kind_for(num_rows: int, width: int) -> type[Moments]:
    """The class of the sums of so many rows, of features and outputs together, when it is not said."""
    return RootMoments if is_cheap(num_rows, width) else Moments


def default_chunk_size(basis: Basis) -> int:
    """How many rows are taken together when it is not said."""
    return BLOCKS * max(1, BLOCK_BYTES // (8 * basis.num_features))


def _refuse_features(basis: Basis, joint: np.ndarray, X: np.ndarray, first_row: int, squares: np.ndarray) -> None:
    """Say which of the features and outputs of a block, (k, m + q), cannot be summed."""
    basis.require_finite(joint[:, : basis.num_features], X, first_row, "sufficient_statistics")
    column = int(np.argmin(np.isfinite(squares)))
    largest = int(np.argmax(np.abs(joint[:, column])))
    name = basis.name_of(column) if column < basis.num_features else "`y`"
    raise ValueError(
        f"sufficient_statistics: the squares of {name} are too large for float64: it is {joint[largest, column]:.3g} "
        f"(times the root of its row weight) at row {first_row + largest}. Rescale it."
    )


def _blocks(
    first_row: int, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, size: int
) -> Iterator[tuple[Any, ...]]:
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        yield first_row + start, X[rows], y[rows], None if weights is None else weights[rows]


def progress_bar(progress: bool | None, num_chunks: int | None, num_rows: int | None) -> tqdm:
    """A tqdm bar over rows. ``disable=None`` is tqdm's own "only at a terminal"."""
    few = num_chunks is not None and num_chunks < 20
    disable = (True if few else None) if progress is None else not progress
    return tqdm(total=num_rows, disable=disable, unit="row", unit_scale=True, desc="sufficient statistics")
