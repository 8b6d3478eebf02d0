"""Validation of rows: what may enter the sums, and what is refused, with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._internal import checks
from ..bases.basis import Basis

#: Rows looked at together: what is looked at takes no memory of the size of the data.
BLOCK = 2**16


def validated(basis: Basis, X: Any, y: Any, row_weights: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Float64 arrays of inputs (n, d), outputs (n,) or (n, q) and row weights (n,) or ``None``; as :func:`checked`."""
    X, y, row_weights = checked(basis, X, y, row_weights)
    return as_float64(X), as_float64(y), None if row_weights is None else as_float64(row_weights)


def as_float64(rows: np.ndarray) -> np.ndarray:
    """Rows in float64, copied if they are not."""
    return rows.astype(np.float64, copy=False)


def checked(basis: Basis, X: Any, y: Any, row_weights: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Arrays of inputs (n, d), outputs (n,) or (n, q) and row weights (n,) or ``None``, in the dtype they have.

    Reads all rows in O(block) memory, so that what cannot be used is refused before any work.

    :raises ValueError: for shapes that do not fit, no rows, entries that are not finite numbers,
        masked entries, Boolean outputs, or row weights that are not positive.
    """
    X, y = _numeric("X", X), _outputs(y)
    checks.inputs_matrix(X, basis.input_dim, "sufficient_statistics")
    if len(X) == 0:
        raise ValueError("sufficient_statistics: `X` has no rows; skip empty chunks and empty groups.")
    if len(y) != len(X):
        raise ValueError(f"sufficient_statistics: `X` has {len(X)} rows but `y` has {len(y)}; they must match.")
    _require_finite("X", X)
    _require_finite("y", y)
    if row_weights is None:
        return X, y, None
    weights = _numeric("row_weights", row_weights)
    if weights.shape != (len(X),):
        raise ValueError(f"sufficient_statistics: `row_weights` must have shape ({len(X)},); got {weights.shape}.")
    count, first = _count_bad(weights, lambda block: ~((block > 0) & np.isfinite(block)))
    if count:
        raise ValueError(
            "sufficient_statistics: `row_weights` are relative noise precisions and must be positive and finite; "
            f"row {first} is not. Leave rows without information out."
        )
    return X, y, weights


def _outputs(y: Any) -> np.ndarray:
    y = _numeric("y", y)
    if y.dtype == np.bool_:
        raise ValueError(
            "sufficient_statistics: `y` is Boolean, but compression without loss needs a Gaussian likelihood. "
            "For classes or counts keep the weights explicit: `w = numpyro.sample('w', prior.distribution())` and "
            "any likelihood of `basis(X) @ w`. To treat 0/1 as numbers, pass `y.astype(float)`."
        )
    if y.ndim not in (1, 2) or (y.ndim == 2 and y.shape[1] == 0):
        raise ValueError(f"sufficient_statistics: `y` must have shape (n,) or (n, q) with q ≥ 1; got {y.shape}.")
    return y


def _numeric(name: str, values: Any) -> np.ndarray:
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"sufficient_statistics: `{name}` has masked entries; drop or impute those rows first.")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"sufficient_statistics: `{name}` is not a rectangular array of numbers ({error}).") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"sufficient_statistics: `{name}` must be real numbers; got dtype {array.dtype}. "
            "Encode categories and convert missing values first."
        )
    return array


def _require_finite(name: str, array: np.ndarray) -> None:
    count, first = _count_bad(array, lambda block: ~np.isfinite(block).reshape(len(block), -1).all(axis=1))
    if count:
        raise ValueError(
            f"sufficient_statistics: `{name}` has {count} of {len(array)} rows with entries that are not finite "
            f"(first: row {first}); drop or impute them first. Nothing is dropped silently."
        )


def _count_bad(rows: np.ndarray, is_bad: Callable[[np.ndarray], np.ndarray]) -> tuple[int, int]:
    """How many rows are bad, and which is the first."""
    count, first = 0, 0
    for start in range(0, len(rows), BLOCK):
        bad = np.flatnonzero(is_bad(rows[start : start + BLOCK]))
        if len(bad) and not count:
            first = start + int(bad[0])
        count += len(bad)
    return count, first
