"""The posterior predictive over one input, with the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._internal import checks
from ..posteriors.mixture import MixturePrediction
from ..posteriors.outcome_prediction import OutcomePrediction
from ._axes import NEUTRAL, axes, finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_predictive(
    prediction: MixturePrediction | OutcomePrediction,
    X_new: Any,
    *,
    X: Any = None,
    y: Any = None,
    levels: Any = (0.5, 0.9),
    noise: bool = True,
    offset: Any = 0.0,
    output: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Mean and central bands of a prediction over one input, with the data.

    Bands of :func:`~ppl_sgp.predict` are between quantiles of the mixture over draws (and models), not of a normal with
    its moments: about ten evaluations of its distribution function, O(draws) each, for each row and end of a band. Of a
    likelihood they are bands of y, of counts between whole numbers.

    :param prediction: at ``X_new``, from :func:`~ppl_sgp.predict`, :func:`~ppl_sgp.average_predictions` or the
        ``predict`` of a fit.
    :param X_new: the inputs, shape (n_new, 1) or (n_new,), in any order. They label the axis only, so they may be in
        other units than those predicted at, dates for example.
    :param X: inputs of data to show, shape (n, 1) or (n,), in the units of ``X_new``.
    :param y: their outputs, shape (n,).
    :param levels: probabilities of the bands, between 0 and 1.
    :param noise: bands of a new y; if false, of f.
    :param offset: added to the prediction, a number or shape (n_new,): what was taken off y before it was modelled.
    :param output: which output to show, from zero, if there are several.
    :param ax: axes to draw on; default those of a new figure.
    :return: the axes.
    :raises ValueError: for several inputs, shapes that do not fit, levels beyond 0 and 1, or values not finite.

    .. doctest::

        >>> import jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> from matplotlib.figure import Figure
        >>> X = np.linspace(0, 1, 20)[:, None]
        >>> y = 2 * X[:, 0] + 0.1 * np.cos(77 * X[:, 0])
        >>> stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, y)
        >>> model = sgp.models.reweighted_basis(scale=1.0)
        >>> prediction = sgp.predict(model, {"noise_scale": jnp.array([0.1, 0.2])}, stats, X)
        >>> ax = sgp.plots.plot_predictive(prediction, X, X=X, y=y, ax=Figure().subplots())
        >>> ax.get_legend_handles_labels()[1]
        ['90% of y', '50% of y', 'mean', 'data']
    """
    x = _inputs("X_new", X_new)
    levels = np.sort(checks.probabilities("levels", np.ravel(levels), "plot_predictive"))
    if not isinstance(prediction, (MixturePrediction, OutcomePrediction)):
        raise ValueError(
            "plot_predictive: `prediction` must come from `sgp.predict` or the `predict` of a regression; got "
            f"{type(prediction).__name__}."
        )
    if len(prediction.mean) != len(x):
        raise ValueError(
            f"plot_predictive: `X_new` has {len(x)} rows, the prediction {len(prediction.mean)}. Pass the inputs "
            "that were predicted at."
        )
    output = _chosen_output(np.shape(prediction.mean), output)
    offset = finite("offset", offset, "plot_predictive")
    if offset.shape not in ((), x.shape):
        raise ValueError(f"plot_predictive: `offset` must be a number or have shape {x.shape}; got {offset.shape}.")
    ends = np.concatenate([(1 - levels) / 2, (1 + levels) / 2])
    mean, quantiles = _moments_and_quantiles(prediction, ends, noise, output)
    order, name = np.argsort(x, kind="stable"), "y" if noise else "f"
    x, mean, quantiles = x[order], (mean + offset)[order], (quantiles + offset)[:, order]
    data = _data(X, y)
    ax = axes(ax)
    for i, shade in zip(reversed(range(len(levels))), np.linspace(0.2, 0.5, len(levels)), strict=True):
        low, high = quantiles[i], quantiles[len(levels) + i]
        ax.fill_between(x, low, high, color="C0", alpha=shade, lw=0, label=f"{100 * levels[i]:.4g}% of {name}")
    ax.plot(x, mean, color="C0", label="mean")
    if data is not None:
        ax.plot(*data, ".", color=NEUTRAL, ms=4, label="data", zorder=1.5)
    ax.set_xlabel(str(X_new.columns[0]) if hasattr(X_new, "columns") else "x")
    ax.set_ylabel(name)
    ax.legend(frameon=False)
    return ax


def _inputs(name: str, X: Any) -> np.ndarray:
    """One input, shape (n,)."""
    values = np.asarray(X)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(
            f"plot_predictive: `{name}` must have one input, shape (n, 1) or (n,); got {values.shape}. Of several "
            "inputs predict along one, the others fixed, and pass its column: `X_new[:, [j]]`."
        )
    if values.dtype.kind not in "biufM" or values.size == 0 or not np.isfinite(values).all():
        raise ValueError(
            f"plot_predictive: `{name}` must hold finite numbers or dates; got {values.size} of dtype {values.dtype}. "
            "Drop rows with missing entries."
        )
    return values


def _data(X: Any, y: Any) -> tuple[np.ndarray, np.ndarray] | None:
    if X is None and y is None:
        return None
    if X is None or y is None:
        raise ValueError("plot_predictive: pass both `X` and `y` of the data, or neither.")
    x, y = _inputs("X", X), finite("y", y, "plot_predictive")
    if y.shape != x.shape:
        raise ValueError(f"plot_predictive: `y` must have shape {x.shape}, one output for each row; got {y.shape}.")
    return x, y


def _chosen_output(shape: tuple[int, ...], output: int | None) -> int:
    if len(shape) == 1 and output is None:
        return 0
    if len(shape) == 2 and output in range(shape[1]):
        return int(output)  # type: ignore[arg-type]
    count = shape[1] if len(shape) == 2 else 1
    raise ValueError(
        f"plot_predictive: the prediction has {count} output(s), and `output` is {output!r}. "
        + ("Leave `output` out." if len(shape) == 1 else f"Choose one with `output=`, from 0 to {count - 1}.")
    )


def _moments_and_quantiles(
    prediction: MixturePrediction | OutcomePrediction,
    probabilities: np.ndarray,
    noise: bool,
    output: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (n_new,) of one output, and its quantiles (p, n_new)."""
    if isinstance(prediction, OutcomePrediction):
        if not noise:
            raise ValueError("plot_predictive: a prediction of a likelihood is of y, not of f; leave `noise` out.")
        return prediction.mean, prediction.quantiles(probabilities).astype(np.float64)
    of_all = prediction.mean, prediction.quantiles(probabilities, noise=noise)
    mean, quantiles = of_all if prediction.one_output else (values[..., output] for values in of_all)
    return mean, quantiles
