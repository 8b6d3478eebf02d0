"""Random subsets of functions: two independent ones a step, as how often each function of their union is in them."""

from __future__ import annotations

import jax
import numpy as np

from .._internal.random import host_generator
from .estimators import Sets


def choose(key: jax.Array, count: int, size: int, dtype: np.dtype, among: np.ndarray | None = None) -> Sets:
    """Two sets without replacement, each of ``size`` of ``count`` functions. O(size log size), whatever their number.

    :param among: the numbers of the functions to choose from, if not all; of fewer than ``size`` all are taken.
    """
    rng = host_generator(key, "choose")
    num_active = count if among is None else len(among)
    taken = min(size, num_active)
    if taken == num_active:
        first = second = np.arange(num_active)
    else:
        first, second = (rng.choice(num_active, taken, replace=False, shuffle=False) for _ in range(2))
    return gathered(first, second, size, count, num_active / taken, dtype, among)


def gathered(
    first: np.ndarray,
    second: np.ndarray,
    size: int,
    count: int,
    share: float,
    dtype: np.dtype,
    among: np.ndarray | None = None,
) -> Sets:
    """The union of two sets, perhaps with repetitions, and how often each of it is in either."""
    numbers, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    union, often = np.full(2 * size, count, dtype=np.int32), np.zeros((2, 2 * size), dtype=dtype)
    union[: len(numbers)] = numbers if among is None else among[numbers]
    for row, part in zip(often, np.split(places.ravel(), [len(first)]), strict=True):
        np.add.at(row, part, 1)
    return Sets(union, often[0], often[1], np.asarray(share, dtype))  # type: ignore[arg-type]
