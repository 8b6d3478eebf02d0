"""Counts observed and expected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from ._axes import NEUTRAL, axes, variables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Probability of the band for what is calibrated.
BAND = 0.99
#: Counts beyond the last one of which so many rows are expected, or were observed, are not shown.
FEW = 0.05


def plot_rootogram(scores: Any, *, ax: Axes | None = None) -> Axes:
    """Hanging rootogram: how many rows have each count, hung from how many are expected, on the scale of square roots.

    Bars that end above zero are counts that are too rare, below zero too frequent; 99% of calibrated predictions end in
    the band.

    :param scores: from :func:`~ppl_sgp.calibrate_counts`.
    :param ax: axes to draw on; default those of a new figure.
    :return: the axes.
    :raises ValueError: for another dataset.

    .. doctest::

        >>> import xarray as xr, ppl_sgp as sgp
        >>> from matplotlib.figure import Figure
        >>> counts = {"observed": [9.0, 4.0], "expected": [8.0, 5.0], "expected_sd": [2.0, 1.5]}
        >>> scores = xr.Dataset({k: ("count", v) for k, v in counts.items()}, coords={"count": [0, 1]})
        >>> ax = sgp.plots.plot_rootogram(scores, ax=Figure().subplots())
        >>> [round(float(bar.get_y() + bar.get_height()), 2) for bar in ax.patches]
        [2.83, 2.24]
    """
    names = ("observed", "expected", "expected_sd")
    observed, expected, sd = variables(scores, names, "plot_rootogram", "sgp.calibrate_counts")
    shown = np.maximum(observed, expected) >= FEW
    last = int(np.flatnonzero(shown)[-1]) + 1 if shown.any() else 1
    count = scores["count"].values[:last]
    observed, expected, sd = observed[:last], expected[:last], sd[:last]
    top, half = np.sqrt(expected), ndtri((1 + BAND) / 2) * sd
    ax = axes(ax)
    ax.bar(count, np.sqrt(observed), 0.85, top - np.sqrt(observed), color="C0", alpha=0.7, label="observed, hung")
    # Where bars of calibrated predictions end: the root of what is expected, less that of what may be observed.
    low, high = top - np.sqrt(expected + half), top - np.sqrt(np.maximum(expected - half, 0))
    ax.fill_between(count, low, high, step="mid", color="0.6", alpha=0.4, lw=0, label=f"{BAND:.0%} if calibrated")
    ax.plot(count, top, "o-", color="C3", ms=3, lw=1, label="expected")
    ax.axhline(0, color=NEUTRAL, lw=0.8)
    ax.set(xlabel="count", ylabel="root of the number of rows")
    ax.legend(frameon=False, fontsize="small")
    return ax
