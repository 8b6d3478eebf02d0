"""Threads of BLAS: small matrices are factorised faster by one.

OpenBLAS wakes all of its threads for matrices of a hundred rows, and they spin while they wait for the next: chains
that are sampled side by side then take twenty times as long (m = 80, 4 chains, 8 threads, 2 cores: 35 s, not 1.7 s).
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import scipy.linalg  # noqa: F401  (loads the BLAS that JAX uses on CPUs, so that it is among those limited)
from threadpoolctl import ThreadpoolController

from .waiting import wait_for

#: Rows up to which matrices are small: as many as `place` looks at by default.
SMALL = 1500


class _Limit:
    """One limit at a time, set and lifted by the thread that came first, which alone may do so.

    While it is there, other threads have it too, and what they enter and leave changes nothing.
    """

    def __init__(self) -> None:
        self._lock, self._owner, self._depth = threading.Lock(), 0, 0
        self._limiter: Any = None

    def enter(self) -> None:
        with self._lock:
            if self._depth == 0:
                self._owner = threading.get_ident()
                self._limiter = _controller().limit(limits=1, user_api="blas")
                self._limiter.__enter__()
            self._depth += self._owner == threading.get_ident()

    def leave(self) -> None:
        with self._lock:
            if self._depth == 0 or self._owner != threading.get_ident():
                return
            self._depth -= 1
            if self._depth == 0:
                self._limiter.__exit__(None, None, None)


_limit = _Limit()


@functools.cache
def _controller() -> ThreadpoolController:
    """The libraries that are loaded; to find them takes milliseconds."""
    return ThreadpoolController()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """One thread of BLAS for what is run inside, such as chains of a model with up to a thousand features.

    What this package runs itself it runs so where matrices are small. ``MCMC.run`` is NumPyro's: on CPUs put it inside,
    or start Python with ``OPENBLAS_NUM_THREADS=1``. At the end it waits for what JAX has still to do, and the threads
    are again as many as before.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> with sgp.one_blas_thread():
        ...     pass  # mcmc.run(jax.random.key(1), stats)
    """
    _limit.enter()
    try:
        yield
        wait_for(jax.live_arrays(), "what was started")
    finally:
        _limit.leave()


def one_thread_if_small(size: int) -> contextlib.AbstractContextManager[None]:
    """One thread of BLAS for matrices of so many rows, if these are few. What is run inside must end inside."""
    return _entered() if size <= SMALL else contextlib.nullcontext()


@contextlib.contextmanager
def _entered() -> Iterator[None]:
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()


def square_of(rows: int, columns: int) -> int:
    """The size of a square matrix of as many numbers."""
    return int((rows * columns) ** 0.5)


def largest_dimension(data: Any) -> int:
    """Of all arrays in a tree."""
    return max((max(np.shape(leaf), default=0) for leaf in jax.tree.leaves(data)), default=0)
