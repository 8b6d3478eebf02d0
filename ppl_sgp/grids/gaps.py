"""Which cells are observed: gaps are declared, never guessed."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._internal import checks


def observed_cells(values: Any, gaps: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Observed values (N,) and their flat numbers (N,), in row-major order.

    :raises ValueError: for another shape, NaN that is not declared, or nothing observed.
    """
    if isinstance(values, np.ma.MaskedArray):
        if gaps is not None:
            raise ValueError("Grid: `values` is a masked array, which declares its gaps itself: leave `gaps` out.")
        values, gaps = values.data, np.ma.getmaskarray(values)
    array = spread_over_cells("values", values, shape)
    is_gap = _declared(gaps, array, shape)
    cells = np.flatnonzero(~is_gap)
    if len(cells) == 0:
        raise ValueError(f"Grid: all {array.size} cells are gaps: there is nothing to observe.")
    bad = ~np.isfinite(array[cells])
    if bad.any():
        where = tuple(int(i) for i in np.unravel_index(cells[np.argmax(bad)], shape))
        beyond = np.isinf(array[cells][bad]).any()
        remedy = (
            "Infinite values are no gaps; mark them by a mask."
            if beyond
            else "If NaN means that nothing was observed, say so: `gaps='nan'`."
            if gaps is None
            else "The mask is True at gaps; for one that is True where values are, pass `~mask`."
        )
        raise ValueError(
            f"Grid: `values` has {bad.sum()} of {array.size} cells that are not finite and not declared gaps (first: "
            f"{where}). {remedy}"
        )
    return array[cells], cells


def spread_over_cells(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of all cells, flat, in float64."""
    array = checks.host_numbers(name, values, "Grid")
    if array.shape != shape:
        turned = " It fits transposed: the axes are in another order." if array.shape == shape[::-1] != shape else ""
        raise ValueError(f"Grid: `{name}` must have shape {shape}, a number a cell; got {array.shape}.{turned}")
    return array.astype(np.float64).ravel()


def _declared(gaps: Any, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if gaps is None:
        return np.zeros(array.size, dtype=bool)
    if isinstance(gaps, str):
        if gaps != "nan":
            raise ValueError(f"Grid: `gaps` must be 'nan' or a Boolean array; got {gaps!r}.")
        return np.isnan(array)
    mask = np.asarray(gaps)
    if mask.dtype != bool or mask.shape != shape:
        turned = " It fits transposed: the axes are in another order." if mask.shape == shape[::-1] != shape else ""
        raise ValueError(
            f"Grid: `gaps` must be Boolean of shape {shape}, True at gaps; got {mask.dtype} of {mask.shape}.{turned}"
        )
    return mask.ravel()
