"""Relevance of features, and of inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._internal import checks
from ._axes import INTERVAL, QUANTILES, axes, finite, variables

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_relevance(summary: Any, *, top: int = 20, ax: Axes | None = None) -> Axes:
    """Which features matter, the surest at the top: the probability that data rather than prior determine each weight.

    :param summary: from :func:`~ppl_sgp.relevance_summary`. Dots are its ``relevance``, circles its ``determined``; the
        title has the posterior of ``effective_number``, median and central 90%.
    :param top: how many to show.
    :param ax: axes to draw on; default those of a new figure.
    :return: the axes.
    :raises ValueError: for another dataset, or values that are not finite.

    .. doctest::

        >>> import xarray as xr, ppl_sgp as sgp
        >>> from matplotlib.figure import Figure
        >>> values = {"relevance": ("feature", [0.1, 0.9]), "determined": ("feature", [0.3, 0.8])}
        >>> summary = xr.Dataset(values | {"effective_number": ("draw", [1.0, 1.2])}, {"feature": ["a", "b"]})
        >>> ax = sgp.plots.plot_relevance(summary, ax=Figure().subplots())
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['b', 'a']
    """
    checks.whole_number("top", top, 1, "plot_relevance")
    names = ("relevance", "determined", "effective_number")
    found = variables(summary, names, "plot_relevance", "sgp.relevance_summary")
    relevance, determined, number = (
        finite(name, value, "plot_relevance") for name, value in zip(names, found, strict=True)
    )
    order = np.lexsort((-determined, -relevance))[:top]
    position, labels = np.arange(len(order)), summary["feature"].values[order]
    ax = axes(ax, figsize=(6.4, 1.4 + 0.22 * max(len(order), 6)))
    ax.hlines(position, 0, relevance[order], color="C0", lw=1, alpha=0.5)
    ax.plot(relevance[order], position, "o", color="C0", ms=6, label="relevance: P(γ > ½)")
    ax.plot(determined[order], position, "o", color="C1", mfc="none", ms=6, label="determined: E[γ]")
    _rows(ax, [str(label) for label in labels])
    ax.set_xlim(-0.03, 1.03)
    low, median, high = np.quantile(number, QUANTILES)
    of = f"{len(order)} of {len(relevance)} features" if len(order) < len(relevance) else "features"
    ax.set_title(f"{of}; effective number {median:.1f} ({low:.1f} to {high:.1f})", fontsize="medium")
    ax.set_xlabel("how far data determine the weight (0: prior alone, 1: data alone)")
    ax.legend(loc="lower right", fontsize="small")
    return ax


def plot_input_relevance(lengthscale: Any, X: Any, *, names: Any = None, ax: Axes | None = None) -> Axes:
    """Which inputs matter (automatic relevance determination): spreads of the inputs in lengthscales.

    The function hardly changes along an input whose standard deviation is a small part of its lengthscale. The ratio
    needs no units, so that inputs can be compared; the axis is logarithmic.

    :param lengthscale: posterior draws, shape (draws, d).
    :param X: the training inputs, shape (n, d). A data frame names its columns.
    :param names: of the inputs, shape (d,).
    :param ax: axes to draw on; default those of a new figure.
    :return: the axes: medians and central 90% intervals, the most relevant input at the top.
    :raises ValueError: for shapes that do not fit, constant inputs, or draws that are not finite and positive.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> from matplotlib.figure import Figure
        >>> X = np.array([[0.0, 10.0], [2.0, 30.0]])
        >>> ax = sgp.plots.plot_input_relevance([[2.0, 5.0]], X, names=["depth", "age"], ax=Figure().subplots())
        >>> [label.get_text() for label in ax.get_yticklabels()], ax.lines[0].get_xdata().tolist()
        (['age', 'depth'], [2.0, 0.5])
    """
    values, draws = finite("X", X, "plot_input_relevance"), finite("lengthscale", lengthscale, "plot_input_relevance")
    if values.ndim != 2 or draws.ndim != 2 or draws.shape[1] != values.shape[1]:
        raise ValueError(
            "plot_input_relevance: `lengthscale` must have shape (draws, d), and `X` (n, d); got "
            f"{draws.shape} and {values.shape}."
        )
    checks.positive("lengthscale", draws, "plot_input_relevance")
    if names is None:
        names = getattr(X, "columns", range(values.shape[1]))
    labels = [str(name) for name in names]
    if len(labels) != values.shape[1]:
        raise ValueError(f"plot_input_relevance: `names` must be {values.shape[1]} names; got {len(labels)}.")
    spread = values.std(axis=0)
    if not spread.all():
        constant = [labels[j] for j in np.flatnonzero(spread == 0)]
        raise ValueError(
            f"plot_input_relevance: the inputs {constant} are constant in `X`, so their lengthscales mean nothing. "
            "Leave them out."
        )
    low, median, high = np.quantile(spread / draws, QUANTILES, axis=0)
    order = np.argsort(-median, kind="stable")
    position = np.arange(len(order))
    ax = axes(ax, figsize=(6.4, 1.2 + 0.25 * max(len(order), 4)))
    ax.plot(median[order], position, "o", color="C0", ms=6, label="median")
    ax.hlines(position, low[order], high[order], color="C0", lw=2, alpha=0.5, label=f"central {INTERVAL:.0%}")
    _rows(ax, [labels[j] for j in order])
    ax.set_xscale("log")
    ax.set_xlabel("standard deviation of the input / lengthscale")
    ax.legend(frameon=False)
    return ax


def _rows(ax: Axes, labels: list[str]) -> None:
    """Names of rows 0, 1, … from the top."""
    ax.set_yticks(np.arange(len(labels)), labels, fontsize="small")
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.grid(axis="y", color="0.9", lw=0.6)
