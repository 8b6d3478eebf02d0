"""Minibatches of rows: from arrays and memory maps at random, from chunks, tables and Dask in passes."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.random import host_generator
from ..likelihoods.likelihood import Likelihood
from ..statistics.input_chunks import DaskChunks
from ..statistics.partitions import is_partitioned
from ..tables.chunks import as_triple

#: Rows of chunks that are shuffled together, unless batches are larger.
SHUFFLED = 65_536
#: Rows of a batch, if nothing is said.
ROWS = 500


class Batch(NamedTuple):
    """Some rows, and how many of all each of them stands for.

    :ivar X: inputs, shape (b, d), in JAX's floating dtype, on the host.
    :ivar y: outcomes, shape (b,) or (b, columns).
    :ivar scale: n/b: a sum over the batch times this estimates the sum over all rows without bias.
    :ivar rows: the numbers of the rows, shape (b,); ``None`` where they are read in passes.
    """

    X: np.ndarray
    y: np.ndarray
    scale: float
    rows: np.ndarray | None


class RowBatches(abc.ABC):
    """Random minibatches of n rows, all of one size.

    :ivar num_rows: the number of rows n.
    :ivar input_dim: the number of inputs d.
    :ivar batch_size: rows of a batch b, at most n.
    """

    num_rows: int
    input_dim: int
    batch_size: int

    @property
    def scale(self) -> float:
        """n/b."""
        return self.num_rows / self.batch_size

    @abc.abstractmethod
    def draw(self, key: jax.Array) -> Batch:
        """A batch. O(b d), of arrays whatever n; of chunks reading goes on where it stopped."""

    @abc.abstractmethod
    def some(self, key: jax.Array, count: int) -> Batch:
        """``count`` rows drawn without replacement, all of them if they are no more. O(count), of chunks one pass."""

    @abc.abstractmethod
    def blocks(self, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Inputs and outcomes of all rows once, in their order, at most ``size`` at a time."""


class ArrayBatches(RowBatches):
    """Of arrays that are there: NumPy's, JAX's, memory maps. Made by :func:`row_batches`."""

    def __init__(self, X: np.ndarray, y: np.ndarray, batch_size: int, replace: bool) -> None:
        self._X, self._y, self._replace = X, y, replace
        (self.num_rows, self.input_dim), self.batch_size = X.shape, batch_size

    def draw(self, key: jax.Array) -> Batch:
        rng = host_generator(key, "draw")
        if self._replace:
            rows = rng.integers(0, self.num_rows, self.batch_size)
        else:
            rows = rng.choice(self.num_rows, self.batch_size, replace=False, shuffle=False)
        return self._at(rows)

    def some(self, key: jax.Array, count: int) -> Batch:
        rng = host_generator(key, "some")
        return self._at(rng.choice(self.num_rows, min(count, self.num_rows), replace=False))

    def blocks(self, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, self.num_rows, size):
            rows = slice(start, start + size)
            yield _floating(self._X[rows]), _floating(self._y[rows])

    def _at(self, rows: np.ndarray) -> Batch:
        return Batch(_floating(self._X[rows]), _floating(self._y[rows]), self.num_rows / len(rows), rows)


