"""A feature of its own for each new row: variances that grow away from the data (Evans 2022, proposition D.1)."""

from __future__ import annotations

import numpy as np

from ..bases.basis import Basis
from ..bases.frozen_kernel import covariances, evaluate, variances
from ..posteriors.augmentation import Augmentation, kernel_of
from ..posteriors.predict import prediction_inputs


class OwnFeatures:
    """What the weights of kernels at new rows, each apart from all other weights, add to the variance of f there.

    With prior precision s of such a weight, its best deviation is that of proposition 6.1, and f at its row has
    ``σ²k(x, x)²/(Σ k(x, x_l)² + σ²s)`` more; printed for s = k(x, x), and for y, though it is of f.

    :param augmentation: rows, kernel, and the standard deviation that f has far from all of them.
    :param basis: that of the weights.
    :param noise_scale: standard deviation of the noise.
    :param max_memory: bytes that kernels may take.
    """

    def __init__(self, augmentation: Augmentation, basis: Basis, noise_scale: float, max_memory: float) -> None:
        self._X, weights = prediction_inputs(augmentation.X, augmentation.row_weights, basis.input_dim, "Augmentation")
        self._omega, self._kernel = weights, kernel_of(basis, augmentation.kernel)
        self._noise_scale, self._max_memory = noise_scale, max_memory
        scale = augmentation.scale
        if scale is None:
            y = np.asarray(augmentation.y, dtype=np.float64)
            scale = float(np.sqrt(np.mean(y**2))) if y.size and np.isfinite(y).all() else 0.0
        if not scale > 0:
            raise ValueError("Augmentation: `y` says nothing about `scale`, the deviation of f far away; pass one.")
        self._scale = scale

    def variance(self, X_new: np.ndarray) -> np.ndarray:
        """At new inputs (k, d), shape (k,). O(n k)."""
        own, square = evaluate(variances, self._kernel, X_new, np), np.zeros(len(X_new))
        size = max(1, int(self._max_memory // (32 * max(1, len(X_new)))))
        for start in range(0, len(self._X), size):
            rows = slice(start, start + size)
            columns = evaluate(covariances, (self._kernel, X_new), self._X[rows], np)
            square += self._omega[rows] @ columns**2
        precision = (own / self._scale) ** 2
        return own**2 / (square / self._noise_scale**2 + precision)
