"""Exact leave-one-out quantities of the collapsed model.

With posterior mean ``f̂ᵢ`` and variance ``vᵢ`` of f at row i and leverage ``hᵢ = vᵢ/σᵢ²``, leaving the row out gives
mean ``yᵢ − (yᵢ − f̂ᵢ)/(1 − hᵢ)`` and variance ``σᵢ²/(1 − hᵢ)`` (Rasmussen & Williams 2006, eqs 5.10-5.12, in weight
space), to which a basis that lacks variance of its kernel at the row adds it, as it does at a new row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr

from ..statistics.same_rows import require_same_rows
from ..statistics.statistics import SufficientStatistics
from .arviz_compat import smoothed_log_weights
from .mixture import gaussian_log_density, row_blocks
from .weights import WeightPosteriors


def loo_pit(
    weights: WeightPosteriors, statistics: SufficientStatistics, X: Any, y: Any, row_weights: Any, max_memory: float
) -> np.ndarray:
    """Leave-one-out PIT values of each output, shape (q, n); see :func:`~ppl_sgp.plots.plot_loo_pit`."""
    functions = (gaussian_log_density, _normal_distribution)
    density, below = left_out(functions, weights, statistics, X, y, row_weights, None, True, max_memory)
    log_weights = smoothed_log_weights(density.reshape(len(density), -1), "plot_loo_pit")
    return np.sum(np.exp(log_weights).reshape(below.shape) * below, axis=0)


def _normal_distribution(residual: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return ndtr(residual / np.sqrt(variance))


def left_out(
    functions: tuple[Callable[[np.ndarray, np.ndarray], np.ndarray], ...],
    weights: WeightPosteriors,
    statistics: SufficientStatistics,
    X: Any,
    y: Any,
    row_weights: Any,
    rows: Any,
    residual_variance: bool,
    max_memory: float,
) -> list[np.ndarray]:
    """Functions of chosen rows' residuals and variances given all other rows, (draws, q, rows) each.

    :raises ValueError: if the rows are not those of the statistics, if the result would exceed ``max_memory``, or if a
        leverage is too close to one for the precision in use.
    """
    X, y, row_weights = require_same_rows(statistics, X, y, row_weights, owner="leave_one_out")
    omega = np.ones(len(X)) if row_weights is None else row_weights
    if rows is not None:
        numbers = np.arange(len(X))
        try:
            chosen = np.atleast_1d(numbers[rows])
        except (IndexError, TypeError) as error:
            raise ValueError(
                f"leave_one_out: `rows` must be a slice or indices of the {len(X)} rows; got {rows!r}."
            ) from error
        X, y, omega = X[chosen], y[chosen], omega[chosen]
    needed = 8 * weights.num_draws * y.size * len(functions)
    if needed > max_memory:
        raise ValueError(
            f"leave_one_out: {weights.num_draws} draws of {y.size} densities take {needed / 1e9:.1f} GB, over "
            f"`max_memory` = {max_memory / 1e9:.1f} GB. Pass every k-th draw, "
            "`{name: v[::k] for name, v in samples.items()}`, some `rows` at a time, or raise `max_memory`."
        )
    y_rows = y[None, :] if y.ndim == 1 else y.T
    results = [np.empty((weights.num_draws, *y_rows.shape)) for _ in functions]
    # A row's features and their products with a factor, and some arrays of its moments at a batch of draws.
    per_row = 3 * statistics.num_features + 6 * weights.num_draws * weights.num_outputs
    for block in row_blocks(len(X), max(1, int(max_memory // (16 * per_row)))):
        Phi, done = statistics.basis.host_features(X[block]), 0
        lacking = statistics.basis.residual_variance(X[block]) * float(residual_variance)
        for draws in weights.batches():
            part = slice(done, done + len(draws.loc))
            noise_variance = draws.noise_scale[..., None] ** 2 / omega[block]
            kept = 1 - draws.variance(Phi) / noise_variance
            _require_resolved(kept, weights.precision)
            residual = (y_rows[:, block] - draws.mean(Phi)) / kept
            variance = noise_variance / kept + draws.residual_amplitude @ lacking
            for result, function in zip(results, functions, strict=True):
                result[part, :, block] = function(residual, variance)
            done = part.stop
    return results


def _require_resolved(kept: np.ndarray, precision: Any) -> None:
    if kept.min() < 1e3 * precision.eps:
        remedy = "Call numpyro.enable_x64() first." if precision.bits < 64 else "Use a larger noise or fewer features."
        raise ValueError(
            f"leave_one_out: a row has leverage 1 − {max(kept.min(), 0):.1e}, too close to one for "
            f"{precision.dtype}: the fit interpolates it. {remedy}"
        )
