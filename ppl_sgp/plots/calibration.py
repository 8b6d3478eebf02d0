"""Calibration: reliability of class probabilities, PIT values of regressions, ranks of simulations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy.stats import binom

from .._internal import checks
from ._axes import NEUTRAL, axes, finite, panels, variables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Probability of the bands for what is calibrated: of twenty bars one in five plots has one outside.
BAND = 0.99
#: Bars of a histogram of ranks, if that many ranks divide evenly among them.
FEWEST_BARS, MOST_BARS = 8, 20


def plot_reliability(scores: Any, *, ax: Axes | None = None) -> Axes:
    """Reliability diagram: accuracy against confidence, with where 99% of calibrated predictions would be.

    :param scores: a dataset over ``bin`` with ``accuracy``, ``confidence`` and ``count``, as
        ``ppl_sgp.calibrate_classification`` returns it; ``ece`` goes into the title. Bins without rows are left out.
        The area of a dot grows with its count.
    :param ax: axes to draw on; default those of a new figure.
    :return: the axes. Dots below the diagonal are over-confident.
    :raises ValueError: for another dataset, or no rows.

    .. doctest::

        >>> import xarray as xr, ppl_sgp as sgp
        >>> from matplotlib.figure import Figure
        >>> bins = {"accuracy": [0.5, 0.8], "confidence": [0.6, 0.9], "count": [10, 40]}
        >>> scores = xr.Dataset({name: ("bin", values) for name, values in bins.items()})
        >>> ax = sgp.plots.plot_reliability(scores, ax=Figure().subplots())
        >>> ax.get_xlabel(), ax.get_ylabel()
        ('confidence', 'accuracy')
    """
    names = ("accuracy", "confidence", "count")
    accuracy, confidence, count = variables(scores, names, "plot_reliability", "sgp.calibrate_classification")
    filled = count > 0
    if not filled.any():
        raise ValueError("plot_reliability: all bins are empty; score some predictions first.")
    accuracy, confidence, count = accuracy[filled], confidence[filled], count[filled].astype(int)
    low, high = binom.interval(BAND, count, confidence)
    ax = axes(ax, figsize=(4.8, 4.6))
    ax.plot([0, 1], [0, 1], color=NEUTRAL, lw=1, ls="--")
    ax.vlines(confidence, low / count, high / count, color="0.75", lw=5, label=f"{BAND:.0%} if calibrated")
    ax.plot(confidence, accuracy, color="C0", lw=1)
    ax.scatter(confidence, accuracy, 12 + 120 * count / count.max(), color="C0", zorder=3, label="bins (area: rows)")
    left = max(0.0, min(confidence.min(), accuracy.min()) - 0.08) - 0.03
    ax.set(xlabel="confidence", ylabel="accuracy", xlim=(left, 1.03), ylim=(left, 1.03))
    if "ece" in scores:
        ax.set_title(f"expected calibration error {float(scores['ece']):.3f}", fontsize="medium")
    ax.legend(loc="upper left", fontsize="small")
    return ax


def plot_pit(pit: Any, *, bins: int = 20, ax: Axes | None = None) -> Axes:
    """Histogram of PIT values, uniform if predictions are calibrated, with the central 99% of each count.

    A hill says that predictions are too wide, a valley too narrow, a slope too low or too high.

    :param pit: values of the predictive distribution functions at held-out observations, between 0 and 1, shape (n,);
        or a dataset with them as ``pit``, as ``ppl_sgp.calibrate_regression`` returns it.
    :param bins: how many bars.
    :param ax: axes to draw on; default those of a new figure.
    :return: the axes.
    :raises ValueError: for another shape, or values beyond 0 and 1.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> from matplotlib.figure import Figure
        >>> ax = sgp.plots.plot_pit([0.1, 0.3, 0.35, 0.8], bins=2, ax=Figure().subplots())
        >>> [int(bar.get_height()) for bar in ax.patches[:2]]
        [3, 1]
    """
    if isinstance(pit, xr.Dataset):
        (pit,) = variables(pit, ("pit",), "plot_pit", "sgp.calibrate_regression")
    values = finite("pit", pit, "plot_pit")
    if values.ndim != 1:
        raise ValueError(f"plot_pit: `pit` must have shape (n,); got {values.shape}. Of several outputs choose one.")
    return draw_pit(axes(ax), values, bins, "PIT")


def draw_pit(ax: Axes, values: np.ndarray, bins: int, name: str) -> Axes:
    """Histogram of values between 0 and 1, shape (n,)."""
    checks.whole_number("bins", bins, 2, "plot_pit")
    if values.min() < 0 or values.max() > 1:
        raise ValueError(
            f"plot_pit: PIT values are probabilities; got {values.min():.3g} to {values.max():.3g}. Pass values of "
            "the distribution function at the observations, not the observations."
        )
    counts, edges = np.histogram(values, bins, range=(0, 1))
    _histogram(ax, edges, counts, np.full(bins, 1 / bins))
    ax.set(xlabel=name, ylabel="rows")
    return ax


def plot_ranks(ranks: Any, num_draws: int | None = None, *, bins: int | None = None, ax: Any = None) -> Any:
    """Histogram of ranks of simulation-based calibration, uniform if all is right, with the central 99% of each count.

    A valley says that posteriors are too narrow, a hill too wide, a slope that they are biased.

    :param ranks: of one parameter, integers from 0 to ``num_draws``, shape (simulations,); or the dataset of
        ``ppl_sgp.simulation_based_calibration``, which gets a panel for each entry of each site.
    :param num_draws: the number of posterior draws among which the truth was ranked; a dataset knows it.
    :param bins: how many bars, at most ``num_draws + 1``. Default: up to 20, a divisor of the number of possible ranks
        if there is one of 8 or more; otherwise bars hold different numbers of ranks, as does the band.
    :param ax: as many axes as panels, or one for one; default those of a new figure.
    :return: the axes as they came; else one, or of several panels an array of them.
    :raises ValueError: for ranks beyond 0 and ``num_draws``, or not of that shape.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> from matplotlib.figure import Figure
        >>> ax = sgp.plots.plot_ranks(np.arange(200) % 10, 9, ax=Figure().subplots())
        >>> [int(bar.get_height()) for bar in ax.patches[:3]]
        [20, 20, 20]
    """
    if isinstance(ranks, xr.Dataset):
        num_draws = ranks.attrs.get("num_draws") if num_draws is None else num_draws
        columns = _entries(ranks.drop_vars("diverging", errors="ignore"))
    else:
        columns = {"": np.asarray(ranks)}
    checks.whole_number("num_draws", num_draws, 1, "plot_ranks")
    assert num_draws is not None
    possible = num_draws + 1
    if bins is None:
        divisors = [b for b in range(FEWEST_BARS, MOST_BARS + 1) if possible % b == 0]
        bins = divisors[-1] if divisors else min(possible, MOST_BARS)
    checks.whole_number("bins", bins, 1, "plot_ranks")
    if bins > possible:
        raise ValueError(f"plot_ranks: `bins` must be at most {possible}, the number of possible ranks; got {bins}.")
    for values in columns.values():
        _check_ranks(values, num_draws)
    result, given = panels(ax, len(columns), "plot_ranks")
    edges = np.linspace(0, possible, bins + 1).round()
    for panel, (name, values) in zip(given, columns.items(), strict=True):
        _histogram(panel, edges, np.histogram(values, edges)[0], np.diff(edges) / possible)
        panel.set(xlabel=f"rank of {name}" if name else "rank", ylabel="simulations")
    return result


def _entries(ranks: xr.Dataset) -> dict[str, np.ndarray]:
    """Ranks (simulations,) of each entry of each site."""
    columns = {}
    for name, array in ranks.data_vars.items():
        flat = array.values.reshape(len(array), -1)
        for k in range(flat.shape[1]):
            index = [int(i) for i in np.unravel_index(k, array.shape[1:])]
            columns[f"{name}{index}" if index else str(name)] = flat[:, k]
    return columns


def _check_ranks(ranks: np.ndarray, num_draws: int) -> None:
    if ranks.ndim != 1 or ranks.size == 0 or ranks.dtype.kind not in "iu":
        raise ValueError(
            f"plot_ranks: `ranks` must be integers of shape (simulations,); got {ranks.dtype} of shape {ranks.shape}."
        )
    if ranks.min() < 0 or ranks.max() > num_draws:
        raise ValueError(
            f"plot_ranks: ranks among {num_draws} draws go from 0 to {num_draws}; got {ranks.min()} to {ranks.max()}. "
            "Is `num_draws` right?"
        )


def _histogram(ax: Axes, edges: np.ndarray, counts: np.ndarray, probability: np.ndarray) -> None:
    """Counts (b,) in bins, with those expected and their central interval for independent members."""
    total = int(counts.sum())
    low, high = binom.interval(BAND, total, probability)
    ax.bar(edges[:-1], counts, np.diff(edges), align="edge", color="C0", edgecolor="white", lw=0.5)
    # Behind the bars: what is too low leaves a gap below the band, what is too high ends above it.
    label = f"{BAND:.0%} of uniform counts"
    ax.stairs(high, edges, baseline=low, fill=True, color="0.8", zorder=0, label=label)
    ax.stairs(total * probability, edges, baseline=None, color="black", lw=0.8, ls="--")
    ax.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.2 * max(counts.max(), high.max())))
    ax.legend(frameon=False, loc="upper right", fontsize="small")
