"""The exact log likelihood of the rows of a compressed likelihood, wherever they come from."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..statistics.accumulate import progress_bar
from .compressed_likelihood import CompressedLikelihood
from .log_likelihoods import log_likelihoods
from .sources import source_of


def exact_log_likelihoods(
    data: CompressedLikelihood,
    weights: np.ndarray,
    parameters: np.ndarray,
    X: Any,
    y: Any = None,
    row_weights: Any = None,
    offset: Any = None,
    progress: bool | None = None,
) -> np.ndarray:
    """``log p(y | w, λ)`` at each of S draws, nats, shape (S,), by one pass over the rows. O(n·m·S·K).

    :param data: what the rows were compressed to.
    :param weights: shape (S, K, m); ``parameters`` of the likelihood, unconstrained, (S, p).
    :param X: the rows, as :func:`~ppl_sgp.compress_likelihood` took them: arrays, chunks, tables, Dask.
    :raises ValueError: if there are not as many rows.
    """
    source = source_of(data.basis, data.likelihood, (X, y, row_weights, offset))
    of = functools.partial(
        _counted, basis=data.basis, likelihood=data.likelihood, weights=weights, parameters=parameters
    )
    with progress_bar(progress, None, data.num_rows) as bar:
        bar.set_description("exact likelihood of draws")
        total = source.total(of, bar)
    if total[0] != data.num_rows:
        raise ValueError(
            f"importance_weights: the statistics are of {data.num_rows} rows; got {int(total[0])}. Pass exactly the "
            "rows that were compressed."
        )
    return total[1:]


def _counted(rows: Any, **of: Any) -> np.ndarray:
    return np.concatenate([[len(rows.X)], log_likelihoods(rows, **of)])
