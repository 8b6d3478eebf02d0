"""Waiting for what JAX computes in the background, and saying so where it takes longer than a moment."""

from __future__ import annotations

import time
from typing import Any

import jax
from tqdm.auto import tqdm

#: Seconds after which a wait is announced, and between looks.
SILENT, LOOK = 1.0, 0.02


def wait_for(values: Any, what: str) -> None:
    """Until all arrays of a tree are there; at a terminal the time that it takes is shown.

    JAX returns from a call before the result is there, so that the time of sampling would pass in whatever reads the
    draws first. A wait can be interrupted, and what is computed goes on.

    :param what: what is waited for, in words.
    """
    leaves = (leaf for leaf in jax.tree.leaves(values) if isinstance(leaf, jax.Array))
    arrays = [leaf for leaf in leaves if not (isinstance(leaf, jax.core.Tracer) or leaf.is_deleted())]
    waiting = [array for array in arrays if not _ready(array)]
    start = time.monotonic()
    while waiting and time.monotonic() - start < SILENT:
        time.sleep(LOOK)
        waiting = [array for array in waiting if not _ready(array)]
    if waiting:
        with tqdm(disable=None, bar_format="{desc} [{elapsed}]", desc=f"waiting for {what}") as bar:
            while waiting:
                time.sleep(LOOK)
                bar.update()
                waiting = [array for array in waiting if not _ready(array)]
    jax.block_until_ready([array for array in arrays if not array.is_deleted()])  # raises what went wrong


def _ready(array: jax.Array) -> bool:
    return array.is_deleted() or array.is_ready()  # type: ignore[attr-defined]
