"""Where the search for hyperparameters starts: lengthscales of very different sizes, tried on a few hundred rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..bases.frozen_kernel import covariances, evaluate
from ..evidence.spectrum import FACTORS, RATIOS, Spectrum
from ..statistics.kept_rows import Rows
from .prior import LogPrior

#: Factors of each lengthscale alone that are tried after common ones, for so many inputs at most: a season beside
#: inputs that vary slowly has no common factor.
ALONE, MOST_INPUTS = 4.0 ** np.array([-5, -4, -3, -2, -1, 1, 2]), 24
#: How many starts there are, and by which factor their lengthscales differ at least.
STARTS, APART = 3, 3.0


def starting_points(family: Any, rows: Rows, prior: LogPrior, scales: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """The best starts, in coordinates of the prior, (d + 2,): lengthscales, amplitude and noise.

    The amplitude and the noise are the best for the lengthscales. O(k³) for each of some 30 tries, and of some 7 an
    input.

    :param rows: k rows with a y of mean zero.
    :param scales: lengthscales (d,) of which multiples are tried.
    """
    tried: list[tuple[tuple[float, float, float], np.ndarray]] = []

    def attempt(lengthscale: np.ndarray) -> float:
        tried.append((_profiled(family, rows, prior, lengthscale), lengthscale))
        return tried[-1][0][0]

    common = [scale * factor for scale in scales for factor in FACTORS]
    values = [attempt(lengthscale) for lengthscale in common]
    best, value = common[int(np.argmax(values))], max(values)
    d = rows.input_dim
    for j in range(d if 1 < d <= MOST_INPUTS else 0):
        alone = [np.where(np.arange(d) == j, factor, 1.0) * best for factor in ALONE]
        values = [attempt(lengthscale) for lengthscale in alone]
        if max(values) > value:
            best, value = alone[int(np.argmax(values))], max(values)
    # The best of all, then common factors, so that starts are of different kinds.
    order = [max(tried, key=lambda entry: entry[0][0]), *sorted(tried[: len(common)], key=lambda entry: -entry[0][0])]
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    for (value, amplitude, noise), lengthscale in order:
        far = all(np.max(np.abs(np.log(lengthscale / other))) > np.log(APART) for _, other in kept)
        if np.isfinite(value) and far:
            kept.append((np.concatenate([np.log(lengthscale), np.log([amplitude, noise])]), lengthscale))
        if len(kept) == STARTS:
            break
    return [start - prior.centre for start, _ in kept] or [np.zeros(len(prior.centre))]


def _profiled(family: Any, rows: Rows, prior: LogPrior, lengthscale: np.ndarray) -> tuple[float, float, float]:
    """Log density with the best amplitude and noise that are tried, and these."""
    root = np.sqrt(rows.weights)
    K = 1 + evaluate(covariances, (family(lengthscale, np.float64(1.0)), rows.X), rows.X, np)
    spectrum = Spectrum.of(root[:, None] * K * root, root * rows.y)
    variance = spectrum.best_variance(RATIOS)
    logs = 0.5 * np.log(np.stack([variance, variance * RATIOS], axis=1))
    points = np.concatenate([np.broadcast_to(np.log(lengthscale), (len(logs), len(lengthscale))), logs], axis=1)
    values = spectrum.log_evidence(variance, variance * RATIOS) + prior(points - prior.centre)
    best = int(np.argmax(values))
    amplitude, noise = np.exp(logs[best])
    return float(values[best]), float(amplitude), float(noise)
