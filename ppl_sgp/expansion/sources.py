"""Where rows come from, for many passes: arrays, chunks that can be read again, collections of Dask."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from tqdm.auto import tqdm

from .._internal import checks
from .._internal.extras import optional_import
from ..bases.basis import Basis
from ..likelihoods.likelihood import Likelihood
from ..statistics.accumulate import default_chunk_size
from ..statistics.partitions import FAN_IN, aligned, is_partitioned
from ..tables.chunks import TableChunks
from ..tables.readers import is_table
from ..tables.recipe import Recipe, rows_of_table
from .passes import LikelihoodRows, sum_rows
from .sums import Point, Sums

OWNER = "compress_likelihood"


def checked_offset(
    offset: Any, likelihood: Likelihood, num_rows: int, first_row: int = 0, owner: str = OWNER
) -> np.ndarray:
    """Offsets of the shape of the predictors, all finite."""
    offset, K = checks.host_numbers("offset", offset, owner), likelihood.num_latents
    wanted = (num_rows,) if K == 1 else (num_rows, K)
    if offset.shape != wanted:
        raise ValueError(f"{owner}: `offset` must have shape {wanted}, that of the predictors; got {offset.shape}.")
    bad = np.flatnonzero(~np.isfinite(offset.reshape(num_rows, -1)).all(axis=1))
    if len(bad):
        raise ValueError(
            f"{owner}: `offset` is not finite at {len(bad)} rows (first: row {first_row + bad[0]}, "
            f"{offset[bad[0]]}). An exposure of zero has no logarithm: such rows say nothing, so leave them out."
        )
    return offset


class Scan(NamedTuple):
    """What a first look at all rows found: their number, and some of them, in a random order."""

    num_rows: int
    some: LikelihoodRows


class Source(abc.ABC):
    """Rows that can be read again and again.

    :param basis: the frozen basis.
    :param likelihood: the likelihood of the rows.
    """

    def __init__(self, basis: Basis, likelihood: Likelihood, single: bool) -> None:
        self.basis, self.likelihood, self.single = basis, likelihood, single

    @abc.abstractmethod
    def scan(self, count: int) -> Scan:
        """Check all rows, and take ``count`` of them at random, or all if there are fewer. O(n d)."""

    @abc.abstractmethod
    def sums(self, point: Point, bar: tqdm) -> Sums:
        """One pass over all rows."""

    @abc.abstractmethod
    def total(self, of: Callable[[LikelihoodRows], np.ndarray], bar: tqdm) -> np.ndarray:
        """The sum over blocks of rows of an array that is made of each."""

    def validated(self, X: Any, y: Any, row_weights: Any, offset: Any, first_row: int = 0) -> LikelihoodRows:
        """Rows whose values are usable.

        :raises ValueError: for shapes that do not fit, entries that are not finite, or outcomes outside the support.
        """
        X = checks.on_host("X", checks.inputs_matrix(X, self.basis.input_dim, OWNER), OWNER)
        if len(X) == 0:
            raise ValueError(f"{OWNER}: `X` has no rows; skip empty chunks.")
        checks.require_finite("X", X, OWNER)
        y = self.likelihood.check(y, first_row, OWNER)
        if len(y) != len(X):
            raise ValueError(f"{OWNER}: `X` has {len(X)} rows but `y` has {len(y)}; they must match.")
        if offset is not None:
            offset = checked_offset(offset, self.likelihood, len(X), first_row)
        return LikelihoodRows(
            X, y, offset, None if row_weights is None else checks.row_precisions(row_weights, len(X), OWNER)
        )


class ArraySource(Source):
    """Arrays of NumPy, memory maps, or of JAX."""

    def __init__(self, basis: Basis, likelihood: Likelihood, single: bool, arrays: tuple[Any, ...], size: Any) -> None:
        super().__init__(basis, likelihood, single)
        self.rows, self._size = self.validated(*arrays), size
        self.num_rows = len(self.rows.X)

    def scan(self, count: int) -> Scan:
        rng = np.random.default_rng(0)
        chosen = np.sort(rng.choice(self.num_rows, min(count, self.num_rows), replace=False))
        return Scan(self.num_rows, _shuffled(rng, self.rows.take(chosen)))

    def sums(self, point: Point, bar: tqdm) -> Sums:
        return sum_rows(self.basis, self.rows, point, chunk_size=self._size, bar=bar, single=self.single)

    def total(self, of: Callable[[LikelihoodRows], np.ndarray], bar: tqdm) -> np.ndarray:
        size = default_chunk_size(self.basis) if self._size is None else self._size
        total = np.zeros(())
        for start in range(0, self.num_rows, size):
            rows = self.rows.take(slice(start, start + size))
            total = total + of(rows)
            bar.update(len(rows.X))
        return total


class ChunkSource(Source):
    """Chunks ``(X, y)``, ``(X, y, row_weights)`` or ``(X, y, row_weights, offset)`` that can be iterated again."""

    def __init__(self, basis: Basis, likelihood: Likelihood, single: bool, chunks: Any) -> None:
        super().__init__(basis, likelihood, single)
        self._chunks, self._num_rows = chunks, 0
        if not callable(chunks) and isinstance(chunks, Iterator):
            raise ValueError(
                f"{OWNER} reads the rows several times, but `X` is an iterator, which can be read once. Pass a list, "
                "`sgp.table_chunks(...)`, or a function that returns a new iterator, such as `lambda: read_chunks()`."
            )

    def _read(self) -> Iterator[LikelihoodRows]:
        first = 0
        for chunk in self._chunks() if callable(self._chunks) else self._chunks:
            rows = self.validated(*_as_quadruple(chunk), first_row=first)
            first += len(rows.X)
            yield rows
        if not first:
            raise ValueError(f"{OWNER}: the iterable yielded no chunks.")
        if self._num_rows not in (0, first):
            raise ValueError(
                f"{OWNER}: the chunks had {self._num_rows} rows at first, and {first} when read again. Pass chunks "
                "that are the same each time."
            )

    def scan(self, count: int) -> Scan:
        sample = _Reservoir(count)
        for rows in self._read():
            sample.add(rows)
        self._num_rows = sample.seen
        return Scan(sample.seen, sample.rows())

    def sums(self, point: Point, bar: tqdm) -> Sums:
        total: Sums | None = None
        for rows in self._read():
            part = sum_rows(self.basis, rows, point, single=self.single)
            total = part if total is None else total + part
            bar.update(len(rows.X))
        assert total is not None
        return total

    def total(self, of: Callable[[LikelihoodRows], np.ndarray], bar: tqdm) -> np.ndarray:
        total = np.zeros(())
        for rows in self._read():
            total = total + of(rows)
            bar.update(len(rows.X))
        return total


class DaskSource(Source):
    """Arrays or tables of Dask: each partition is summed by a worker, and sums are joined in a tree."""

    def __init__(self, basis: Basis, likelihood: Likelihood, single: bool, arrays: tuple[Any, ...]) -> None:
        super().__init__(basis, likelihood, single)
        self._dask = optional_import("dask", "dask", f"{OWNER}: rows in collections of Dask")
        X, y, row_weights, offset = arrays
        if isinstance(X, TableChunks):
            frames = X.table[X.columns].to_delayed()
            self._blocks = [self._dask.delayed(_rows_of_frame)(X.chunks_of, frame) for frame in frames]
        else:
            blocks = zip(*aligned(X, y, row_weights, offset), strict=True)
            self._blocks = [self._dask.delayed(tuple)(list(block)) for block in blocks]

    def scan(self, count: int) -> Scan:
        parts = [self._dask.delayed(self._look)(block, count, i) for i, block in enumerate(self._blocks)]
        found = [part for part in self._dask.compute(*parts) if part is not None]
        if not found:
            raise ValueError(f"{OWNER}: the partitions have no rows.")
        num_rows, rng = sum(part.num_rows for part in found), np.random.default_rng(0)
        # Of each partition as many as its share of the rows.
        shares = [int(np.ceil(count * part.num_rows / num_rows)) for part in found]
        some = _joined([part.some.take(slice(share)) for part, share in zip(found, shares, strict=True)])
        return Scan(num_rows, _shuffled(rng, some).take(slice(count)))

    def _look(self, block: Any, count: int, index: int) -> Scan | None:
        if len(block[0]) == 0:
            return None
        try:
            rows = self.validated(*block)
        except ValueError as error:
            raise ValueError(f"partition {index}: {error}") from error
        rng = np.random.default_rng(index)
        chosen = rng.choice(len(rows.X), min(count, len(rows.X)), replace=False)
        return Scan(len(rows.X), rows.take(chosen))

    def sums(self, point: Point, bar: tqdm) -> Sums:
        summed = self._dask.delayed(self._sums_of, traverse=False)
        shared = self._dask.delayed(point, traverse=False)
        parts = [summed(block, shared) for block in self._blocks]
        while len(parts) > 1:
            parts = [self._dask.delayed(_total)(parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN)]
        total = parts[0].compute()
        bar.update(bar.total - bar.n)
        return total

    def total(self, of: Callable[[LikelihoodRows], np.ndarray], bar: tqdm) -> np.ndarray:
        part = self._dask.delayed(self._part_of, traverse=False)
        shared = self._dask.delayed(of, traverse=False)
        parts = self._dask.compute(*[part(block, shared) for block in self._blocks])
        bar.update(bar.total - bar.n)
        return np.asarray(sum(each for each in parts if each is not None))

    def _part_of(self, block: Any, of: Callable[[LikelihoodRows], np.ndarray]) -> np.ndarray | None:
        return None if len(block[0]) == 0 else of(self.validated(*block))

    def _sums_of(self, block: Any, point: Point) -> Sums | None:
        if len(block[0]) == 0:
            return None
        return sum_rows(self.basis, self.validated(*block), point, single=self.single, workers=1)

    def __getstate__(self) -> dict[str, Any]:
        """What workers need: not the blocks of others."""
        return {**self.__dict__, "_blocks": None, "_dask": None}


def source_of(
    basis: Basis, likelihood: Likelihood, arrays: tuple[Any, ...], chunk_size: int | None = None, single: bool = False
) -> Source:
    """Rows wherever they come from: inputs, outcomes, row weights and offsets."""
    if basis.recipe is not None:
        arrays, chunk_size = _by_recipe(basis.recipe, arrays, chunk_size)
    X, y, row_weights, offset = arrays
    if is_partitioned(X):
        return DaskSource(basis, likelihood, single, arrays)
    if y is None and not hasattr(X, "shape") and (callable(X) or isinstance(X, Iterable)):
        if row_weights is not None or offset is not None or chunk_size is not None:
            raise ValueError(
                f"{OWNER}: with chunks, row weights and offsets go into them, (X, y, row_weights, offset), and "
                "`chunk_size` has no meaning."
            )
        return ChunkSource(basis, likelihood, single, X)
    if y is None:
        raise ValueError(f"{OWNER}: `y` is missing. Pass arrays `X, y`, or chunks and `y=None`.")
    return ArraySource(basis, likelihood, single, arrays, chunk_size)


def _by_recipe(recipe: Recipe, arrays: tuple[Any, ...], chunk_size: int | None) -> tuple[tuple[Any, ...], int | None]:
    """Rows where tables stood, to be read in chunks unless other arrays come beside them; and the size of chunks."""
    X, y, row_weights, offset = arrays
    if is_table(X) and (row_weights is not None or offset is not None):
        return (*rows_of_table(recipe, X, y, row_weights), offset), chunk_size
    if y is None and callable(X):
        return (lambda: recipe.source(X(), None, None)[0], None, row_weights, offset), chunk_size
    if not isinstance(X, Iterator):  # which is refused, since rows are read several times
        X, chunk_size = recipe.source(X, y, chunk_size)
    return (X, y, row_weights, offset), chunk_size


class _Reservoir:
    """A uniform sample of at most ``count`` of the rows of chunks: those with the smallest of random keys."""

    def __init__(self, count: int) -> None:
        self._count, self.seen = count, 0
        self._rng = np.random.default_rng(0)
        self._keys: np.ndarray = np.zeros(0)
        self._rows: LikelihoodRows | None = None

    def add(self, rows: LikelihoodRows) -> None:
        """Let rows of a chunk in."""
        keys = self._rng.random(len(rows.X))
        self.seen += len(keys)
        limit = np.inf if len(self._keys) < self._count else self._keys.max()
        low = np.flatnonzero(keys < limit)
        low = low[np.argsort(keys[low])][: self._count]
        if not len(low):
            return
        entering, keys = rows.take(np.sort(low)), keys[np.sort(low)]
        together = entering if self._rows is None else _joined([self._rows, entering])
        keys = np.concatenate([self._keys, keys])
        kept = np.argsort(keys)[: self._count]
        self._keys, self._rows = keys[kept], together.take(kept)

    def rows(self) -> LikelihoodRows:
        """The sample, in a random order."""
        assert self._rows is not None
        return self._rows


def _shuffled(rng: np.random.Generator, rows: LikelihoodRows) -> LikelihoodRows:
    return rows.take(rng.permutation(len(rows.X)))


def _joined(parts: list[LikelihoodRows]) -> LikelihoodRows:
    kinds = {tuple(array is None for array in part) for part in parts}
    if len(kinds) > 1:
        raise ValueError(f"{OWNER}: some chunks have offsets or row weights, others do not; give all of them the same.")
    return LikelihoodRows(
        *(None if arrays[0] is None else np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    )


def _total(parts: Iterable[Sums | None]) -> Sums | None:
    total = None
    for part in parts:
        total = part if total is None else total if part is None else total + part
    return total


def _rows_of_frame(chunks_of: Callable[[Any], TableChunks], frame: Any) -> tuple[Any, ...]:
    chunks = [_as_quadruple(chunk) for chunk in chunks_of(frame)]
    if not chunks:
        return (np.zeros((0, 1)), None, None, None)
    return tuple(None if parts[0] is None else np.concatenate(parts) for parts in zip(*chunks, strict=True))


def _as_quadruple(chunk: Any) -> tuple[Any, Any, Any, Any]:
    if not isinstance(chunk, (tuple, list)) or not 2 <= len(chunk) <= 4:
        raise ValueError(
            f"{OWNER}: each chunk must be (X, y), (X, y, row_weights) or (X, y, row_weights, offset); got "
            f"{type(chunk).__name__}. If this is one array of inputs, pass `y` as the third argument."
        )
    X, y, *rest = chunk
    return (X, y, *rest, *[None] * (2 - len(rest)))
