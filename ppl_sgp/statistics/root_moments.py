"""Sums over rows that keep a square root of their Gram matrix: slower for many rows, with twice the digits.

Rows (Φ, y) of any number have the same products as the at most m + q rows of the triangular factor of their QR
decomposition, and factors of parts are joined by decomposing one above the other (Golub & Van Loan, Matrix
Computations, section 5.3). The Gram matrix squares the condition number of Φ: directions below 1e-8 of the largest are
rounding in it, and known to 8 digits here. Up to m + q rows are kept as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import lapack

from .._internal.pytree import pytree_dataclass, static
from .moments import Moments, join_descriptions

#: Rows for each column, and multiplications of the products, up to which a root costs little beside its compression.
ROWS_A_COLUMN, PRODUCTS = 4, 1e8
#: Columns of a block of LAPACK's decomposition of rows below a triangle.
COLUMNS = 64


@pytree_dataclass
class RootMoments(Moments):
    """Moments with rows that have the same products as all rows.

    :param root: rows of features and outputs, shape (m + q, m + q), with ``rootᵀroot = [Φ, y]ᵀΩ[Φ, y]``; the last are
        zero where there are fewer.
    :param required: whether the root was asked for, so that it must not be lost; else it is kept where it is cheap.
    """

    root: Any
    required: bool = static(default=True)

    @classmethod
    def of_root(
        cls, rows: np.ndarray, outputs: tuple[int, ...], described: dict[str, Any], required: bool = True
    ) -> RootMoments:
        """From rows with the right products, (k, m + q), the shape of y beyond its rows, and the other sums."""
        root, width = fewest_rows(rows), rows.shape[1]
        m = width - (outputs[0] if outputs else 1)
        Phi, y = root[:, :m], root[:, m:].reshape(len(root), *outputs)
        root = np.concatenate([root, np.zeros((width - len(root), width))])
        products = {"gram": Phi.T @ Phi, "feature_output": Phi.T @ y, "output_products": y.T @ y}
        return cls(**products, root=root, required=required, **described)

    def __add__(self, other: Moments) -> Moments:
        if not isinstance(other, RootMoments):
            return self.plain() + other
        described = join_descriptions(self.description, other.description)
        required = self.required or other.required
        if not (required or is_cheap(described["num_rows"], self.root.shape[1])):
            return self.plain() + other.plain()
        root = joined(self.root, fewest_rows(other.root))
        return self.of_root(root, np.shape(self.sum_squares), described, required)


def is_cheap(num_rows: float, width: int) -> bool:
    """Whether a root of so many rows and columns costs little: the rows are few, or all of it is."""
    return num_rows <= ROWS_A_COLUMN * width or num_rows * width**2 <= PRODUCTS


def kind_beside(total: Moments) -> type[Moments] | None:
    """The class of sums over further rows that are added to ``total``; ``None`` if it is for those rows to say."""
    if isinstance(total, RootMoments):
        return RootMoments if total.required else None
    return Moments


def fewest_rows(rows: np.ndarray) -> np.ndarray:
    """Rows (at most as many as columns) with the same products: those that are not zero, or the factor of their QR."""
    rows = rows[np.any(rows != 0, axis=1)]
    if len(rows) <= rows.shape[1]:
        return rows
    root: np.ndarray = np.linalg.qr(rows, mode="r")  # type: ignore[assignment]
    return root


def joined(root: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """:func:`fewest_rows` of one above the other. Below a triangle k rows take O(k m²), whatever is above."""
    if len(root) < root.shape[1] or not np.array_equal(np.triu(root), root):
        return fewest_rows(np.concatenate([root, rows]))
    block = min(COLUMNS, root.shape[1])
    triangle, *_ = lapack.dtpqrt(0, block, root, rows) if len(rows) else (root,)
    return np.triu(triangle)
