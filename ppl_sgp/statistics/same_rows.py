"""Whether rows are those of some statistics: predictions that leave a row out need them again, and in their pairs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .accumulate import default_chunk_size
from .rows import RowArrays, validated
from .statistics import SufficientStatistics

#: How far sums may differ, as a share of the largest that their terms allow: float32 features differ by 1e-7.
TOLERANCE = 1e-6
#: The same as a share of the largest of all features: of a rotated basis some are rounding.
FLOOR = 1e-7


def require_same_rows(
    statistics: SufficientStatistics, X: Any, y: Any, row_weights: Any = None, *, features: Any = None, owner: str
) -> RowArrays:
    """Refuse rows that are not those of the statistics, and say in what they differ. O(n m).

    Compares n, ``Σ log ω``, ``yᵀΩy``, the diagonal of ``ΦᵀΩΦ``, and ``ΦᵀΩy``, which knows how rows of X and y are
    paired. The order of rows is free; so is everything that changes neither features nor outputs.

    :param features: Φ of these rows, shape (n, m), if it is known; else they are computed, a block at a time.
    :param owner: who asks, for messages.
    :return: inputs, outputs and row weights, validated, in float64.
    :raises ValueError: for rows that cannot be used, or that differ.
    """
    moments = statistics.moments
    X, y, row_weights = validated(statistics.basis, X, y, row_weights, owner)
    if len(y) != statistics.num_rows or y.shape[1:] != np.shape(moments.sum_squares):
        raise ValueError(
            f"{owner}: the statistics are of {statistics.num_rows} rows with {statistics.num_outputs} output(s); "
            f"got y of shape {y.shape}. Pass exactly the rows that were compressed."
        )
    omega = np.ones(len(y)) if row_weights is None else row_weights
    if not np.isclose(np.sum(np.log(omega)), moments.log_weights, rtol=TOLERANCE, atol=TOLERANCE * len(y)):
        raise ValueError(
            f"{owner}: `row_weights` are not those that were compressed. Pass the same, in the same units."
        )
    sum_squares = omega @ y**2
    if not np.allclose(sum_squares, moments.sum_squares, rtol=TOLERANCE, atol=0):
        raise ValueError(
            f"{owner}: `y` (or `row_weights`) is not what was compressed: its sum of squares differs "
            f"({sum_squares} against {moments.sum_squares}). Pass the same rows in the same units."
        )
    stored = moments.gram if np.ndim(moments.gram) == 1 else np.diagonal(moments.gram)
    # Beside orthonormal features, others are below 1e-4 of what those were, and may be rounding.
    compared = slice(statistics.num_orthonormal or None)
    squares, products, stored, expected = (
        sums[compared] for sums in (*_sums(statistics, X, y, omega, features), stored, moments.feature_output)
    )
    rounding = max(FLOOR**2, statistics.num_features * np.finfo(np.float64).eps)  # of eigenvalues of so many features
    if (np.abs(squares - stored) > TOLERANCE * stored + rounding * stored.max()).any():
        raise ValueError(
            f"{owner}: `X` is not what was compressed: features have other norms over these rows. Pass the same rows, "
            "in the same units and with the same columns."
        )
    norms = np.sqrt(stored)
    allowed = np.multiply.outer(TOLERANCE * norms + FLOOR * norms.max(), np.sqrt(moments.sum_squares))
    if (np.abs(products - expected) > allowed).any():
        if (np.abs(products + expected) <= allowed).all():
            raise ValueError(f"{owner}: `y` has the opposite sign of what was compressed. Pass the rows as they were.")
        raise ValueError(
            f"{owner}: these are not the pairs of `X` and `y` that were compressed: one of them is in another order, "
            "or has other signs. Pass the rows as they were."
        )
    return X, y, row_weights


def _sums(
    statistics: SufficientStatistics, X: np.ndarray, y: np.ndarray, omega: np.ndarray, features: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The diagonal of ΦᵀΩΦ, (m,), and ΦᵀΩy, (m,) or (m, q)."""
    squares, products = np.zeros(statistics.num_features), np.zeros((statistics.num_features, *y.shape[1:]))
    size = default_chunk_size(statistics.basis)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of other inputs than those the basis is for: they are refused
        for start in range(0, len(X), size):
            rows = slice(start, start + size)
            Phi = statistics.basis.host_features(X[rows]) if features is None else features[rows]
            weighted = omega[rows, None] * Phi
            squares += np.sum(weighted * Phi, axis=0)
            products += weighted.T @ y[rows]
    return squares, products
