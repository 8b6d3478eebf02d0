"""The evidence against the number of features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._axes import NEUTRAL, axes, finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Least height of the axis, in nats.
LEAST_NATS = 5.0


def plot_evidence(num_features: Any, log_evidence: Any, *, ax: Axes | None = None) -> Axes:
    """Log evidence against the number of features m, with the best marked: have we enough?

    :param num_features: m, shape (k,).
    :param log_evidence: in nats, shape (k,), or (k, r) for r random bases of each size, which are shown as dots around
        their mean.
    :param ax: axes to draw on; default those of a new figure.
    :return: the axes, with a logarithmic axis of m, and at least five nats high: fewer are little evidence.
    :raises ValueError: for shapes that do not fit, sizes that are not positive, or values that are not finite.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> from matplotlib.figure import Figure
        >>> ax = sgp.plots.plot_evidence([10, 20, 40], [-50.0, -31.0, -30.5], ax=Figure().subplots())
        >>> ax.get_legend_handles_labels()[1]
        ['best: -30.5 nats at m = 40']
    """
    m = finite("num_features", num_features, "plot_evidence")
    evidence = finite("log_evidence", log_evidence, "plot_evidence")
    if m.ndim != 1 or evidence.shape[:1] != m.shape or evidence.ndim > 2:
        raise ValueError(
            "plot_evidence: `num_features` must have shape (k,), and `log_evidence` (k,) or (k, r); got "
            f"{m.shape} and {evidence.shape}."
        )
    if not (m > 0).all():
        raise ValueError(f"plot_evidence: `num_features` must be positive; got {m.min():g}.")
    order = np.argsort(m, kind="stable")
    m, evidence = m[order], evidence[order]
    mean = evidence if evidence.ndim == 1 else evidence.mean(axis=1)
    best = int(np.argmax(mean))
    ax = axes(ax)
    if evidence.ndim == 2:
        repeated = np.repeat(m, evidence.shape[1])
        ax.plot(repeated, evidence.ravel(), ".", color=NEUTRAL, ms=4, label="random bases", zorder=1.5)
    ax.plot(m, mean, "o-", color="C0", ms=4)
    label = f"best: {mean[best]:.1f} nats at m = {m[best]:g}"
    ax.plot(m[best], mean[best], "*", color="C1", ms=14, label=label, zorder=3)
    ax.set_xscale("log")
    shown = np.unique(m)
    if len(shown) <= 12:
        ax.set_xticks(shown, [f"{size:g}" for size in shown])
        ax.minorticks_off()
    mean_of = "mean " if evidence.ndim == 2 else ""
    ax.set(xlabel="number of features m", ylabel=f"{mean_of}log evidence [nats]")
    low, high = ax.get_ylim()
    missing = LEAST_NATS - (high - low)
    if missing > 0:  # differences that mean nothing are not to look large
        ax.set_ylim(low - missing / 2, high + missing / 2)
    ax.legend(frameon=False)
    return ax
