"""Inputs that are not in memory: chunks of any sizes, read again and again in blocks of one size."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from .._internal.extras import optional_import
from ..tables.chunks import as_triple
from .partitions import aligned

#: Readers of one source that stay open, one for each of the chains that read it side by side.
MOST_OPEN = 8


class InputChunks:
    """The inputs of chunks ``(X, y)`` or ``(X, y, row_weights)`` that can be iterated again, checked before.

    :param chunks: the chunks.
    :param num_rows: how many rows they have together.
    :param input_dim: how many inputs.
    """

    def __init__(self, chunks: Iterable[Any], num_rows: int, input_dim: int) -> None:
        self.chunks, self.num_rows, self.input_dim = chunks, num_rows, input_dim
        self._readers: dict[int, Callable[[Any], np.ndarray]] = {}

    def reader(self, size: int) -> Callable[[Any], np.ndarray]:
        """A function from i to the inputs of the i-th ``size`` rows, the same object for the same size."""
        return self._readers.setdefault(size, BlockReader(self, size))

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """The inputs of rows with these numbers, in ascending order, by one pass."""
        found, first = [], 0
        for X in self:
            here = numbers[(numbers >= first) & (numbers < first + len(X))]
            found.append(X[here - first])
            first += len(X)
        return np.concatenate(found)

    def __iter__(self) -> Iterator[np.ndarray]:
        count = 0
        for chunk in self.chunks:
            X = np.asarray(as_triple(chunk)[0], dtype=np.float64)
            count += len(X)
            yield X
        if count != self.num_rows:
            raise ValueError(f"rows: the chunks had {self.num_rows} rows at first, and {count} when read again.")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {}}


class BlockReader:
    """Blocks of rows of one size, by number; the last one is filled up with zeros.

    In their order they cost one pass. A reader that stands where the next block begins is used, whoever opened it:
    all read the same.
    """

    def __init__(self, inputs: InputChunks, size: int) -> None:
        self.inputs, self.size = inputs, size
        self._lock, self._open = threading.Lock(), list[tuple[int, Iterator[np.ndarray]]]()

    def __call__(self, index: Any) -> np.ndarray:
        wanted = int(np.asarray(index))
        with self._lock:
            standing = [i for i, (next_block, _) in enumerate(self._open) if next_block == wanted]
            reader = self._open.pop(standing[0])[1] if standing else None
        if reader is None:
            reader = self._blocks()
            for _ in range(wanted):
                next(reader)
        block = next(reader)
        if (wanted + 1) * self.size < self.inputs.num_rows:
            with self._lock:
                self._open = [(wanted + 1, reader), *self._open][:MOST_OPEN]
        else:
            next(reader, None)  # the rows are counted at the end
        return block

    def _blocks(self) -> Iterator[np.ndarray]:
        block, filled = np.zeros((self.size, self.inputs.input_dim)), 0
        for X in self.inputs:
            while len(X):
                taken = X[: self.size - filled]
                block[filled : filled + len(taken)] = taken
                filled, X = filled + len(taken), X[len(taken) :]
                if filled == self.size:
                    yield block
                    block, filled = np.zeros_like(block), 0
        if filled:
            yield block


class DaskChunks:
    """Blocks of rows of arrays of Dask, computed one after the other."""

    def __init__(self, *arrays: Any) -> None:
        self._arrays = arrays

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        dask = optional_import("dask", "dask", "rows: arrays of Dask")
        for block in zip(*aligned(*self._arrays), strict=True):
            X, y, row_weights = dask.compute(*block)
            if len(X):
                yield X, y, row_weights


class Spread:
    """Count, mean and standard deviation of the columns of rows that come in chunks."""

    def __init__(self) -> None:
        self.count, self.mean, self._square = 0, np.zeros(0), np.zeros(0)
        self._low, self._high = np.zeros(0), np.zeros(0)

    def add(self, X: np.ndarray) -> None:
        """Further rows, at least one."""
        k, mean = len(X), X.mean(axis=0)
        square, low, high = np.sum((X - mean) ** 2, axis=0), X.min(axis=0), X.max(axis=0)
        if self.count == 0:
            self.count, self.mean, self._square, self._low, self._high = k, mean, square, low, high
            return
        total, difference = self.count + k, mean - self.mean
        self._square = self._square + square + difference**2 * (self.count * k / total)
        self.count, self.mean = total, self.mean + difference * (k / total)
        self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)

    @property
    def range(self) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest values."""
        return self._low, self._high

    @property
    def scale(self) -> np.ndarray:
        """Standard deviations, zero for columns that never vary."""
        return (self._high > self._low) * np.sqrt(self._square / self.count)
