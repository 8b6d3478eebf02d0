"""Sums over rows that keep a square root of their Gram matrix: slower, with twice the digits.

Rows (Φ, y) of any number have the same products as the at most m + q rows of the triangular factor of their QR
decomposition, and factors of parts are joined by decomposing one above the other (Golub & Van Loan, Matrix
Computations, section 5.3). The Gram matrix squares the condition number of Φ: directions below 1e-8 of the largest are
rounding in it, and known to 8 digits here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._internal.pytree import pytree_dataclass
from .moments import Moments, join_descriptions


@pytree_dataclass
class RootMoments(Moments):
    """Moments with rows that have the same products as all rows.

    :param root: at most m + q rows of features and outputs, shape (k, m + q), with ``rootᵀroot = [Φ, y]ᵀΩ[Φ, y]``.
    """

    root: Any

    @classmethod
    def of_root(cls, rows: np.ndarray, outputs: tuple[int, ...], described: dict[str, Any]) -> RootMoments:
        """From rows with the right products, (k, m + q), the shape of y beyond its rows, and the other sums."""
        root: np.ndarray = np.linalg.qr(rows, mode="r")  # type: ignore[assignment]
        m = rows.shape[1] - (outputs[0] if outputs else 1)
        Phi, y = root[:, :m], root[:, m:].reshape(len(root), *outputs)
        return cls(gram=Phi.T @ Phi, feature_output=Phi.T @ y, sum_squares=np.sum(y**2, axis=0), root=root, **described)

    def __add__(self, other: Moments) -> RootMoments:
        assert isinstance(other, RootMoments)  # as SufficientStatistics requires
        described = join_descriptions(self.description, other.description)
        return self.of_root(np.concatenate([self.root, other.root]), np.shape(self.sum_squares), described)
