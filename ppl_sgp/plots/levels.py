"""Posterior probabilities of the levels of discrete weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._axes import axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Weights shown if none are chosen, at most.
SHOWN_WEIGHTS = 40
#: Labels along the axes, at most.
NAMED_ROWS, NAMED_LEVELS = 20, 8


def plot_level_probabilities(result: Any, weights: Any = None, *, ax: Axes | None = None) -> Axes:
    """A map of the posterior probabilities of each weight's levels, one row a weight.

    :param result: a fit of ``ppl_sgp.direct``, with ``levels`` and ``probabilities`` of shape (b, m̄).
    :param weights: positions of the weights to show, in that order from the top. Default all, or of more than forty
        the forty with the largest posterior means.
    :param ax: axes to draw on; default those of a new figure. The colour bar takes space from them.
    :return: the axes.
    :raises ValueError: for another result, or positions beyond the weights.

    .. doctest::

        >>> import numpy as np, numpyro.distributions as dist, ppl_sgp as sgp
        >>> from matplotlib.figure import Figure
        >>> X = np.linspace(-1, 1, 30)[:, None]
        >>> stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, 0.4 * X[:, 0])
        >>> fit = sgp.direct.fit(stats, sgp.DiscreteRelaxation(dist.Normal(0.0, 0.3)), noise_scale=0.3)
        >>> ax = sgp.plots.plot_level_probabilities(fit, ax=Figure().subplots())
        >>> ax.images[0].get_array().shape
        (2, 15)
    """
    levels, probabilities = np.asarray(getattr(result, "levels", 0)), np.asarray(getattr(result, "probabilities", 0))
    if levels.ndim != 2 or levels.shape != probabilities.shape:
        raise ValueError(
            "plot_level_probabilities: `result` must be a fit of `sgp.direct`, with levels and probabilities (b, m̄); "
            f"got {type(result).__name__}."
        )
    chosen = _largest(result) if weights is None else np.atleast_1d(np.asarray(weights))
    if chosen.ndim != 1 or chosen.size == 0 or chosen.dtype.kind not in "iu":
        raise ValueError(f"plot_level_probabilities: `weights` must be a list of positions; got {weights!r}.")
    if chosen.min() < 0 or chosen.max() >= len(levels):
        raise ValueError(
            f"plot_level_probabilities: `weights` must be positions from 0 to {len(levels) - 1}; got "
            f"{chosen.min()} to {chosen.max()}."
        )
    ax = axes(ax, figsize=(6.4, 1.5 + 0.15 * max(len(chosen), 12)))
    image = ax.imshow(probabilities[chosen], aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="none")
    ax.figure.colorbar(image, ax=ax, label="posterior probability")
    rows = np.arange(0, len(chosen), -(-len(chosen) // NAMED_ROWS))
    ax.set_yticks(rows, [str(j) for j in chosen[rows]], fontsize="small")
    common, count = (levels == levels[0]).all(), levels.shape[1]
    stride = -(-count // NAMED_LEVELS)
    columns = np.arange(count // 2 % stride, count, stride)  # with the middle one, mostly zero
    ax.set_xticks(columns, [f"{levels[0, k]:.2g}" if common else str(k) for k in columns])
    shown = "weight" if len(chosen) == len(levels) else f"weight ({len(chosen)} of {len(levels)})"
    ax.set(xlabel="value of the weight" if common else "level, from the lowest", ylabel=shown)
    return ax


def _largest(result: Any) -> np.ndarray:
    """Positions of all weights, or of those with the largest posterior means, ascending."""
    size = np.abs(result.mean)
    return np.sort(np.argsort(-size, kind="stable")[:SHOWN_WEIGHTS])
