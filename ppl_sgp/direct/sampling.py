"""Draws from mixtures of factorised distributions over levels."""

from __future__ import annotations

import jax
import numpy as np


def draw_codes(key: jax.Array, mixture_weights: np.ndarray, log_probs: np.ndarray, count: int) -> np.ndarray:
    """Positions of levels, shape (count, b), from a mixture of weights (R,) with log-probabilities (R, b, m̄)."""
    key_component, key_level = jax.random.split(key)
    components = np.asarray(jax.random.categorical(key_component, np.log(mixture_weights), shape=(count,)))
    uniform = np.asarray(jax.random.uniform(key_level, (count, log_probs.shape[1])))
    codes = np.zeros(uniform.shape, dtype=int)
    for component, each in enumerate(log_probs):
        rows = components == component
        cumulative = np.cumsum(np.exp(each), axis=1)
        for level in range(cumulative.shape[1] - 1):  # one after the other: (count, b, m̄) values may not fit
            codes[rows] += uniform[rows] >= cumulative[:, level] / cumulative[:, -1]
    return codes
