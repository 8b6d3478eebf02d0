"""Generated rows of 11 inputs with a known function, as many as the UCI set `electric` has, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

INPUTS, CHUNK, NOISE, ROWS = 11, 2**16, 0.5, 2_049_280


def rows(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and the noise-free function: smooth, of variance about one."""
    X = np.random.default_rng([1, seed]).normal(size=(n, INPUTS))
    f = np.sin(X[:, 0]) + 0.7 * np.cos(1.5 * X[:, 1]) * np.tanh(X[:, 2]) + 0.5 * X[:, 3] + 0.2 * X[:, 4] * X[:, 5]
    return X, f


def chunks(n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for seed, start in enumerate(range(0, n, CHUNK)):
        X, f = rows(seed, min(CHUNK, n - start))
        yield X, f + NOISE * np.random.default_rng([2, seed]).normal(size=len(f))
