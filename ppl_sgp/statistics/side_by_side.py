"""Blocks of rows worked on side by side, in threads, with their results in order."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from threadpoolctl import threadpool_limits

#: Bytes that all workers together may hold: each needs memory for a block and for its products.
WORKERS_BYTES = 2**29


def worker_count(workers: int | None, bytes_each: int, num_rows: int, rows_at_a_time: int) -> int:
    """One worker a core, if there are blocks and memory for all of them."""
    return max(1, min(workers or cores(), -(-num_rows // rows_at_a_time), WORKERS_BYTES // bytes_each))


def cores() -> int:
    """Of this machine, that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Run = Callable[[Callable[..., Any], Iterable[Any], list[Any]], Iterator[Any]]


@contextlib.contextmanager
def side_by_side(count: int) -> Iterator[Run]:
    """A map over blocks in ``count`` threads, results in order; each block has one of the memories for its result.

    BLAS shares the cores among them: on whole blocks side by side it is busier than on one block after the other, whose
    features must be filled in between.
    """
    if count == 1:
        yield lambda function, blocks, memories: (function(block, memories[0]) for block in blocks)
        return

    def run(function: Callable[..., Any], blocks: Iterable[Any], memories: list[Any]) -> Iterator[Any]:
        pending: deque[Future[Any]] = deque()
        for index, block in enumerate(blocks):
            if len(pending) == len(memories):
                yield pending.popleft().result()  # its memory is the one that comes next
            pending.append(pool.submit(function, block, memories[index % len(memories)]))
        while pending:
            yield pending.popleft().result()

    with threadpool_limits(max(1, cores() // count), user_api="blas"):
        pool = ThreadPoolExecutor(count)
        try:
            yield run
        finally:
            pool.shutdown(cancel_futures=True)
