"""Which features carry weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from .._internal import checks
from ..relevance.fit import RelevanceVectors
from ._axes import HALF_WIDTH, INTERVAL, QUANTILES, axes, finite, variables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: From this ratio of the largest to the smallest on, positive sizes go on a logarithmic axis.
LOGARITHMIC = 30.0


def plot_feature_weights(weights: Any, *, top: int = 30, names: Any = None, ax: Axes | None = None) -> Axes:
    """Weights of features, or their prior scales, the largest first, with central 90% intervals.

    :param weights: one of

        - posteriors of weights with ``mean`` and ``variance`` (m,), as of :func:`~ppl_sgp.weight_posterior` and of fits
          with discrete weights, a fit of relevance vectors, or what :func:`~ppl_sgp.relevance_summary` returns: shown
          as mean ± 1.645 standard deviations;
        - draws, shape (draws, m), of weights or of prior scales such as the site ``scale`` of
          :func:`~ppl_sgp.models.reweighted_basis`: shown as median and quantiles.
    :param top: how many to show.
    :param names: of the features, shape (m,); default their positions, or what the dataset names them.
    :param ax: axes to draw on; default those of a new figure.
    :return: the axes. Positive values that differ by a factor of 30 or more are on a logarithmic axis.
    :raises ValueError: for other shapes, or values that are not finite.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> from matplotlib.figure import Figure
        >>> draws = np.array([0.2, -3.0, 1.0]) + 0.1 * np.array([[-1.0], [0.0], [1.0]])
        >>> ax = sgp.plots.plot_feature_weights(draws, top=2, ax=Figure().subplots())
        >>> ax.lines[0].get_ydata().tolist(), [label.get_text() for label in ax.get_xticklabels()]
        ([-3.0, 1.0], ['1', '2'])
    """
    checks.whole_number("top", top, 1, "plot_feature_weights")
    found = _summary(weights)
    labels = found.names if names is None else np.asarray(names)
    if labels.shape != found.centre.shape:
        raise ValueError(
            f"plot_feature_weights: `names` must have shape {found.centre.shape}, one for each feature; got "
            f"{labels.shape}."
        )
    order = np.argsort(-np.abs(found.centre), kind="stable")[:top]
    centre, low, high = found.centre[order], found.low[order], found.high[order]
    ax = axes(ax, figsize=(min(10, 2.5 + 0.22 * max(len(order), 12)), 4.0))
    position = np.arange(len(order))
    ax.plot(position, centre, "o", color="C0", ms=4, label=found.centre_name)
    ax.vlines(position, low, high, color="C0", lw=2, alpha=0.5, label=f"central {INTERVAL:.0%}")
    if low.min() > 0 and centre.max() >= LOGARITHMIC * centre.min():
        ax.set_yscale("log")
    else:
        ax.axhline(0, color="0.7", lw=0.8, zorder=0)
    texts = [str(label) for label in labels[order]]
    ax.set_xticks(position, texts, rotation=90 if len(texts) > 15 or max(map(len, texts)) > 3 else 0, fontsize="small")
    shown = "feature" if len(order) == len(labels) else f"feature ({len(order)} largest of {len(labels)})"
    ax.set(xlabel=shown, ylabel=found.quantity)
    ax.legend(frameon=False)
    return ax


class Summary(NamedTuple):
    """Of each feature: a central value and an interval, (m,), its name, and what the values are."""

    centre: np.ndarray
    low: np.ndarray
    high: np.ndarray
    names: np.ndarray
    centre_name: str
    quantity: str


def _summary(weights: Any) -> Summary:
    if isinstance(weights, RelevanceVectors):
        sd = np.sqrt(np.sum(weights.covariance_factor**2, axis=1))
        return _normal(weights.weights, sd, weights.relevant)
    if isinstance(weights, xr.Dataset):
        mean, sd = variables(weights, ("weight", "weight_sd"), "plot_feature_weights", "sgp.relevance_summary")
        return _normal(mean, sd, weights["feature"].values)
    if hasattr(weights, "variance"):
        mean, variance = (finite(name, getattr(weights, name), "plot_feature_weights") for name in ("mean", "variance"))
        if mean.ndim != 1 or variance.shape != mean.shape:
            raise ValueError(
                f"plot_feature_weights: `mean` and `variance` must have shape (m,); got {mean.shape} and "
                f"{variance.shape}. Of several posteriors or outputs pass one."
            )
        return _normal(mean, np.sqrt(variance), np.arange(len(mean)))
    draws = finite("weights", weights, "plot_feature_weights")
    if draws.ndim != 2:
        raise ValueError(
            f"plot_feature_weights: draws must have shape (draws, m), as of `mcmc.get_samples()`; got {draws.shape}. "
            "Put chains one after the other, and choose one output."
        )
    low, median, high = np.quantile(draws, QUANTILES, axis=0)
    quantity = "scale" if (draws >= 0).all() else "weight"
    return Summary(median, low, high, np.arange(draws.shape[1]), "median", quantity)


def _normal(mean: Any, sd: Any, names: np.ndarray) -> Summary:
    mean, sd = finite("mean", mean, "plot_feature_weights"), finite("sd", sd, "plot_feature_weights")
    return Summary(mean, mean - HALF_WIDTH * sd, mean + HALF_WIDTH * sd, names, "posterior mean", "weight")
