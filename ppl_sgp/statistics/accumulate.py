"""The sums over rows of arrays in memory, a chunk at a time."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from ..bases.basis import Basis
from .checkpoint import Checkpoint
from .moments import Moments
from .rows import as_float64, checked

#: Bytes of features held at a time when no chunk size is given.
CHUNK_BYTES = 2**25
#: Features for which another thread is worth its start.
LEAST = 2**17


def moments_of_arrays(
    basis: Basis,
    X: Any,
    y: Any,
    row_weights: Any = None,
    chunk_size: int | None = None,
    progress: bool | None = None,
    checkpoint: Checkpoint | None = None,
    single: bool = False,
    kind: type[Moments] = Moments,
) -> Moments:
    """Sums over all rows. O(n m²) time, O(m² + chunk·m) memory beside the arrays.

    Features are evaluated in float32 if ``single``, and summed in float64 always. With a checkpoint, sums go on from
    what it has, and are written after each chunk. ``kind`` is the class of the sums.

    :raises ValueError: for rows that cannot be used.
    """
    X, y, row_weights = checked(basis, X, y, row_weights)
    size = default_chunk_size(basis) if chunk_size is None else chunk_size
    starts = range(0, len(X), size)
    m, total = basis.num_features, None if checkpoint is None else checkpoint.moments
    # Memory for one chunk and for its Gram matrix, used again and again: new pages cost more than the arithmetic.
    memory, gram = np.empty((min(size, len(X)), m)), np.empty((m, m))
    with progress_bar(progress, len(starts), len(X)) as bar, _Filler(basis, single) as filler:
        for index, start in enumerate(starts):
            chunk = slice(start, start + size)
            rows, outputs = as_float64(X[chunk]), as_float64(y[chunk])
            weights = None if row_weights is None else as_float64(row_weights[chunk])
            if checkpoint is None or not checkpoint.covers(index, rows, outputs, weights):
                Phi = memory[: len(rows)]
                filler.fill(rows, Phi)
                part = kind.of_rows(Phi, rows, outputs, weights, gram)
                total = part if total is None else total.absorb(part)
                gram = np.empty((m, m)) if gram is total.gram else gram  # the first chunk's has become the total's
                if checkpoint is not None:
                    checkpoint.record(total, rows, outputs, weights)
            bar.update(len(rows))
    if checkpoint is not None:
        checkpoint.require_no_more(len(starts))
    assert total is not None  # at least one row has been validated
    return total


def default_chunk_size(basis: Basis) -> int:
    """How many rows of features fit :data:`CHUNK_BYTES`."""
    return max(1, CHUNK_BYTES // (8 * basis.num_features))


class _Filler:
    """Features of the rows of a chunk, on all cores: each row depends on itself alone, so results do not change."""

    def __init__(self, basis: Basis, single: bool) -> None:
        self._basis, self._single = basis, single
        self._count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._count)

    def __enter__(self) -> _Filler:
        return self

    def __exit__(self, *_: Any) -> None:
        self._pool.shutdown(cancel_futures=True)

    def fill(self, X: np.ndarray, out: np.ndarray) -> None:
        """Write features (n, m) of inputs (n, d)."""
        count = min(self._count, out.size // LEAST) if self._basis.threaded else 1
        if count <= 1:
            self._basis.fill_features(X, out, self._single)
            return
        edges = np.linspace(0, len(X), count + 1).astype(int)
        parts = [slice(*pair) for pair in itertools.pairwise(edges.tolist())]
        list(self._pool.map(lambda part: self._basis.fill_features(X[part], out[part], self._single), parts))


def progress_bar(progress: bool | None, num_chunks: int | None, num_rows: int | None) -> tqdm:
    """A tqdm bar over rows. ``disable=None`` is tqdm's own "only at a terminal"."""
    few = num_chunks is not None and num_chunks < 20
    disable = (True if few else None) if progress is None else not progress
    return tqdm(total=num_rows, disable=disable, unit="row", unit_scale=True, desc="sufficient statistics")
