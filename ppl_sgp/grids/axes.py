"""Axes of a product grid: points, checked, and the labels that results carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._internal import checks

#: Relative difference of steps up to which an axis counts as regular.
REGULAR = 1e-9
DAY = np.timedelta64(1, "D")


class Axis(NamedTuple):
    """Points of one axis.

    :ivar points: (k, d), float64.
    :ivar labels: what the points are called, where they are no numbers, as text; else ``None``.
    """

    points: np.ndarray
    labels: tuple[str, ...] | None

    @property
    def is_regular(self) -> bool:
        """Whether it is one column of equal steps."""
        if self.points.shape[1] != 1 or len(self.points) < 3:
            return False
        steps = np.diff(self.points[:, 0])
        return bool(np.ptp(steps) <= REGULAR * np.abs(steps).max())


def checked_axes(axes: Any, owner: str) -> list[Axis]:
    """Axes of a grid: columns (k,) of numbers, dates or text, or groups of columns (k, d).

    Dates become days since the first of them, text the numbers 0, 1, ….

    :raises ValueError: for none, for entries that are not finite, and for points that occur twice.
    """
    if not isinstance(axes, Sequence) or isinstance(axes, (str, bytes)) or len(axes) == 0:
        raise ValueError(
            f"{owner}: `axes` must be a list with the points of each axis, (k,) or (k, d); got "
            f"{type(axes).__name__}. For one axis write `[points]`."
        )
    return [_checked(axis, number, owner) for number, axis in enumerate(axes)]


def _checked(axis: Any, number: int, owner: str) -> Axis:
    name = f"axes[{number}]"
    array = np.asarray(axis)
    labels = None
    if array.dtype.kind in "MUSO" and array.ndim == 1:
        labels, array = _labelled(array, name, owner)
    points = checks.host_numbers(name, array, owner).astype(np.float64)
    points = points[:, None] if points.ndim == 1 else points
    if points.ndim != 2 or 0 in points.shape:
        raise ValueError(f"{owner}: `{name}` must have points, shape (k,) or (k, d); got {np.shape(axis)}.")
    checks.require_finite(name, points, owner)
    _, first, counts = np.unique(points, axis=0, return_index=True, return_counts=True)
    if len(first) < len(points):
        twice = points[first[np.argmax(counts > 1)]].tolist()
        raise ValueError(
            f"{owner}: `{name}` has {len(points) - len(first)} points that occur before, such as {twice}. A point is "
            "one line of cells: average what was measured there twice, or give the repetition an axis of its own."
        )
    return Axis(points, labels)


def _labelled(array: np.ndarray, name: str, owner: str) -> tuple[tuple[str, ...], np.ndarray]:
    """Labels, and numbers in their place: days for dates, positions for text."""
    if array.dtype.kind == "M":
        if np.isnat(array).any():
            raise ValueError(f"{owner}: `{name}` has dates that are missing (NaT). Drop those lines of cells.")
        nanoseconds = array.astype("datetime64[ns]")
        return tuple(np.datetime_as_string(nanoseconds).tolist()), (nanoseconds - nanoseconds.min()) / DAY
    text = array.tolist()
    if not all(isinstance(each, str) for each in text):
        raise ValueError(f"{owner}: `{name}` must be numbers, dates or text; got objects of {array.dtype}.")
    if len(set(text)) < len(text):
        raise ValueError(
            f"{owner}: `{name}` has labels that occur twice: {[t for t in text if text.count(t) > 1][:3]}."
        )
    return tuple(text), np.arange(len(text), dtype=np.float64)


def coordinates(points: np.ndarray, labels: tuple[str, ...] | None) -> np.ndarray:
    """What xarray has for coordinates of an axis: its labels, its numbers, or of groups of columns positions."""
    if labels is None:
        return points[:, 0] if points.shape[1] == 1 else np.arange(len(points))
    try:
        return np.array(labels, dtype="datetime64[ns]")
    except ValueError:
        return np.array(labels)


def checked_dims(dims: Any, count: int, owner: str) -> tuple[str, ...]:
    """Names of the axes, ``axis_0``, … if none are given."""
    if dims is None:
        return tuple(f"axis_{number}" for number in range(count))
    named = tuple(map(str, dims)) if not isinstance(dims, str) else (dims,)
    if len(named) != count or len(set(named)) < count:
        raise ValueError(f"{owner}: `dims` must be {count} different names, one an axis; got {list(named)}.")
    return named
