"""Sums to which blocks of rows are added: what of a block is worked out beside others, and how it joins the total."""

from __future__ import annotations

from typing import Any

import numpy as np

from .moments import Moments, join_descriptions
from .root_moments import RootMoments, fewest_rows, joined


class RunningProducts:
    """``[Φ, y]ᵀΩ[Φ, y]``, of features and outputs together so that y takes no pass of its own.

    :param num_features: m.
    :param outputs: shape of y beyond its rows: () or (q,).
    :param total: what has been summed already.
    """

    def __init__(self, num_features: int, outputs: tuple[int, ...], total: Moments | None) -> None:
        self._m, self._outputs = num_features, outputs
        self.width = num_features + int(np.prod(outputs))
        self._described = None if total is None else total.description
        self._start(total)

    def _start(self, total: Moments | None) -> None:
        self._joint = np.zeros((self.width, self.width))
        if total is not None:
            m, r = self._m, total.feature_output.reshape(self._m, -1)
            self._joint[:m, :m], self._joint[:m, m:], self._joint[m:, :m] = total.gram, r, r.T
            self._joint[m:, m:] = total.output_products

    def memory(self) -> np.ndarray:
        """Memory for :meth:`part`."""
        return np.empty((self.width, self.width))

    @staticmethod
    def part(rows: np.ndarray, memory: np.ndarray) -> np.ndarray:
        """The products of rows of features and outputs, (k, m + q), scaled by the roots of their weights.

        O(k (m + q)²): NumPy makes them by a symmetric rank-k update, half the work of a product.
        """
        return np.matmul(rows.T, rows, out=memory)

    @staticmethod
    def column_squares(part: np.ndarray) -> np.ndarray:
        """The sums of squares of features and outputs, (m + q,), of what :meth:`part` has made of some rows.

        They are finite if and only if all products are.
        """
        return np.diagonal(part)

    def add(self, part: np.ndarray) -> None:
        """Add what :meth:`part` has made of other rows."""
        self._joint += part

    def describe(self, described: dict[str, Any]) -> None:
        """Add the sums of other rows that need no features."""
        self._described = described if self._described is None else join_descriptions(self._described, described)

    @property
    def is_empty(self) -> bool:
        """Whether no rows have been added, so that there are no :meth:`moments`."""
        return self._described is None

    def moments(self) -> Moments:
        """The sums so far, in memory of their own."""
        assert self._described is not None  # at least one row has been added
        m = self._m
        return Moments(
            gram=self._joint[:m, :m].copy(),
            feature_output=self._joint[:m, m:].reshape(m, *self._outputs).copy(),
            output_products=self._joint[m:, m:].reshape(2 * self._outputs).copy(),
            **self._described,
        )


class RunningRoot(RunningProducts):
    """The same by QR decompositions, for :class:`RootMoments`; some three times slower."""

    _root: np.ndarray

    def _start(self, total: Moments | None) -> None:
        self._root = np.zeros((0, self.width))
        if total is not None:
            assert isinstance(total, RootMoments)  # as SufficientStatistics and Checkpoint require
            self._root = total.root

    def memory(self) -> np.ndarray:
        """None: a root is small beside a block."""
        return np.empty(0)

    @staticmethod
    def part(rows: np.ndarray, memory: np.ndarray) -> np.ndarray:
        """At most m + q rows with the same products."""
        return fewest_rows(rows)

    @staticmethod
    def column_squares(part: np.ndarray) -> np.ndarray:
        """The sums of squares of features and outputs, (m + q,)."""
        squares: np.ndarray = np.sum(part**2, axis=0)
        return squares

    def add(self, part: np.ndarray) -> None:
        """Decompose rows below the root of those before."""
        self._root = joined(self._root, part)

    def moments(self) -> Moments:
        """The sums so far."""
        assert self._described is not None
        return RootMoments.of_root(self._root, self._outputs, self._described)


RUNNING: dict[type[Moments], type[RunningProducts]] = {Moments: RunningProducts, RootMoments: RunningRoot}
