"""Whether a posterior predictive of numbers means what it says: coverage, PIT, CRPS, log density, sharpness."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import erf, ndtr

from .._internal import checks
from ..posteriors.mixture import MixturePrediction, mixture_log_density
from ..posteriors.mixture_quantiles import lower_quantile

#: Pairs of draws that enter the CRPS, if there are more; but each draw is paired with at least so many others.
PAIRS, PARTNERS = 20_000, 40
#: Arrays of the size of a block's moments that scoring the block needs at once.
ARRAYS = 12


def calibrate_regression(prediction: MixturePrediction, y: Any, *, levels: Any = (0.5, 0.8, 0.9, 0.95)) -> xr.Dataset:
    """Score predictions of held-out rows: are they calibrated, and how sharp are they?

    Each row's predictive is the mixture, over draws (and models), of the Gaussians of a new y, noise included; nothing
    is plugged in. Of discrete weights it is that of their ``components``. A prediction is calibrated if central p%
    intervals hold p% of the observations (Kuleshov et al. 2018) for every p: then the values of its distribution
    function at the observations, the PIT, are uniform. Among calibrated predictions the sharpest, with the narrowest
    intervals, is the best (Gneiting, Balabdaoui & Raftery 2007).

    The CRPS is ``∫ (F(x) − 1{y ≤ x})² dx = E|X − y| − ½ E|X − X'|`` (Gneiting & Raftery 2007, eqs 20 and 21, with
    the sign reversed), of Gaussian mixtures in closed form (Grimit et al. 2006, eq 5). Its second term takes pairs of
    draws: all of them up to 200 draws. Beyond, each of the S draws is paired with the same number of others, evenly
    spaced along the chain, 40,000/S or at least 40; ``attrs["crps_partners"]`` says how many.

    The cost is that of :meth:`~ppl_sgp.Prediction.log_density`, O(n_new m²) a draw, and for each row up to 20,000 or
    20·S pairs, and about ten evaluations of its distribution function, O(S) each, for each end of an interval. Rows are
    taken in blocks that fit the ``max_memory`` of the prediction.

    :param prediction: of the rows, made by :func:`~ppl_sgp.predict`, :func:`~ppl_sgp.average_predictions` or the
        ``predict`` of :func:`ppl_sgp.direct.fit`, without ``y`` among its training rows.
    :param y: the observations, shape (n_new,), or (n_new, q) for q outputs.
    :param levels: probabilities of the central intervals, between 0 and 1, shape (l,).
    :return: a dataset, of which each variable but ``coverage_standard_error`` ends in the dimension ``output`` for
        statistics of several outputs. Over ``obs``: ``pit``; ``crps``, in units of y, small is good; ``log_density``,
        in nats. Over ``level``: ``coverage``, the share of observations in the interval; ``coverage_standard_error``,
        the binomial one ``(p(1 − p)/n)^½`` of a calibrated prediction of independent rows; ``interval_width``, the mean
        over rows, in units of y. Scalars: ``mean_crps``, ``mean_log_density``, and ``rmse`` of the mean, in units of y.
    :raises ValueError: for other predictions, shapes that differ, no rows, values that are not finite, or levels beyond
        0 and 1.

    .. doctest::

        >>> import jax, jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 80)[:, None]
        >>> y = np.sin(6 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=80)
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 40)
        >>> stats = sgp.sufficient_statistics(basis, X[::2], y[::2])
        >>> draws = {"lengthscale": jnp.array([0.2, 0.3]), "amplitude": jnp.ones(2), "noise_scale": jnp.full(2, 0.1)}
        >>> prediction = sgp.predict(sgp.models.fourier_gp(), draws, stats, X[1::2])
        >>> scores = sgp.calibrate_regression(prediction, y[1::2], levels=[0.9])
        >>> bool(abs(scores["coverage"][0] - 0.9) < 3 * scores["coverage_standard_error"][0])
        True
    """
    levels = checks.probabilities("levels", levels, "calibrate_regression")
    if not isinstance(prediction, MixturePrediction):
        raise ValueError(
            "calibrate_regression: `prediction` must be an `sgp.Prediction`, made by `sgp.predict` or by the `predict` "
            f"of relevance vectors or of `sgp.direct.fit`, or an average of some; got {type(prediction).__name__}."
        )
    y_rows, weights = _checked_observations(prediction, y), prediction.component_weights
    parts = [
        _score(y_rows[:, rows], mean, np.sqrt(variance), weights, levels)
        for rows, mean, variance in prediction.components(noise=True, arrays=ARRAYS)
    ]
    scores = RowScores(*(prediction.shaped(np.concatenate(part, axis=-1)) for part in zip(*parts, strict=True)))
    output = ("output",) if scores.pit.ndim == 2 else ()
    half = levels.reshape(-1, *[1] * scores.pit.ndim) / 2
    return xr.Dataset(
        {
            "pit": (("obs", *output), scores.pit),
            "crps": (("obs", *output), scores.crps),
            "log_density": (("obs", *output), scores.log_density),
            "coverage": (("level", *output), np.mean(np.abs(scores.pit - 0.5) <= half, axis=1)),
            "coverage_standard_error": ("level", np.sqrt(levels * (1 - levels) / len(scores.pit))),
            "interval_width": (("level", *output), np.mean(scores.width, axis=1)),
            "mean_crps": (output, np.mean(scores.crps, axis=0)),
            "mean_log_density": (output, np.mean(scores.log_density, axis=0)),
            "rmse": (output, np.sqrt(np.mean(scores.square, axis=0))),
        },
        coords={"obs": np.arange(len(scores.pit)), "level": levels},
        attrs={"crps_partners": int(_partners(len(weights))[1].sum())},
    )


class RowScores(NamedTuple):
    """Of q outputs at n rows, all (q, n) but the width of intervals, (l, q, n); later in the shape of y."""

    pit: np.ndarray
    crps: np.ndarray
    log_density: np.ndarray
    square: np.ndarray
    width: np.ndarray


def _score(y: np.ndarray, mean: np.ndarray, scale: np.ndarray, weights: np.ndarray, levels: np.ndarray) -> RowScores:
    """Scores of observations (q, n) under mixtures of S Gaussians: means and deviations (S, q, n), and weights (S,)."""
    tails = (1 - levels) / 2
    lower, upper = ([lower_quantile(p, sign * mean, scale, weights) for p in tails] for sign in (1, -1))
    return RowScores(
        pit=_averaged(ndtr((y - mean) / scale), weights),
        crps=crps(y, mean, scale, weights),
        log_density=mixture_log_density(y, mean, scale**2, weights),
        square=(y - _averaged(mean, weights)) ** 2,
        # By symmetry an upper quantile is a lower one, whose small probability is not 1 less something.
        width=-np.stack(upper) - np.stack(lower),
    )


def _averaged(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.tensordot(weights, values, axes=1)


def crps(y: np.ndarray, mean: np.ndarray, scale: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The continuous ranked probability score of mixtures of S Gaussians; see :func:`calibrate_regression`.

    :param y: observations, any shape.
    :param mean: means, that shape after an axis S.
    :param scale: standard deviations, the same.
    :param weights: of the Gaussians, shape (S,), with sum one.
    """
    variance, squares = scale**2, weights**2
    itself = 2 / np.sqrt(np.pi) * _averaged(scale, squares)  # E|X − X'| of a Gaussian with its copy
    others, total = np.zeros_like(y), 0.0
    for lag, partners in zip(*_partners(len(mean)), strict=True):
        pairs = partners * weights * np.roll(weights, lag)
        deviation = np.sqrt(variance + np.roll(variance, lag, axis=0))
        others += _averaged(_mean_absolute(mean - np.roll(mean, lag, axis=0), deviation), pairs)
        total += pairs.sum()
    spread = itself + (1 - squares.sum()) * others / (total or 1.0)
    return _averaged(_mean_absolute(y - mean, scale), weights) - spread / 2


def _mean_absolute(mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """``E|X|`` of a Gaussian, elementwise."""
    z = mean / scale
    return scale * (np.sqrt(2 / np.pi) * np.exp(-0.5 * z**2) + z * erf(z / np.sqrt(2)))


def _partners(num_draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Distances along the circle of draws, and how many partners a draw has at each: one on both sides, or opposite.

    All distances up to half the circle, or evenly spaced ones if those are many pairs. Every draw has the same number
    of partners, so that the mean over these pairs errs only by what is not additive in the two of them.
    """
    half = num_draws // 2
    kept = min(half, max(PARTNERS // 2, PAIRS // num_draws))
    lags = 1 + ((np.arange(kept) + 0.5) / max(kept, 1) * half).astype(int)
    return lags, np.where(2 * lags == num_draws, 1, 2)


def _checked_observations(prediction: MixturePrediction, y: Any) -> np.ndarray:
    """Observations as (q, n), in float64."""
    y = prediction.observations("y", y, "calibrate_regression")
    if y.size == 0:
        raise ValueError("calibrate_regression: there are no rows; predict at held-out inputs first.")
    return y
