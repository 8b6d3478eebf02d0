"""The one pass over the data."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tqdm.auto import tqdm

from .._internal import checks
from ..bases.basis import Basis
from ..tables.chunks import TableChunks, as_triple
from .accumulate import moments_of_arrays, progress_bar
from .alike import require_addable
from .checkpoint import Checkpoint, CheckpointError
from .devices import is_sharded, sum_devices
from .moments import Moments
from .partitions import Part, Summed, is_partitioned, kind_of_partitions, sum_partitions
from .root_moments import RootMoments, kind_beside
from .statistics import SufficientStatistics

#: By the name of the method, the class of the sums.
METHODS: dict[str, type[Moments] | None] = {"auto": None, "gram": Moments, "qr": RootMoments}


class ChunkError(ValueError):
    """A pass over data stopped midway: rows were refused, or could not be read. What had been computed is kept.

    :param message: what was wrong.
    :param statistics: the statistics of all chunks before it, or ``None`` if it was the first; of arrays, those of the
        first rows (their ``num_rows`` says how many); of Dask, those of all other partitions.
    """

    def __init__(self, message: str, statistics: SufficientStatistics | None) -> None:
        super().__init__(message)
        self.statistics = statistics


def sufficient_statistics(
    basis: Basis,
    X: Any,
    y: Any = None,
    chunk_size: int | None = None,
    progress: bool | None = None,
    *,
    row_weights: Any = None,
    checkpoint: Any = None,
    float32_features: bool = False,
    method: str = "auto",
) -> SufficientStatistics:
    """Compress n rows, once and without loss, into statistics of size m (Evans 2022, section 5.2).

    Everything is evaluated and summed in float64 on the host, whatever JAX's precision. Takes
    O(n m²) time and, on each core in use, O(m² + m·block) memory, with blocks of 16 MB. Dask's collections are summed
    by its workers, and arrays of JAX that are spread over devices where they are.

    :param basis: the frozen feature map. Of :class:`~ppl_sgp.DerivativeBasis` and :class:`~ppl_sgp.IntegralBasis` the
        result is statistics of the basis whose weights they are of.
    :param X: inputs, shape (n, d), an array of NumPy, JAX or Dask, or a memory map; or an iterable of chunks
        ``(X, y)`` or ``(X, y, row_weights)``, such as :func:`~ppl_sgp.table_chunks` makes of tables. If the basis has a
        recipe (:class:`~ppl_sgp.TableBasis`), a table with inputs and y in it, or an iterable of such tables.
    :param y: outputs, shape (n,), or (n, q) for q outputs that share the inputs. ``None`` if ``X``
        is an iterable of chunks.
    :param chunk_size: rows after which progress is shown and a checkpoint written; default as many as have 128 MB of
        features, of which each core holds 16 MB at a time. Chunks given by an iterable are taken as they come.
    :param progress: show a progress bar. Default: only at a terminal, and if there are many chunks.
    :param row_weights: known relative noise precisions ω, shape (n,): row i has noise variance
        ``noise_scale²/ωᵢ``.
    :param float32_features: evaluate Fourier features (also those of a stack, of some columns, or rotated) in float32,
        which is faster; sums stay in float64. Each feature is off by 1e-7, and the log evidence of 50,000 and 100,000
        rows by less than 0.06 nat with noise down to 1e-4 of the signal.
    :param checkpoint: a file that keeps the sums after each chunk. After an interruption, or a crash, the same call
        goes on where it was, and ends with the same bits; chunks that have been summed are compared, not summed again.
        Not for Dask, which survives lost workers itself, and not for arrays that are spread over devices.
    :param method: ``"gram"``, sums of products; or ``"qr"``, by QR decompositions, some three times slower for many
        rows, for ill-conditioned bases (monomials, splines on fine grids): products lose directions of the weights that
        the features span less than 1e-8 of the strongest, which ``"qr"`` keeps down to 1e-16. ``"auto"`` is ``"qr"``
        where that costs little (up to 4m rows, and small passes), else ``"gram"``, as are sums of both.
    :raises ValueError: for rows that cannot be used, saying which and what to do; for a checkpoint that is damaged, of
        another basis or of other rows, or in use.
    :raises ChunkError: (a ``ValueError``) where a pass that has begun cannot go on: for features that are not finite,
        for chunks that are refused or cannot be read, or on a worker of Dask. It carries the statistics of the rest, as
        does ``KeyboardInterrupt`` between chunks, which ends the pass by Ctrl-C.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 1000)[:, None]
        >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.2), 20, input_dim=1)
        >>> stats = sgp.sufficient_statistics(basis, X, np.sin(9 * X[:, 0]))
        >>> chunks = ((X[i : i + 250], np.sin(9 * X[i : i + 250, 0])) for i in range(0, 1000, 250))
        >>> sgp.sufficient_statistics(basis, chunks).num_rows == stats.num_rows == 1000
        True
    """
    if not isinstance(basis, Basis):
        raise ValueError(
            f"sufficient_statistics: `basis` must be a Basis such as sgp.FourierBasis; got {type(basis).__name__}. "
            "The order is sufficient_statistics(basis, X, y)."
        )
    if basis.recipe is not None:
        X, chunk_size = basis.recipe.source(X, y, chunk_size)
    if float32_features and not basis.has_float32_features:
        raise ValueError(
            f"sufficient_statistics: features of {type(basis).__name__} are evaluated in float64 only; leave "
            "`float32_features` out."
        )
    if method not in METHODS:
        raise ValueError(f"sufficient_statistics: `method` must be one of {', '.join(METHODS)}; got {method!r}.")
    if chunk_size is not None:
        checks.whole_number("chunk_size", chunk_size, 1, "sufficient_statistics")
    chunked = y is None and not hasattr(X, "shape") and isinstance(X, Iterable)
    if chunked and (row_weights is not None or chunk_size is not None):
        raise ValueError(
            "sufficient_statistics: with an iterable of chunks, `row_weights` go into the chunks, "
            "(X, y, row_weights), and `chunk_size` has no meaning; pass neither."
        )
    if y is None and not chunked:
        raise ValueError("sufficient_statistics: `y` is missing. Pass arrays `X, y`, or an iterable of (X, y) chunks.")
    options = (chunk_size, progress, row_weights, checkpoint, float32_features, method)
    return of_weights(_passed(basis, X, y, chunked, *options))


def of_weights(statistics: SufficientStatistics) -> SufficientStatistics:
    """Statistics of the basis whose weights the features are of: of values, where rows were derivatives of f."""
    basis, moments = statistics.basis.weights_of, statistics.moments
    if basis is statistics.basis:
        return statistics
    inputs = {name: getattr(moments, name)[: basis.input_dim] for name in ("x_mean", "x_square", "x_min", "x_max")}
    return SufficientStatistics(basis, dataclasses.replace(moments, **inputs))


def _passed(
    basis: Basis,
    X: Any,
    y: Any,
    chunked: bool,
    chunk_size: int | None,
    progress: bool | None,
    row_weights: Any,
    checkpoint: Any,
    float32_features: bool,
    method: str,
) -> SufficientStatistics:
    kind = METHODS[method]
    if is_partitioned(X):
        kind = kind or kind_of_partitions(X, basis.num_features)
    summed = functools.partial(moments_of_arrays, basis, single=float32_features, kind=kind)
    if is_partitioned(X):
        _refuse("summed by Dask", {"checkpoint": checkpoint}, "Dask computes parts of lost workers again by itself.")
        within = functools.partial(summed, chunk_size=chunk_size, progress=False, workers=1)
        return _of_partitions(basis, X, sum_partitions(within, X, y, row_weights, progress))
    if is_sharded(X):
        options = {"checkpoint": checkpoint, "float32_features": float32_features, "method": method == "qr"}
        _refuse("spread over devices", options, "Leave them out, or pass NumPy arrays.")
        return SufficientStatistics(basis, sum_devices(basis, X, y, row_weights, chunk_size))
    with _checkpoint(checkpoint, basis, float32_features, kind) as kept:
        if chunked:
            return _of_chunks(basis, X, progress_bar(progress, None, None), kept, summed, kind)
        summed = functools.partial(summed, chunk_size=chunk_size, progress=progress, checkpoint=kept)
        return _of_arrays(basis, (X, y, row_weights), summed)


def _refuse(where: str, options: dict[str, Any], remedy: str) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise ValueError(f"sufficient_statistics: rows {where} do not go with `{'`, `'.join(given)}`. {remedy}")


def _checkpoint(
    path: Any, basis: Basis, single: bool, kind: type[Moments] | None
) -> AbstractContextManager[Checkpoint | None]:
    return nullcontext() if path is None else Checkpoint(path, basis, single, kind)


def _of_partitions(basis: Basis, source: Any, part: Part) -> SufficientStatistics:
    if isinstance(source, TableChunks):
        source.num_dropped = part.dropped
    statistics = None if part.moments is None else SufficientStatistics(basis, part.moments)
    if part.refused:
        raise ChunkError(
            f"{len(part.refused)} parts of the data were refused. {part.refused[0]} The statistics of all other parts "
            "are in this error's `.statistics`; go on with `.update(X, y)`.",
            statistics,
        )
    if statistics is None:
        raise ValueError("sufficient_statistics: the partitions have no rows.")
    return statistics


def _of_arrays(basis: Basis, rows: tuple[Any, Any, Any], summed: Summed) -> SufficientStatistics:
    try:
        return SufficientStatistics(basis, summed(*rows))
    except Exception as error:
        moments = getattr(error, "moments", None)
        if moments is None:  # no rows have been summed
            raise
        statistics = SufficientStatistics(basis, moments)
        k = statistics.num_rows
        raise ChunkError(
            f"{error} The statistics of the first {k} rows are in this error's `.statistics`; go on with "
            f"`.update(X[{k}:], y[{k}:])`.",
            statistics,
        ) from error


def _of_chunks(
    basis: Basis,
    chunks: Iterable[Any],
    bar: tqdm,
    checkpoint: Checkpoint | None,
    summed: Summed,
    kind: type[Moments] | None,
) -> SufficientStatistics:
    statistics, index = None, 0
    if checkpoint is not None and checkpoint.moments is not None:
        statistics = SufficientStatistics(basis, checkpoint.moments)
    try:
        with bar:
            for chunk in chunks:
                X, y, row_weights = as_triple(chunk)
                if checkpoint is None or not checkpoint.covers(index, X, y, row_weights):
                    beside = kind if statistics is None else kind or kind_beside(statistics.moments)
                    moments = summed(X, y, row_weights, progress=False, kind=beside)
                    if statistics is not None:
                        require_addable(basis, statistics.moments, basis, moments)
                        moments = statistics.moments + moments
                    statistics = SufficientStatistics(basis, moments)
                    if checkpoint is not None:
                        checkpoint.record(moments, X, y, row_weights)
                index += 1
                bar.update(len(X))
    except CheckpointError:
        raise
    except Exception as error:
        raise ChunkError(
            f"chunk {index}: {str(error) or repr(error)} The statistics of the chunks before it are in this error's "
            "`.statistics`; go on with `.update(X, y)`.",
            statistics,
        ) from error
    except KeyboardInterrupt as interrupt:
        vars(interrupt)["statistics"] = statistics
        interrupt.add_note(f"The statistics of the {index} chunks before are in this interrupt's `.statistics`.")
        raise
    if checkpoint is not None:
        checkpoint.require_no_more(index)
    if statistics is None:
        raise ValueError("sufficient_statistics: the iterable yielded no chunks.")
    return statistics
