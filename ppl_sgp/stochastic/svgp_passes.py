"""Natural steps over all rows, at the end of a fit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm.auto import tqdm

from .batches import RowBatches
from .natural import Natural
from .svgp_step import PointProblem, divergence, full_step, pass_sums

#: Rows at a time, passes at most, and nats that another one must be worth.
BLOCK, PASSES, WORTH = 2048, 5, 0.1


def final_steps(
    problem: PointProblem, parameters: Any, draws: Any, natural: Natural, batches: RowBatches, disable: bool | None
) -> tuple[Natural, float | None]:
    """Natural steps of size one while the bound rises, and the bound of what they reach, on average over draws.

    O(n m²) a pass; for Gaussian noise two: a step, and its bound. Interrupted, the best so far.
    """
    best, best_bound = natural, None
    try:
        for _ in range(PASSES):
            sums, bound = _all_rows(problem, parameters, draws, natural, batches, disable)
            if best_bound is not None and not bound > best_bound:
                break
            settled = best_bound is not None and bound - best_bound < WORTH
            best, best_bound = natural, bound
            if settled:
                break
            natural = full_step(problem, natural, sums)
    except KeyboardInterrupt:
        pass
    return best, best_bound


def _all_rows(
    problem: PointProblem, parameters: Any, draws: Any, natural: Natural, batches: RowBatches, disable: bool | None
) -> tuple[Any, float]:
    total, bound = None, -float(divergence(natural))
    with tqdm(total=batches.num_rows, disable=disable, desc="all rows", unit="rows", leave=False) as bar:
        for X, y in batches.blocks(BLOCK):
            sums, part = pass_sums(problem, parameters, draws, natural, _padded(X, y))
            total = sums if total is None else jax.tree.map(jnp.add, total, sums)
            bound += float(part)
            bar.update(len(X))
    return total, bound


def _padded(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in blocks of one size, the last one repeated with weight zero."""
    missing = BLOCK - len(X)
    weights = np.concatenate([np.ones(len(X), X.dtype), np.zeros(missing, X.dtype)])
    rows = np.concatenate([np.arange(len(X)), np.full(missing, len(X) - 1)])
    return X[rows], y[rows], weights
