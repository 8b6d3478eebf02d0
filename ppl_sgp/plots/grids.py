"""Maps of grids: a plane of cells, gaps hatched."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from ._axes import NEUTRAL, axes


def plot_grid(
    array: xr.DataArray,
    *,
    gaps: xr.DataArray | None = None,
    at: dict[str, Any] | None = None,
    ax: Any = None,
    **style: Any,
) -> Any:
    """A map of two dims of a grid: of observations, filled values, means or standard deviations. Gaps are hatched.

    :param array: values with the grid's coordinates, such as ``sgp.predict_grid(posterior).mean``. NaN is left out.
    :param gaps: Boolean cells of the same dims, as in ``sgp.predict_grid(posterior).to_dataset()["gap"]``, or values
        that are NaN at gaps; they are hatched.
    :param at: where to cut, coordinates by the name of a dim (the nearest is taken, of text the same), until two are
        left.
    :param ax: a matplotlib axes.
    :param style: arguments of ``pcolormesh``, such as ``cmap``, ``vmin`` and ``vmax``.
    :return: the axes.
    :raises ValueError: if not two dims are left.

    .. doctest::

        >>> import matplotlib
        >>> matplotlib.use("Agg")
        >>> import numpy as np, ppl_sgp as sgp
        >>> grid = sgp.Grid([np.arange(3), np.arange(4)], np.eye(3, 4), gaps=np.eye(3, 4) > 0, dims=("day", "hour"))
        >>> sgp.plots.plot_grid(grid.to_xarray(), gaps=grid.to_xarray()).get_ylabel()
        'day'
    """
    if not isinstance(array, xr.DataArray):
        raise ValueError(
            f"plot_grid: `array` must be an xarray.DataArray, such as `grid.to_xarray()`; got {type(array).__name__}."
        )
    plane = _cut(array, at or {})
    if plane.ndim != 2:
        raise ValueError(
            f"plot_grid: a map has two dims; {list(plane.dims)} are left. Cut the others, as in "
            f"`at={{{str(plane.dims[0])!r}: ...}}`."
        )
    ax = axes(ax)
    down, across = plane.dims
    y, x = _positions(plane[down]), _positions(plane[across])
    mesh = ax.pcolormesh(x, y, np.ma.masked_invalid(plane.values.astype(float)), shading="nearest", **style)
    ax.figure.colorbar(mesh, ax=ax, label=plane.name or "")
    if gaps is not None:
        hidden = _cut(gaps, at or {}).transpose(down, across)
        is_gap = hidden.values if hidden.dtype == bool else np.isnan(hidden.values)
        # One level beyond one half: cells are hatched as wholes.
        hatch = ax.pcolor(x, y, np.ma.masked_where(~is_gap, np.ones(is_gap.shape)), shading="nearest", alpha=0.0)
        hatch.set_hatch("////")
        hatch.set_edgecolor(NEUTRAL)
        hatch.set_linewidth(0.0)
    for name, axis, values in ((across, ax.xaxis, plane[across]), (down, ax.yaxis, plane[down])):
        if values.dtype.kind in "UO":
            axis.set_ticks(np.arange(len(values)), [str(each) for each in values.values])
        axis.set_label_text(str(name))
    return ax


def _cut(array: xr.DataArray, at: dict[str, Any]) -> xr.DataArray:
    for name, value in at.items():
        exact = isinstance(value, str) and array[name].dtype.kind in "UO"
        array = array.sel({name: value}) if exact else array.sel({name: value}, method="nearest")
    return array


def _positions(values: xr.DataArray) -> np.ndarray:
    return np.arange(len(values)) if values.dtype.kind in "UO" else values.values
