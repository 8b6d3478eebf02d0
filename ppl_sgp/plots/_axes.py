"""All access to matplotlib's figures: imported when first needed, and never shown."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from scipy.special import ndtri

from .._internal.extras import optional_import

#: Probability of the central intervals drawn of posteriors, and its quantiles with the median in between.
INTERVAL, QUANTILES = 0.9, (0.05, 0.5, 0.95)
#: Half of that interval of a standard normal.
HALF_WIDTH = float(ndtri(QUANTILES[-1]))
#: Colour of data and of lines to compare with.
NEUTRAL = "0.35"


def pyplot() -> ModuleType:
    """Matplotlib's ``pyplot``.

    :raises ImportError: without matplotlib, which is an optional dependency.
    """
    return optional_import("matplotlib.pyplot", "plots", "ppl_sgp.plots")


def axes(ax: Any, figsize: tuple[float, float] = (6.4, 4.0)) -> Any:
    """The given axes, or those of a new figure."""
    if ax is not None:
        return ax
    return pyplot().subplots(figsize=figsize, layout="constrained")[1]


def panels(ax: Any, count: int, owner: str) -> tuple[Any, list[Any]]:
    """What to return, and one axes for each of ``count`` panels: those given, or of a new figure, four in a row.

    As in ``plt.subplots``, one panel is an axes by itself, and several are an array.
    """
    if ax is None:
        columns = min(count, 4)
        rows = -(-count // columns)
        size = (3.4 * columns + (count == 1), 2.7 * rows)
        grid = pyplot().subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)[1].ravel()
        for unused in grid[count:]:
            unused.remove()
        return (grid[0], [grid[0]]) if count == 1 else (grid[:count], list(grid[:count]))
    given = list(np.ravel(ax))
    if len(given) != count:
        raise ValueError(
            f"{owner}: `ax` must be {count} axes, one for each panel; got {len(given)}. Make them with "
            f"`plt.subplots(1, {count})[1]`, or leave `ax` out."
        )
    return ax, given


def finite(name: str, values: Any, owner: str) -> np.ndarray:
    """Values in float64, refused if there are none or some are not finite."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all():
        found = "none" if array.size == 0 else f"{np.sum(~np.isfinite(array))} of {array.size} that are not finite"
        raise ValueError(f"{owner}: `{name}` must hold finite numbers; got {found}. Drop those entries first.")
    return array


def variables(dataset: Any, names: tuple[str, ...], owner: str, source: str) -> list[np.ndarray]:
    """Variables of a dataset by name, refused if one is missing."""
    missing = [name for name in names if name not in getattr(dataset, "data_vars", {})]
    if missing:
        raise ValueError(
            f"{owner} needs a dataset with {list(names)}, as {source} returns it; got {type(dataset).__name__} without "
            f"{missing}."
        )
    return [dataset[name].values for name in names]
