"""The sums over rows of arrays in memory, a chunk at a time."""

from __future__ import annotations

from typing import Any

from tqdm.auto import tqdm

from ..bases.basis import Basis
from .moments import Moments
from .rows import validated

#: Bytes of features held at a time when no chunk size is given.
CHUNK_BYTES = 2**25


def moments_of_arrays(
    basis: Basis, X: Any, y: Any, row_weights: Any = None, chunk_size: int | None = None, progress: bool | None = None
) -> Moments:
    """Sums over all rows. O(n m²) time, O(m² + chunk·m) memory beside the arrays.

    :raises ValueError: for rows that cannot be used, or ``chunk_size`` below 1.
    """
    X, y, row_weights = validated(basis, X, y, row_weights)
    size = max(1, CHUNK_BYTES // (8 * basis.num_features)) if chunk_size is None else chunk_size
    if size != int(size) or size < 1:
        raise ValueError(f"sufficient_statistics: `chunk_size` must be a whole number of at least 1; got {chunk_size}.")
    size = int(size)
    starts = range(0, len(X), size)
    total = None
    with progress_bar(progress, len(starts), len(X)) as bar:
        for start in starts:
            rows = slice(start, start + size)
            weights = None if row_weights is None else row_weights[rows]
            part = Moments.of_rows(basis.host_features(X[rows]), X[rows], y[rows], weights)
            total = part if total is None else total + part
            bar.update(len(X[rows]))
    assert total is not None  # at least one row has been validated
    return total


def progress_bar(progress: bool | None, num_chunks: int | None, num_rows: int | None) -> tqdm:
    """A tqdm bar over rows. ``disable=None`` is tqdm's own "only at a terminal"."""
    few = num_chunks is not None and num_chunks < 20
    disable = (True if few else None) if progress is None else not progress
    return tqdm(total=num_rows, disable=disable, unit="row", unit_scale=True, desc="sufficient statistics")
