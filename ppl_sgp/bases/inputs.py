"""Arguments of bases, checked: training inputs, sets of points, numbers an input, counts, kernels."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from .._internal import checks
from ..kernels import Kernel

K = TypeVar("K", bound=Kernel)


def bounding_box(X: Any, owner: str) -> tuple[np.ndarray, np.ndarray]:
    """The middle and the half-width of the range of each column of ``X``, shapes (d,), in float64.

    :param X: training inputs, shape (n, d).
    :param owner: who asks, for messages.
    :raises ValueError: if ``X`` is not a finite (n, d) array with rows, or a column is constant.
    """
    X = checks.finite_inputs(X, None, owner)
    low, high = X.min(axis=0), X.max(axis=0)
    constant = np.flatnonzero(low == high)
    if len(constant):
        raise ValueError(
            f"{owner}: column {constant[0]} of `X` is constant ({low[constant[0]]}), so its range gives no scale. Drop "
            "it: an input that never varies says nothing about f. Or make the basis from numbers of your own."
        )
    return (low + high) / 2, (high - low) / 2


def point_set(name: str, value: Any, owner: str) -> np.ndarray:
    """``value`` as a finite float64 array of points, shape (k, d)."""
    points = checks.host_numbers(name, value, owner).astype(np.float64)
    if points.ndim != 2 or points.size == 0:
        raise ValueError(
            f"{owner}: `{name}` must have shape (k, d), one point a row; got {points.shape}. For one input use "
            f"`{name}[:, None]`."
        )
    if not np.isfinite(points).all():
        raise ValueError(f"{owner}: `{name}` has non-finite entries; leave those points out.")
    return points


def one_per_input(name: str, value: Any, input_dim: int | None, owner: str) -> np.ndarray:
    """``value`` as a finite float64 array of shape (d,)."""
    array = checks.host_numbers(name, value, owner).astype(np.float64)
    wanted = "(d,)" if input_dim is None else f"({input_dim},)"
    if array.ndim != 1 or array.size == 0 or (input_dim is not None and array.size != input_dim):
        raise ValueError(f"{owner}: `{name}` must have shape {wanted}, one number an input; got shape {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{owner}: `{name}` must be finite; got {array}.")
    return array


def checked_kernel(kernel: Any, family: type[K], owner: str, remedy: str) -> K:
    """The kernel, which must be of the family that a basis has a prior for."""
    if not isinstance(kernel, family):
        wanted = "kernel" if family is Kernel else f"{family.__name__} kernel"
        raise ValueError(f"{owner}: weight_prior needs a {wanted}; got {type(kernel).__name__}. {remedy}")
    return kernel
