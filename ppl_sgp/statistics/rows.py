"""Validation of rows: what may enter the sums, and what is refused, with the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._internal import checks
from ..bases.basis import Basis

#: Who asks, for messages, unless another does.
OWNER = "sufficient_statistics"
#: What keeps the other outputs of a row of which one is missing.
BY_OUTPUT = (
    " To lose no other column, make statistics of each output j of its own, from the rows where it is known: "
    "`known = np.isfinite(y[:, j])`, `X[known]`, `y[known, j]`."
)
#: Arrays of inputs, outputs and row weights, the last perhaps ``None``.
RowArrays = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def validated(basis: Basis | None, X: Any, y: Any, row_weights: Any, owner: str = OWNER) -> RowArrays:
    """Float64 arrays of inputs (n, d), outputs (n,) or (n, q) and row weights (n,) or ``None``; as :func:`checked`."""
    X, y, row_weights = checked(basis, X, y, row_weights, owner)
    return as_float64(X), as_float64(y), None if row_weights is None else as_float64(row_weights)


def as_float64(rows: np.ndarray) -> np.ndarray:
    """Rows in float64, copied if they are not."""
    return rows.astype(np.float64, copy=False)


def checked(basis: Basis | None, X: Any, y: Any, row_weights: Any, owner: str = OWNER) -> RowArrays:
    """Arrays of inputs (n, d), outputs (n,) or (n, q) and row weights (n,) or ``None``, in the dtype they have.

    Without a basis any number of inputs will do. Reads all rows in O(block) memory, so that what cannot be used is
    refused before any work.

    :raises ValueError: for shapes that do not fit, no rows, entries that are not finite numbers,
        masked entries, Boolean outputs, or row weights that are not positive.
    """
    X = checks.on_host("X", checks.inputs_matrix(X, None if basis is None else basis.input_dim, owner), owner)
    y = _outputs(y, owner)
    if len(X) == 0:
        raise ValueError(f"{owner}: `X` has no rows; skip empty chunks and empty groups.")
    if len(y) != len(X):
        raise ValueError(f"{owner}: `X` has {len(X)} rows but `y` has {len(y)}; they must match.")
    checks.require_finite("X", X, owner)
    checks.require_finite("y", y, owner, "" if y.ndim == 1 else BY_OUTPUT)
    return X, y, None if row_weights is None else checks.row_precisions(row_weights, len(X), owner)


def _outputs(y: Any, owner: str) -> np.ndarray:
    y = checks.host_numbers("y", y, owner)
    if y.dtype == np.bool_:
        raise ValueError(
            f"{owner}: `y` is Boolean, but compression without loss needs a Gaussian likelihood. For classes or counts "
            "use `sgp.compress_likelihood(basis, X, y, sgp.likelihoods.Bernoulli())`. To treat 0/1 as "
            "numbers, pass `y.astype(float)`."
        )
    if y.ndim not in (1, 2) or (y.ndim == 2 and y.shape[1] == 0):
        raise ValueError(f"{owner}: `y` must have shape (n,) or (n, q) with q ≥ 1; got {y.shape}.")
    return y
