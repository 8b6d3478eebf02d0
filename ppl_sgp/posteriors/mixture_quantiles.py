"""Quantiles of mixtures, many rows at once: of Gaussians, and of what only the distribution function is known of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import elementwise
from scipy.special import ndtr, ndtri

#: Error of the probability of a quantile, or of the quantile itself in units of the spread of draws, and most steps.
TOLERANCE, STEPS = 1e-9, 40
#: How often a bracket is doubled before there is no such quantile.
DOUBLINGS = 60
#: Of mixtures of Gaussians the error of quantiles, in units of the smallest standard deviation among the components.
GAUSSIAN_TOLERANCE = 1e-8
#: Least standard deviation of a component beside the largest: where some weights are known, it has none.
KNOWN = 1e-6

#: ``P(Y ≤ y)`` of all rows, of numbers in their shape.
DistributionFunction = Callable[[np.ndarray], np.ndarray]


def tails(probability: float, owner: str) -> list[float]:
    """The probabilities that an equal-tailed interval is between."""
    if np.ndim(probability) or not 0 < probability < 1:
        raise ValueError(f"{owner}: `probability` must be a number between 0 and 1, such as 0.9; got {probability!r}.")
    return [(1 - probability) / 2, (1 + probability) / 2]


def gaussian_quantiles(
    probabilities: np.ndarray, mean: np.ndarray, scale: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Quantiles of mixtures of S Gaussians, shape (p, …); of components without spread those of a discrete mixture.

    :param probabilities: shape (p,).
    :param mean: means, shape (S, …).
    :param scale: standard deviations, the same.
    :param weights: of the Gaussians, shape (S,), with sum one.
    """
    columns = mean.reshape(len(mean), -1), scale.reshape(len(mean), -1)
    known = np.max(columns[1], axis=0) == 0  # draws of explicit weights, or a row where f is zero
    found = np.empty((len(probabilities), columns[0].shape[1]))
    if known.any():
        found[:, known] = np.quantile(
            columns[0][:, known], probabilities, axis=0, weights=weights, method="inverted_cdf"
        )
    if not known.all():
        location, spread = (part[:, ~known] for part in columns)
        spread = np.maximum(spread, KNOWN * spread.max(axis=0))
        for row, p in zip(found, probabilities, strict=True):
            # By symmetry an upper quantile is a lower one, whose small probability is not 1 less something.
            lower = p < 0.5
            side = lower_quantile(min(p, 1 - p), location if lower else -location, spread, weights)
            row[~known] = side if lower else -side
    return found.reshape(-1, *mean.shape[1:])


def lower_quantile(probability: float, mean: np.ndarray, scale: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Quantiles below the median of mixtures of S Gaussians, by bracketing, to 1e-8 of the smallest deviation.

    :param probability: between 0 and ½.
    :param mean: means, shape (S, …).
    :param scale: standard deviations, the same.
    :param weights: of the Gaussians, shape (S,), with sum one.
    :return: shape (…).
    """
    centre, unit = mean.mean(axis=0), scale.min(axis=0)
    location, ratio = ((mean - centre) / unit).reshape(len(mean), -1), (scale / unit).reshape(len(mean), -1)

    def excess(x, column):
        return weights @ ndtr((x - location[:, column]) / ratio[:, column]) - probability

    # A quantile of a mixture lies among those of its components. The margin gives both ends a sign if all agree.
    quantiles = location + ndtri(probability) * ratio
    low, high = quantiles.min(axis=0), quantiles.max(axis=0)
    bracket = low - 1e-6 * (1 + np.abs(low)), high + 1e-6 * (1 + np.abs(high))
    columns = np.arange(location.shape[1])
    found = elementwise.find_root(excess, bracket, args=(columns,), tolerances={"xatol": GAUSSIAN_TOLERANCE})
    return centre + unit * found.x.reshape(centre.shape)


def continuous_quantiles(below: DistributionFunction, probability: float, drawn: np.ndarray) -> np.ndarray:
    """Quantiles of continuous distributions, to 1e-9 of probability, or of the spread of the draws.

    :param below: their distribution functions.
    :param drawn: some draws of them, along a first axis.
    """
    centre = np.median(drawn, axis=0)
    width = np.maximum(np.ptp(drawn, axis=0), 1e-12 * (1 + np.abs(centre)))
    low, high = _bracket(below, probability, centre - width, centre + width, width)
    f_low, f_high = below(low) - probability, below(high) - probability
    best, least, was_above = (low + high) / 2, np.ones_like(low), None
    for _ in range(STEPS):
        middle = _next(low, high, f_low, f_high)
        value = below(middle) - probability
        best, least = np.where(np.abs(value) < least, middle, best), np.minimum(np.abs(value), least)
        if np.all((least < TOLERANCE) | (high - low < TOLERANCE * width)):
            break
        above = value >= 0
        if was_above is not None:  # an end that stays loses half its weight (the Illinois rule), so that it moves
            f_low = np.where(above & was_above, f_low / 2, f_low)
            f_high = np.where(~above & ~was_above, f_high / 2, f_high)
        low, f_low = np.where(above, low, middle), np.where(above, f_low, value)
        high, f_high = np.where(above, middle, high), np.where(above, value, f_high)
        was_above = above
    return best


def discrete_quantiles(below: DistributionFunction, probability: float, drawn: np.ndarray) -> np.ndarray:
    """The least integers, from zero on, at which distribution functions reach a probability."""
    low, high = np.full(drawn.shape[1:], -1.0), np.maximum(drawn.max(axis=0), 1.0)
    for _ in range(DOUBLINGS):
        short = below(high) < probability
        if not short.any():
            break
        low, high = np.where(short, high, low), np.where(short, 2 * high, high)
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2)
        reached = below(middle) >= probability
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return high.astype(int)


def _bracket(
    below: DistributionFunction, probability: float, low: np.ndarray, high: np.ndarray, width: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    for step in 2.0 ** np.arange(DOUBLINGS):
        above, under = below(low) > probability, below(high) < probability
        if not (above | under).any():
            break
        low, high = np.where(above, low - step * width, low), np.where(under, high + step * width, high)
    return low, high


def _next(low: np.ndarray, high: np.ndarray, f_low: np.ndarray, f_high: np.ndarray) -> np.ndarray:
    """Where a line between the ends is zero, kept away from them."""
    difference = f_high - f_low
    share = np.where(difference > 0, -f_low / np.where(difference > 0, difference, 1.0), 0.5)
    return low + np.clip(share, 0.01, 0.99) * (high - low)
