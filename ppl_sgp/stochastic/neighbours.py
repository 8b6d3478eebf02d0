"""Which inducing points belong to a row: those of the largest covariance with it, or the nearest."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from ..bases.frozen_kernel import covariances, evaluate
from ..kernels import Kernel
from ..kernels.stationary import StationaryKernel

#: How points are chosen: by the kernel, or by distance in units of the points' standard deviations.
METHODS = ("kernel", "distance")
#: Covariances that are held at a time where no tree can tell which are largest.
ENTRIES = 2**22


class Neighbours:
    """The H points (m, d) that are nearest to rows.

    By the kernel they are those of the largest covariance: of one that falls with a scaled distance they are found by a
    tree, in about O(log m) a row and few inputs; of others by comparing all, O(m).

    :param kernel: at hyperparameters of the moment.
    :param method: ``"kernel"`` or ``"distance"``.
    """

    def __init__(self, kernel: Kernel, points: np.ndarray, count: int, method: str = "kernel") -> None:
        self._kernel, self._points, self.count = kernel, np.asarray(points, np.float64), count
        self._scale: np.ndarray | None = None
        if method == "distance":
            spread = self._points.std(axis=0)
            self._scale = np.where(spread > 0, spread, 1.0)
        elif isinstance(kernel, StationaryKernel):
            self._scale = np.broadcast_to(np.asarray(kernel.lengthscale, np.float64), points.shape[1:])
        self._tree = None if self._scale is None else cKDTree(self._points / self._scale)

    def of(self, X: np.ndarray) -> np.ndarray:
        """Numbers of the points of each row, nearest first, (n, H)."""
        X = np.asarray(X, np.float64)
        if self._tree is not None:
            found = self._tree.query(X / self._scale, k=self.count, workers=-1)[1]
            return found.reshape(len(X), self.count).astype(np.int32)
        size = max(1, ENTRIES // len(self._points))
        return np.concatenate([self._largest(X[start : start + size]) for start in range(0, len(X), size)])

    def _largest(self, X: np.ndarray) -> np.ndarray:
        covariance = evaluate(covariances, (self._kernel, self._points), X, np)
        chosen = np.argpartition(-covariance, self.count - 1, axis=1)[:, : self.count]
        order = np.argsort(-np.take_along_axis(covariance, chosen, axis=1), axis=1, kind="stable")
        return np.take_along_axis(chosen, order, axis=1).astype(np.int32)


def union(numbers: np.ndarray, num_points: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The points (size,) of some rows, each once, and which of them each row has, (b, H).

    Filled up with ``num_points``, a number of none. Where there are more than ``size``, those that most rows have; of
    the others a row is told the last place.

    :param numbers: of the points of each row, (b, H).
    """
    distinct, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    places = places.reshape(numbers.shape)
    if len(distinct) > size:
        kept = np.sort(np.argsort(-counts, kind="stable")[:size])
        moved = np.full(len(distinct), size - 1)
        moved[kept] = np.arange(size)
        distinct, places = distinct[kept], moved[places]
    result = np.full(size, num_points, np.int32)
    result[: len(distinct)] = distinct
    return result, places.astype(np.int32)