class ChunkBatches(RowBatches):
    """Of chunks that can be read again and again, in passes, shuffled within some of them. Made by :func:`row_batches`.

    :param read: a function that starts a pass over checked chunks ``(X, y)``.
    :param buffer_size: rows that are in memory, and shuffled, together.
    """

    def __init__(
        self,
        read: Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]],
        batch_size: int | None,
        buffer_size: int,
        owner: str,
    ) -> None:
        self._read = read
        sizes = [X.shape for X, _ in read()]
        if not sizes:
            raise ValueError(f"{owner}: `X` yielded no chunks with rows.")
        self.num_rows, self.input_dim = sum(size for size, _ in sizes), sizes[0][1]
        self.batch_size = _require_batch(batch_size, self.num_rows, owner)
        self._buffer_size = max(buffer_size, self.batch_size)
        self._source: Iterator[tuple[np.ndarray, np.ndarray]] | None = None
        self._waiting: tuple[np.ndarray, np.ndarray] | None = None

    def draw(self, key: jax.Array) -> Batch:
        if self._waiting is None or len(self._waiting[0]) < self.batch_size:
            self._fill(host_generator(key, "draw"))
        assert self._waiting is not None
        X, y = self._waiting
        self._waiting = X[self.batch_size :], y[self.batch_size :]
        return Batch(X[: self.batch_size], y[: self.batch_size], self.scale, None)

    def _fill(self, rng: np.random.Generator) -> None:
        """Rows are read on, those that wait are kept, and all of them shuffled: a pass has every row once."""
        parts = [] if self._waiting is None else [self._waiting]
        count = sum(len(X) for X, _ in parts)
        while count < self._buffer_size:
            if self._source is None:
                self._source = self._read()
            chunk = next(self._source, None)
            if chunk is None:
                self._source = None
                if count >= self.batch_size:
                    break
                continue
            parts.append((_floating(chunk[0]), _floating(chunk[1])))
            count += len(chunk[0])
        order = rng.permutation(count)
        self._waiting = (
            np.concatenate([X for X, _ in parts])[order],
            np.concatenate([y for _, y in parts])[order],
        )

    def some(self, key: jax.Array, count: int) -> Batch:
        rng = host_generator(key, "some")
        wanted = rng.choice(self.num_rows, min(count, self.num_rows), replace=False)
        order = np.sort(wanted)
        parts, first = [], 0
        for X, y in self._read():
            here = order[(order >= first) & (order < first + len(X))] - first
            parts.append((_floating(X[here]), _floating(y[here])))
            first += len(X)
        X, y = (np.concatenate(part) for part in zip(*parts, strict=True))
        shuffled = rng.permutation(len(X))
        return Batch(X[shuffled], y[shuffled], self.num_rows / len(X), None)

    def blocks(self, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for X, y in self._read():
            for start in range(0, len(X), size):
                yield _floating(X[start : start + size]), _floating(y[start : start + size])


def row_batches(
    X: Any,
    y: Any,
    batch_size: int | None,
    *,
    likelihood: Likelihood | None = None,
    replace: bool = False,
    input_dim: int | None = None,
    buffer_size: int = SHUFFLED,
    owner: str = "row_batches",
) -> RowBatches:
    """Random minibatches of rows, all values checked at once. O(n d) once.

    :param X: inputs, shape (n, d): an array or a memory map, which is not copied; an array of Dask; or chunks
        ``(X, y)`` that can be iterated again, such as :func:`~ppl_sgp.table_chunks` of a Parquet file, or a function
        that returns an iterator of them. Chunks are read in passes: batches are rows of ``buffer_size`` consecutive
        ones, shuffled, so estimates are unbiased over a pass, and one by one only where the order of rows is random.
    :param y: outcomes, shape (n,), or the columns that the likelihood wants; ``None`` for chunks.
    :param batch_size: rows of a batch, at most n; ``None`` for 500, or all if there are fewer.
    :param likelihood: whose outcomes they are; ``None`` for numbers with Gaussian noise.
    :param replace: whether a row may be in a batch twice; chunks are read without replacement.
    :param input_dim: the number of inputs wanted; any if ``None``.
    :param buffer_size: rows of chunks that are shuffled together.
    :param owner: who asks, for messages.
    :raises ValueError: for batches larger than n, entries that are not finite, outcomes outside the support, shapes
        that do not fit, an iterator that can be read only once.
    """
    if batch_size is not None:
        batch_size = checks.whole_number("batch_size", batch_size, 1, owner)
    if isinstance(X, Iterator):
        raise ValueError(
            f"{owner}: `X` is an iterator, which can be read once, and rows are read again and again. Pass a list of "
            "chunks, `sgp.table_chunks(...)`, or a function that returns a new iterator."
        )

    def checked(X: Any, y: Any, first_row: int = 0) -> tuple[np.ndarray, np.ndarray]:
        return _checked(X, y, likelihood, input_dim, first_row, owner)

    if is_partitioned(X):
        chunks: Any = DaskChunks(X, y, None)
    elif y is None and (callable(X) or (isinstance(X, Iterable) and not hasattr(X, "shape"))):
        chunks = X
    elif y is None:
        raise ValueError(f"{owner}: `y` is missing; only chunks `(X, y)` bring their own.")
    else:
        X, y = checked(X, y)
        batch_size = _require_batch(batch_size, len(X), owner)
        return ArrayBatches(X, y, batch_size, replace)
    if replace:
        raise ValueError(f"{owner}: chunks are read without replacement; leave `replace=True` out, or pass arrays.")

    def read() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        first = 0
        for chunk in chunks() if callable(chunks) else chunks:
            X, y, weights = as_triple(chunk)
            if weights is not None:
                raise ValueError(f"{owner}: chunks have row weights, which batches do not know. Leave them out.")
            rows = checked(X, y, first)
            first += len(rows[0])
            yield rows

    return ChunkBatches(read, batch_size, buffer_size, owner)


def _checked(
    X: Any, y: Any, likelihood: Likelihood | None, input_dim: int | None, first_row: int, owner: str
) -> tuple[np.ndarray, np.ndarray]:
    X = checks.on_host("X", checks.inputs_matrix(X, input_dim, owner), owner)
    if len(X) == 0:
        raise ValueError(f"{owner}: `X` has no rows; skip empty chunks.")
    checks.require_finite("X", X, owner)
    if likelihood is None:
        y = checks.host_numbers("y", y, owner)
        if y.dtype == np.bool_:
            raise ValueError(
                f"{owner}: `y` is Boolean, and noise would be Gaussian. For classes pass "
                "`likelihood=sgp.likelihoods.Bernoulli()`; to treat 0/1 as numbers, `y.astype(float)`."
            )
        if y.ndim != 1:
            raise ValueError(f"{owner}: `y` must have shape (n,); got {y.shape}. Fit several outputs one at a time.")
        checks.require_finite("y", y, owner)
    else:
        y = likelihood.check(y, first_row, owner)
    if len(y) != len(X):
        raise ValueError(f"{owner}: `X` has {len(X)} rows but `y` has {len(y)}; they must match.")
    return X, y


def _require_batch(batch_size: int | None, num_rows: int, owner: str) -> int:
    if batch_size is not None and batch_size > num_rows:
        raise ValueError(
            f"{owner}: `batch_size` is {batch_size}, and there are only {num_rows} rows. Pass at most that many."
        )
    return min(ROWS, num_rows) if batch_size is None else batch_size


def _floating(rows: np.ndarray) -> np.ndarray:
    """Rows in JAX's floating dtype."""
    return np.asarray(rows, dtype=jnp.result_type(float))
