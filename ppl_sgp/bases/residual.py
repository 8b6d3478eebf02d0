"""What the features of a basis lack of its kernel at some rows, and which rows share it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Residual(NamedTuple):
    """Functions that the features lack, of unit amplitude, for p parts at n rows.

    :ivar root: signed roots of their variances, (p, n).
    :ivar group: rows of one group, whole numbers of 0 or more, have one draw times their roots, as those of one unseen
        level of a category have; negative for rows that have a draw each, (p, n).
    """

    root: np.ndarray
    group: np.ndarray

    @classmethod
    def of_rows(cls, variance: np.ndarray) -> Residual:
        """Of rows that have a draw each, with these variances (p, n)."""
        return cls(np.sqrt(variance), np.full(variance.shape, -1))

    @property
    def variance(self) -> np.ndarray:
        """Variances of each row, (p, n)."""
        return self.root**2

    @property
    def own(self) -> np.ndarray:
        """Variances that rows do not share, (p, n)."""
        return np.where(self.group < 0, self.variance, 0.0)

    @property
    def shared(self) -> tuple[np.ndarray, np.ndarray]:
        """What rows share as features, (n, r), and the part of each, (r,)."""
        columns, parts = [], []
        for part, (root, group) in enumerate(zip(self.root, self.group, strict=True)):
            for label in np.unique(group[(group >= 0) & (root != 0)]):
                columns.append(np.where(group == label, root, 0.0))
                parts.append(part)
        shape = len(columns), self.root.shape[1]
        return np.array(columns).reshape(shape).T, np.array(parts, dtype=int)

    def shared_root(self, amplitude: np.ndarray) -> np.ndarray:
        """A root (q, n, r) of the covariance of what rows share, of q functions with squared amplitudes (q, p)."""
        shared, part = self.shared
        return shared * np.sqrt(amplitude[:, part])[:, None, :]

    def times(self, factor: np.ndarray | float) -> Residual:
        """With other roots: a number, or one a part, (p, 1)."""
        return self._replace(root=self.root * factor)

    @classmethod
    def joined(cls, parts: list[Residual]) -> Residual:
        """Of several bases, one after the other."""
        return cls(*(np.concatenate(each) for each in zip(*parts, strict=True)))
