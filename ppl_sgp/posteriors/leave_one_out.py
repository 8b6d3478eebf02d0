"""Exact leave-one-out densities of the collapsed model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr

from .._internal import checks
from ..statistics.rows import validated
from ..statistics.statistics import SufficientStatistics
from .arviz_compat import smoothed_log_weights
from .draws import Draws
from .prediction import gaussian_log_density


def leave_one_out(
    model: Callable[..., Any],
    samples: dict[str, Any],
    statistics: SufficientStatistics,
    X: Any,
    y: Any,
    *,
    row_weights: Any = None,
    site: str | None = None,
    max_memory: float = 2e9,
) -> np.ndarray:
    """``log p(y_i | y_-i, θ_s)`` for every training row and draw: what importance-sampled LOO needs.

    With posterior mean ``f̂ᵢ`` and variance ``vᵢ`` of f at row i and leverage ``hᵢ = vᵢ/σᵢ²``, leaving
    the row out gives mean ``yᵢ − (yᵢ − f̂ᵢ)/(1 − hᵢ)`` and variance ``σᵢ²/(1 − hᵢ)`` (Rasmussen &
    Williams 2006, eqs 5.10-5.12, in weight space). O(m²) a row and draw. For a model with explicit
    weights the same call gives ``log p(y_i | w_s, θ_s)``.

    :param model: the NumPyro model, of one argument: the statistics.
    :param samples: draws with the draws along the first axis, as ``mcmc.get_samples()``.
    :param statistics: the statistics of exactly these rows.
    :param X: the training inputs, shape (n, d).
    :param y: the training outputs, shape (n,) or (n, q).
    :param row_weights: the relative noise precisions given to ``sufficient_statistics``, if any.
    :param site: name of the observed site, if the model has several.
    :param max_memory: bytes that the result may take.
    :return: log densities in nats, shape (draws, n) or (draws, n, q).
    :raises ValueError: if the rows are not those of the statistics, if the result would exceed
        ``max_memory``, or if a leverage is too close to one for the precision in use.

    .. doctest::

        >>> import jax, jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> y = np.sin(6 * X[:, 0]) + 0.1 * np.cos(50 * X[:, 0])
        >>> stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 20), X, y)
        >>> draws = {"lengthscale": jnp.array([0.3]), "amplitude": jnp.ones(1), "noise_scale": jnp.full(1, 0.1)}
        >>> sgp.leave_one_out(sgp.models.fourier_gp(), draws, stats, X, y).shape
        (1, 40)
    """
    (result,) = _left_out((gaussian_log_density,), model, samples, statistics, X, y, row_weights, site, max_memory)
    return result[:, 0] if np.ndim(y) == 1 else np.moveaxis(result, 1, 2)


def loo_pit(
    model: Callable[..., Any],
    samples: dict[str, Any],
    statistics: SufficientStatistics,
    X: Any,
    y: Any,
    row_weights: Any,
    site: str | None,
    max_memory: float,
) -> np.ndarray:
    """Leave-one-out PIT values of each output, shape (q, n); see :func:`~ppl_sgp.plots.plot_loo_pit`."""
    density, below = _left_out(
        (gaussian_log_density, _normal_distribution),
        *(model, samples, statistics, X, y, row_weights, site, max_memory),
    )
    log_weights = smoothed_log_weights(density.reshape(len(density), -1), "plot_loo_pit")
    return np.sum(np.exp(log_weights).reshape(below.shape) * below, axis=0)


def _normal_distribution(residual: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return ndtr(residual / np.sqrt(variance))


def _left_out(
    functions: tuple[Callable[[np.ndarray, np.ndarray], np.ndarray], ...],
    model: Callable[..., Any],
    samples: dict[str, Any],
    statistics: SufficientStatistics,
    X: Any,
    y: Any,
    row_weights: Any,
    site: str | None,
    max_memory: float,
) -> list[np.ndarray]:
    """Functions of each row's residual and variance given the other rows, (draws, q, n) each."""
    X, y, row_weights = validated(statistics.basis, X, y, row_weights, "leave_one_out")
    _require_same_rows(statistics, y, row_weights)
    max_memory = checks.memory_cap(max_memory, "leave_one_out")
    draws = Draws(model, samples, statistics, site, max_memory)
    needed = 8 * draws.num_draws * y.size * len(functions)
    if needed > max_memory:
        raise ValueError(
            f"leave_one_out: {draws.num_draws} draws of {y.size} densities take {needed / 1e9:.1f} GB, over "
            f"`max_memory` = {max_memory / 1e9:.1f} GB. Pass every k-th draw, "
            "`{name: v[::k] for name, v in samples.items()}`, or raise `max_memory`."
        )
    y_rows = y[None, :] if y.ndim == 1 else y.T
    omega = np.ones(len(X)) if row_weights is None else row_weights
    results = [np.empty((draws.num_draws, *y_rows.shape)) for _ in functions]
    size = max(1, int(max_memory // (64 * statistics.num_features)))
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        done = 0
        for mean, variance, noise in draws.pointwise(statistics.basis.host_features(X[rows])):
            noise_variance = noise[..., None] ** 2 / omega[rows]
            kept = 1 - variance / noise_variance
            _require_resolved(kept, draws.precision)
            for result, function in zip(results, functions, strict=True):
                part = function((y_rows[:, rows] - mean) / kept, noise_variance / kept)
                result[done : done + len(mean), :, rows] = part
            done += len(mean)
    return results


def _require_same_rows(statistics: SufficientStatistics, y: np.ndarray, row_weights: np.ndarray | None) -> None:
    weights = np.ones(len(y)) if row_weights is None else row_weights
    sum_squares, expected = weights @ y**2, statistics.moments.sum_squares
    if len(y) != statistics.num_rows or np.shape(sum_squares) != np.shape(expected):
        raise ValueError(
            f"leave_one_out: the statistics are of {statistics.num_rows} rows with {statistics.num_outputs} output(s); "
            f"got y of shape {y.shape}. Pass exactly the rows that were compressed."
        )
    if not np.allclose(sum_squares, expected, rtol=1e-8):
        raise ValueError(
            "leave_one_out: `y` (or `row_weights`) is not what was compressed: its sum of squares differs "
            f"({sum_squares} against {expected}). Pass the same rows in the same units."
        )


def _require_resolved(kept: np.ndarray, precision: Any) -> None:
    if kept.min() < 1e3 * precision.eps:
        remedy = "Call numpyro.enable_x64() first." if precision.bits < 64 else "Use a larger noise or fewer features."
        raise ValueError(
            f"leave_one_out: a row has leverage 1 − {max(kept.min(), 0):.1e}, too close to one for "
            f"{precision.dtype}: the fit interpolates it. {remedy}"
        )
