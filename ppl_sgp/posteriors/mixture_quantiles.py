"""Quantiles of distributions of which only the distribution function is known, many rows at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

#: Error of the probability of a quantile, or of the quantile itself in units of the spread of draws, and most steps.
TOLERANCE, STEPS = 1e-9, 40
#: How often a bracket is doubled before there is no such quantile.
DOUBLINGS = 60

#: ``P(Y ≤ y)`` of all rows, of numbers in their shape.
DistributionFunction = Callable[[np.ndarray], np.ndarray]


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
