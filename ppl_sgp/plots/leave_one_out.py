"""Leave-one-out checks: how far importance weights can be relied on, and whether predictions are calibrated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..posteriors.arviz_compat import pareto_k
from ..posteriors.posterior import Posterior
from ._axes import axes, finite
from .calibration import draw_pit

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_pareto_k(source: Any, *, site: str | None = None, ax: Axes | None = None) -> Axes:
    """Pareto tail indices k of the rows: above the line, leaving that row out is not to be estimated from these draws.

    :param source: what :func:`~ppl_sgp.to_arviz` returns for given rows, the result of ``az.loo(..., pointwise=True)``,
        or an array of indices. Rows of several outputs follow one another.
    :param site: the variable of the log-likelihood, if a container has several.
    :param ax: axes to draw on; default those of a new figure.
    :return: the axes. The line is at ``min(1 − 1/log₁₀ S, 0.7)`` for S draws (Vehtari et al. 2024); of an array at 0.7.
    :raises ValueError: for a source without indices, or indices that are not finite.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> from matplotlib.figure import Figure
        >>> ax = sgp.plots.plot_pareto_k([0.1, -0.2, 0.9, 0.3], ax=Figure().subplots())
        >>> ax.get_legend_handles_labels()[1]
        ['k ≤ 0.70: 3 rows', 'k > 0.70: 1 row']
    """
    values, good = pareto_k(source, site, "plot_pareto_k")
    values = finite("pareto_k", values, "plot_pareto_k")
    row, bad = np.arange(len(values)), values > good
    ax = axes(ax)
    for chosen, sign, color in ((~bad, "≤", "C0"), (bad, ">", "C3")):
        count = int(chosen.sum())
        label = f"k {sign} {good:.2f}: {count} row{'' if count == 1 else 's'}"
        ax.plot(row[chosen], values[chosen], ".", color=color, ms=4 if sign == "≤" else 8, label=label)
    ax.axhline(good, color="C3", lw=1, ls="--")
    ax.set(xlabel="row", ylabel="Pareto k", ylim=(min(-0.1, values.min() - 0.05), max(1.0, values.max() + 0.05)))
    ax.legend(frameon=False)
    return ax


def plot_loo_pit(
    posterior: Posterior,
    X: Any = None,
    y: Any = None,
    *,
    row_weights: Any = None,
    offset: Any = None,
    bins: int = 20,
    ax: Axes | None = None,
) -> Axes:
    """Histogram of leave-one-out PIT values: where each y_i lies in what the model predicts from the other rows.

    ``uᵢ = Σ_s w_s F(yᵢ | y₋ᵢ, θ_s)`` with Pareto-smoothed weights w ∝ 1/p(yᵢ | y₋ᵢ, θ_s). It is uniform if predictions
    are calibrated: a hill says too wide, a valley too narrow, a slope too low or too high. ArviZ's ``loo_pit`` is not
    this: it takes draws of the posterior predictive, which of a collapsed model have seen yᵢ. O(m²) a row and draw.
    Where y is discrete the values are randomised between ``P(Y < yᵢ)`` and ``P(Y ≤ yᵢ)``.

    :param posterior: from :func:`~ppl_sgp.posterior`, with the statistics of exactly these rows, or with the rows.
    :param X: the training inputs, shape (n, d).
    :param y: the training outputs, shape (n,) or (n, q); values of all outputs go into one histogram.
    :param row_weights: the relative noise precisions given to ``sufficient_statistics``, if any.
    :param offset: of a likelihood, the offsets of the training rows, if any.
    :param bins: how many bars.
    :param ax: axes to draw on; default those of a new figure.
    :return: the axes, with the central 99% of each count for independent uniform values.
    :raises ValueError: as :func:`~ppl_sgp.leave_one_out`, and for fewer than 25 draws, unless all are the same.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> from matplotlib.figure import Figure
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(50, 1))
        >>> y = X[:, 0] + 0.1 * rng.normal(size=50)
        >>> stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, y)
        >>> draws = {"noise_scale": np.abs(rng.normal(0.1, 0.01, 40))}
        >>> model = sgp.models.reweighted_basis(scale=1.0)
        >>> posterior = sgp.posterior(model, draws, stats)
        >>> ax = sgp.plots.plot_loo_pit(posterior, X, y, bins=10, ax=Figure().subplots())
        >>> int(sum(bar.get_height() for bar in ax.patches[:10]))
        50
    """
    pit = posterior.loo_pit(X, y, row_weights=row_weights, offset=offset)
    return draw_pit(axes(ax), pit.ravel(), bins, "leave-one-out PIT")
