"""Validation of rows: what may enter the sums, and what is refused, with the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _checks
from ..bases.basis import Basis


def validated(basis: Basis, X: Any, y: Any, row_weights: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Float64 arrays of inputs (n, d), outputs (n,) or (n, q) and row weights (n,) or ``None``.

    :raises ValueError: for shapes that do not fit, no rows, entries that are not finite numbers,
        masked entries, Boolean outputs, or row weights that are not positive.
    """
    X, y = _numbers("X", X), _outputs(y)
    _checks.inputs_matrix(X, basis.input_dim, "sufficient_statistics")
    if len(X) == 0:
        raise ValueError("sufficient_statistics: `X` has no rows; skip empty chunks and empty groups.")
    if len(y) != len(X):
        raise ValueError(f"sufficient_statistics: `X` has {len(X)} rows but `y` has {len(y)}; they must match.")
    _require_finite("X", X)
    _require_finite("y", y)
    if row_weights is None:
        return X, y, None
    weights = _numbers("row_weights", row_weights)
    if weights.shape != (len(X),):
        raise ValueError(f"sufficient_statistics: `row_weights` must have shape ({len(X)},); got {weights.shape}.")
    bad = ~((weights > 0) & np.isfinite(weights))
    if bad.any():
        raise ValueError(
            "sufficient_statistics: `row_weights` are relative noise precisions and must be positive and finite; "
            f"row {np.flatnonzero(bad)[0]} is not. Leave rows without information out."
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
    y = y.astype(np.float64, copy=False)
    if y.ndim not in (1, 2) or (y.ndim == 2 and y.shape[1] == 0):
        raise ValueError(f"sufficient_statistics: `y` must have shape (n,) or (n, q) with q ≥ 1; got {y.shape}.")
    return y


def _numbers(name: str, values: Any) -> np.ndarray:
    return _numeric(name, values).astype(np.float64, copy=False)


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
    bad = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
    if bad.any():
        raise ValueError(
            f"sufficient_statistics: `{name}` has {bad.sum()} of {len(array)} rows with entries that are not finite "
            f"(first: row {np.flatnonzero(bad)[0]}); drop or impute them first. Nothing is dropped silently."
        )
