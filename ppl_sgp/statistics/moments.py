"""Additive sums over rows: what one pass over the data accumulates, in float64 on the host."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .._pytree import pytree_dataclass

#: The sums that need no features.
DESCRIPTION = ("num_rows", "log_weights", "y_mean", "x_mean", "x_square", "x_min", "x_max")


@pytree_dataclass
class Moments:
    """Sums over rows. Adding two of them gives those of all rows, up to rounding.

    With row weights ω (noise variance σ²/ωᵢ), every sum over features and outputs is weighted;
    the description of inputs and outputs (``x_…``, ``y_mean``) is not.

    :param gram: ``ΦᵀΩΦ``, shape (m, m), or its diagonal (m,) if it is known to be diagonal.
    :param feature_output: ``ΦᵀΩy``, shape (m,) or (m, q).
    :param sum_squares: ``yᵀΩy``, shape () or (q,).
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
    sum_squares: Any
    num_rows: Any
    log_weights: Any
    y_mean: Any
    x_mean: Any
    x_square: Any
    x_min: Any
    x_max: Any

    @classmethod
    def of_rows(
        cls,
        Phi: np.ndarray,
        X: np.ndarray,
        y: np.ndarray,
        row_weights: np.ndarray | None,
        gram: np.ndarray | None = None,
    ) -> Moments:
        """Sums over validated rows: features (n, m), inputs (n, d), outputs (n,) or (n, q), weights (n,) or None.

        ``gram``, (m, m), is memory for the Gram matrix. NumPy makes it by a symmetric rank-k update: half the work.
        """
        scaled_Phi, scaled_y = Phi, y
        if row_weights is not None:
            root = np.sqrt(row_weights)
            scaled_Phi, scaled_y = Phi * root[:, None], (y.T * root).T
        return cls(
            gram=np.matmul(scaled_Phi.T, scaled_Phi, out=gram),
            feature_output=scaled_Phi.T @ scaled_y,
            sum_squares=np.sum(scaled_y**2, axis=0),
            **description(X, y, row_weights),
        )

    def plain(self, **changes: Any) -> Moments:
        """The same sums with some replaced, and nothing that a subclass keeps beside them."""
        names = [field.name for field in dataclasses.fields(Moments)]
        return Moments(**{name: changes.get(name, getattr(self, name)) for name in names})

    def __add__(self, other: Moments) -> Moments:
        return self._joined(other, add_grams(self.gram, other.gram))

    def absorb(self, other: Moments) -> Moments:
        """The same as a sum, in the memory of this one's Gram matrix, whose values are lost."""
        return self._joined(other, np.add(self.gram, other.gram, out=self.gram))

    def _joined(self, other: Moments, gram: np.ndarray) -> Moments:
        n = self.num_rows + other.num_rows
        share = other.num_rows / n
        step = other.x_mean - self.x_mean
        return Moments(
            gram=gram,
            feature_output=self.feature_output + other.feature_output,
            sum_squares=self.sum_squares + other.sum_squares,
            num_rows=n,
            log_weights=self.log_weights + other.log_weights,
            y_mean=self.y_mean + share * (other.y_mean - self.y_mean),
            x_mean=self.x_mean + share * step,
            x_square=self.x_square + other.x_square + self.num_rows * share * step**2,
            x_min=np.minimum(self.x_min, other.x_min),
            x_max=np.maximum(self.x_max, other.x_max),
        )


def description(X: np.ndarray, y: np.ndarray, row_weights: np.ndarray | None) -> dict[str, Any]:
    """The sums that need no features, by name."""
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
