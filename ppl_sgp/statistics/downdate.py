"""Sums over rows without some of the rows, where enough is left to tell."""

from __future__ import annotations

import numpy as np

from .moments import Moments, add_grams

#: Sums of what is left may be negative by so much of what they were: rounding.
POSSIBLE = 1e-12
#: Sums must keep so much of what they were: half of the digits.
LEAST = 1e-8


def downdated(moments: Moments, part: Moments) -> Moments:
    """Sums of the rows that are in ``moments`` and not in ``part``; the smallest and largest inputs stay.

    :raises ValueError: if the rows of ``part`` cannot all have been there, or too little is left.
    """
    if not part.num_rows < moments.num_rows:
        raise ValueError(
            f"forget: {int(part.num_rows)} rows are to be forgotten of {int(moments.num_rows)}; none would be left. "
            "Begin anew with `sufficient_statistics`."
        )
    left = _difference(moments, part)
    gram = np.diag(left.gram) if left.gram.ndim == 1 else left.gram
    features = moments.gram if moments.gram.ndim == 1 else np.diag(moments.gram)
    columns = left.feature_output.reshape(len(gram), -1)
    for r, squares, all_squares in zip(
        columns.T, np.ravel(left.sum_squares), np.ravel(moments.sum_squares), strict=True
    ):
        joint = np.block([[gram, r[:, None]], [r[None, :], np.full((1, 1), squares)]])
        _require_possible(joint, np.append(features, all_squares))
    return left


def _difference(moments: Moments, part: Moments) -> Moments:
    n = moments.num_rows - part.num_rows
    share = part.num_rows / n
    x_mean = moments.x_mean + share * (moments.x_mean - part.x_mean)
    between = n * part.num_rows / moments.num_rows * (x_mean - part.x_mean) ** 2
    return Moments(
        gram=add_grams(moments.gram, -part.gram),
        feature_output=moments.feature_output - part.feature_output,
        output_products=moments.output_products - part.output_products,
        num_rows=n,
        log_weights=moments.log_weights - part.log_weights,
        y_mean=moments.y_mean + share * (moments.y_mean - part.y_mean),
        x_mean=x_mean,
        x_square=np.maximum(moments.x_square - part.x_square - between, 0.0),
        x_min=moments.x_min,
        x_max=moments.x_max,
    )


def _require_possible(joint: np.ndarray, before: np.ndarray) -> None:
    """Refuse sums of products of features and y that no rows have, given the sums of squares that there were."""
    size = np.where(before > 0, before, 1.0)
    if np.linalg.eigvalsh(joint / np.sqrt(np.outer(size, size)))[0] < -POSSIBLE:
        raise ValueError(
            "forget: these rows cannot all be in the statistics: without them sums of squares would be negative. Pass "
            "the rows, outputs and weights that were added, each once."
        )
    if np.any((np.diag(joint) < LEAST * size) & (before > 0)):
        raise ValueError(
            "forget: of some feature, or of y, less than 1e-8 is left, which rounding of the forgotten rows hides. "
            "Compute the statistics of the rows that are left anew."
        )
