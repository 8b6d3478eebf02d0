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

from .._internal.blas import one_thread_if_small, square_of
from ..statistics.rows import RowArrays
from .arviz_compat import smoothed_log_weights
from .functions import FunctionPosteriors
from .mixture import gaussian_log_density, row_blocks


def loo_pit(posteriors: FunctionPosteriors, training: RowArrays, max_memory: float) -> np.ndarray:
    """Leave-one-out PIT values of each output, shape (q, n); see :func:`~ppl_sgp.plots.plot_loo_pit`."""
    functions = (gaussian_log_density, _normal_distribution)
    density, below = left_out(functions, posteriors, training, None, True, max_memory)
    log_weights = smoothed_log_weights(density.reshape(len(density), -1), "plot_loo_pit")
    return np.sum(np.exp(log_weights).reshape(below.shape) * below, axis=0)


def _normal_distribution(residual: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return ndtr(residual / np.sqrt(variance))


def left_out(
    functions: tuple[Callable[[np.ndarray, np.ndarray], np.ndarray], ...],
    posteriors: FunctionPosteriors,
    training: RowArrays,
    rows: Any,
    residual_variance: bool,
    max_memory: float,
) -> list[np.ndarray]:
    """Functions of chosen rows' residuals and variances given all other rows, (draws, q, rows) each.

    :param training: inputs, outputs and row weights of all training rows, checked.
    :raises ValueError: if the result would exceed ``max_memory``, or if a leverage is too close to one for the
        precision in use.
    """
    X, y, row_weights = training
    omega = np.ones(len(X)) if row_weights is None else row_weights
    chosen = np.arange(len(X))
    if rows is not None:
        try:
            chosen = np.atleast_1d(chosen[rows])
        except (IndexError, TypeError) as error:
            raise ValueError(
                f"leave_one_out: `rows` must be a slice or indices of the {len(X)} rows; got {rows!r}."
            ) from error
        X, y, omega = X[chosen], y[chosen], omega[chosen]
    needed = 8 * posteriors.num_draws * y.size * len(functions)
    if needed > max_memory:
        raise ValueError(
            f"leave_one_out: {posteriors.num_draws} draws of {y.size} densities take {needed / 1e9:.1f} GB, over "
            f"`max_memory` = {max_memory / 1e9:.1f} GB. Pass every k-th draw, "
            "`{name: v[::k] for name, v in samples.items()}`, some `rows` at a time, or raise `max_memory`."
        )
    y_rows = y[None, :] if y.ndim == 1 else y.T
    results = [np.empty((posteriors.num_draws, *y_rows.shape)) for _ in functions]
    per_row = posteriors.numbers_per_row + 6 * posteriors.num_draws * posteriors.num_outputs
    for block in row_blocks(len(X), max(1, int(max_memory // (16 * per_row)))):
        with one_thread_if_small(square_of(len(X), posteriors.numbers_per_row)):
            given = posteriors.at_training_rows(
                chosen[block], X[block], y_rows[:, block], omega[block], residual_variance
            )
            done = 0
            for draws in posteriors.batches():
                part = slice(done, done + len(draws.noise_scale))
                moments = draws.left_out(given)
                for result, function in zip(results, functions, strict=True):
                    result[part, :, block] = function(*moments)
                done = part.stop
    return results
