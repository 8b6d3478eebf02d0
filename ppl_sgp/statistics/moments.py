"""Additive sums over rows: what one pass over the data accumulates, in float64 on the host."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .._internal.pytree import pytree_dataclass

#: The sums that need no features.
DESCRIPTION = ("num_rows", "log_weights", "y_mean", "x_mean", "x_square", "x_min", "x_max")


@pytree_dataclass
class Moments:
    """Sums over rows. Adding two of them gives those of all rows, up to rounding.

    With row weights ω (noise variance σ²/ωᵢ), every sum over features and outputs is weighted;
    the description of inputs and outputs (``x_…``, ``y_mean``) is not.

    :param gram: ``ΦᵀΩΦ``, shape (m, m), or its diagonal (m,) if it is known to be diagonal.
    :param feature_output: ``ΦᵀΩy``, shape (m,) or (m, q).
    :param output_products: ``yᵀΩy``, shape () or (q, q).
    :param num_rows: n, a float64 scalar (exact to 2⁵³).
    :param log_weights: ``Σ log ωᵢ``.
    :param y_mean: mean of y, shape () or (q,).
    :param x_mean: mean of each input, shape (d,).
    :param x_square: sum of squared deviations of each input from its mean, shape (d,).
    :param x_min: smallest value of each input, shape (d,).
    :param x_max: largest value of each input, shape (d,).
    """

    gram: Any
    feature_output: Any
    output_products: Any
    num_rows: Any
    log_weights: Any
    y_mean: Any
    x_mean: Any
    x_square: Any
    x_min: Any
    x_max: Any

    def plain(self, **changes: Any) -> Moments:
        """The same sums with some replaced, and nothing that a subclass keeps beside them."""
        names = [field.name for field in dataclasses.fields(Moments)]
        return Moments(**{name: changes.get(name, getattr(self, name)) for name in names})

    @property
    def sum_squares(self) -> Any:
        """``yᵀΩy`` of each output, shape () or (q,)."""
        products = self.output_products
        return products if np.ndim(products) < 2 else products.diagonal(axis1=-2, axis2=-1)

    @property
    def description(self) -> dict[str, Any]:
        """The sums that need no features, by name."""
        return {name: getattr(self, name) for name in DESCRIPTION}

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            gram=add_grams(self.gram, other.gram),
            feature_output=self.feature_output + other.feature_output,
            output_products=self.output_products + other.output_products,
            **join_descriptions(self.description, other.description),
        )


def join_descriptions(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Those of the rows of both."""
    n = left["num_rows"] + right["num_rows"]
    share = right["num_rows"] / n
    step = right["x_mean"] - left["x_mean"]
    return {
        "num_rows": n,
        "log_weights": left["log_weights"] + right["log_weights"],
        "y_mean": left["y_mean"] + share * (right["y_mean"] - left["y_mean"]),
        "x_mean": left["x_mean"] + share * step,
        "x_square": left["x_square"] + right["x_square"] + left["num_rows"] * share * step**2,
        "x_min": np.minimum(left["x_min"], right["x_min"]),
        "x_max": np.maximum(left["x_max"], right["x_max"]),
    }


def describe(X: np.ndarray, y: np.ndarray, row_weights: np.ndarray | None) -> dict[str, Any]:
    """The sums over validated rows that need no features: inputs (n, d), outputs (n,) or (n, q), weights (n,)."""
    x_mean = X.mean(axis=0)
    log_weights = np.float64(0.0) if row_weights is None else np.sum(np.log(row_weights))
    squares = np.sum((X - x_mean) ** 2, axis=0)
    values = (np.float64(len(X)), log_weights, y.mean(axis=0), x_mean, squares, X.min(axis=0), X.max(axis=0))
    return dict(zip(DESCRIPTION, values, strict=True))


def add_grams(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The sum of two Gram matrices, one of which may be known to be diagonal."""
    if left.ndim == right.ndim:
        return left + right
    left, right = (np.diag(gram) if gram.ndim == 1 else gram for gram in (left, right))
    return left + right
