"""Sums over rows that keep a square root of their Gram matrix: slower, with twice the digits.

Rows (Φ, y) of any number have the same products as the at most m + q rows of the triangular factor of their QR
decomposition, and factors of parts are joined by decomposing one above the other (Golub & Van Loan, Matrix
Computations, section 5.3). The Gram matrix squares the condition number of Φ: directions below 1e-8 of the largest are
rounding in it, and known to 8 digits here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._pytree import pytree_dataclass
from .moments import DESCRIPTION, Moments, description


@pytree_dataclass
class RootMoments(Moments):
    """Moments with rows that have the same products as all rows.

    :param root: at most m + q rows of features and outputs, shape (k, m + q), with ``rootᵀroot = [Φ, y]ᵀΩ[Φ, y]``.
    """

    root: Any

    @classmethod
    def of_rows(
        cls,
        Phi: np.ndarray,
        X: np.ndarray,
        y: np.ndarray,
        row_weights: np.ndarray | None,
        gram: np.ndarray | None = None,
    ) -> RootMoments:
        """As :meth:`Moments.of_rows`, by a QR decomposition, and without memory for the Gram matrix. O(n (m + q)²)."""
        rows = np.concatenate([Phi, y.reshape(len(y), -1)], axis=1)
        if row_weights is not None:
            rows *= np.sqrt(row_weights)[:, None]
        return cls._of_root(rows, y.shape[1:], description(X, y, row_weights))

    @classmethod
    def _of_root(cls, rows: np.ndarray, outputs: tuple[int, ...], others: dict[str, Any]) -> RootMoments:
        root: np.ndarray = np.linalg.qr(rows, mode="r")  # type: ignore[assignment]
        m = rows.shape[1] - (outputs[0] if outputs else 1)
        Phi, y = root[:, :m], root[:, m:].reshape(len(root), *outputs)
        return cls(gram=Phi.T @ Phi, feature_output=Phi.T @ y, sum_squares=np.sum(y**2, axis=0), root=root, **others)

    def __add__(self, other: Moments) -> RootMoments:
        assert isinstance(other, RootMoments)  # as SufficientStatistics requires
        total, rows = super().__add__(other), np.concatenate([self.root, other.root])
        outputs = np.shape(self.sum_squares)
        return self._of_root(rows, outputs, {name: getattr(total, name) for name in DESCRIPTION})

    def absorb(self, other: Moments) -> RootMoments:
        """The same as a sum: roots are small beside a chunk."""
        return self + other
