"""What property tests draw: shapes from few buckets, so that few programs are compiled; scales over many decades."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

#: The same examples at every run; `pytest --hypothesis-seed` is for looking further.
few = settings(derandomize=True, max_examples=25, deadline=None, database=None)

seeds = st.integers(0, 2**32 - 1)


def scales(decades: float) -> st.SearchStrategy[float]:
    """Positive numbers, even in the logarithm."""
    return st.floats(-decades, decades).map(lambda exponent: float(10.0**exponent))


def features(seed: int, n: int, m: int, collinear: float) -> np.ndarray:
    """Normal features whose later columns differ from the first ones by ``collinear`` only."""
    rng = np.random.default_rng(seed)
    Phi = rng.standard_normal((n, m))
    half = m // 2
    Phi[:, half : 2 * half] = Phi[:, :half] + collinear * Phi[:, half : 2 * half]
    return Phi
