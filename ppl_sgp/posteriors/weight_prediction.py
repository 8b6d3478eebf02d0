"""Predictions from weights of one basis: features once for all draws, and moments of all draws together."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ..bases.residual import Residual
from .mixture import row_blocks
from .prediction import Prediction


class WeightPrediction(Prediction):
    """A posterior predictive from posteriors of weights.

    :param residual_variance: whether to add the variance that a basis of a frozen kernel lacks of it at new rows.
    """

    def __init__(self, *of_all: Any, residual_variance: bool = True) -> None:
        super().__init__(*of_all)
        self._residual = residual_variance

    @cached_property
    def row_moments(self) -> tuple[np.ndarray, np.ndarray]:
        # Few rows go through each draw's factor, many through one factor of the covariance over all draws, in O(m²).
        if self.num_rows <= self._functions.basis.num_features:
            return self._row_moments_by_components()
        loc, root = self._mixture_moments
        mean, variance = np.empty((2, self.num_outputs, self.num_rows))
        for rows in row_blocks(self.num_rows, self.rows_at_once(0)):
            Phi = self._features(rows)
            mean[:, rows] = loc @ Phi.T
            for output, factor in enumerate(root):
                variance[output, rows] = np.sum((Phi @ factor.T) ** 2, axis=1)
            variance[:, rows] += self._residual_amplitude @ self._residual_of(rows).variance
        return mean, variance

    @cached_property
    def _mixture_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean (q, m) of the weights over all draws, and B (q, k, m) with BᵀB their covariance.

        B is the triangular factor of all factors and deviations of means side by side. Averages of covariances would
        lose digits where some directions are known far better than others.
        """
        q, m = self.num_outputs, self._functions.basis.num_features
        locs, root, squares = [], np.zeros((q, 0, m)), np.zeros((q, m))
        for draws in self._functions.batches():
            locs.append(draws.loc)
            if draws.independent:
                squares += np.sum(draws.factor**2, axis=0)
                continue
            for factor in draws.factor:
                root = _joined(root, factor.swapaxes(-1, -2))
        if squares.any():
            root = _joined(root, np.sqrt(squares)[:, :, None] * np.eye(m))
        loc = np.concatenate(locs)
        deviations = np.moveaxis(loc - loc.mean(axis=0), 0, 1)
        return loc.mean(axis=0), _joined(root, deviations) / np.sqrt(len(loc))

    @cached_property
    def _residual_amplitude(self) -> np.ndarray:
        """Mean squared amplitudes of the residuals, (q, p)."""
        return np.concatenate([draws.residual_amplitude for draws in self._functions.batches()]).mean(axis=0)

    def _residual_of(self, rows: slice) -> Residual:
        """What the parts of the basis lack of their kernels; nothing if it is left out."""
        return self._functions.basis.residual(self._X_new[rows]).times(float(self._residual))

    def _features(self, rows: slice) -> np.ndarray:
        """Features of some rows, computed once where those of all rows fit into a quarter of the memory."""
        if 32 * self.num_rows * self._functions.basis.num_features > self._max_memory:
            return self._features_of(self._X_new[rows])
        return self._all_features[rows]

    @cached_property
    def _all_features(self) -> np.ndarray:
        return self._features_of(self._X_new)

    def _features_of(self, X_new: np.ndarray) -> np.ndarray:
        return self._functions.basis.host_features(X_new)

    def _at(self, rows: slice) -> tuple[np.ndarray, Any]:
        """Features of some rows, and what they lack."""
        return self._features(rows), self._residual_of(rows)

    def _joint_draws(self, rng: np.random.Generator, indices: np.ndarray, noise: np.ndarray) -> np.ndarray:
        q, m = self.num_outputs, self._functions.basis.num_features
        size = max(1, int(self._max_memory // (32 * q * m * (m + 1))))
        chosen = [self._functions.take(indices[start : start + size]) for start in range(0, len(indices), size)]
        weights = np.concatenate([draws.weights(self._functions.standard_normals(rng, draws)) for draws in chosen])
        noise_scale = np.concatenate([draws.noise_scale for draws in chosen])
        amplitude = np.concatenate([draws.residual_amplitude for draws in chosen])
        result = np.empty((len(indices), q, self.num_rows))
        for rows in row_blocks(self.num_rows, self.rows_at_once(0)):
            result[..., rows] = weights @ self._features(rows).T
        residual = self._residual_of(slice(None))
        own, (shared, part) = residual.own, residual.shared
        for draw, scale, lacking in zip(result, noise_scale, amplitude, strict=True):
            total = scale[:, None] ** 2 * noise + lacking @ own
            if total.any():
                draw += np.sqrt(total) * rng.standard_normal(draw.shape)
            if shared.size:
                z = rng.standard_normal((1 if self._functions.outputs_are_joint else q, shared.shape[1]))
                draw += (np.sqrt(lacking[:, part]) * z) @ shared.T
        return result


def _joined(root: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """B with ``BᵀB`` the sum of those of both, (q, k, m) each, with at most m rows."""
    stacked = np.concatenate([root, rows], axis=1)
    if stacked.shape[1] <= stacked.shape[2]:
        return stacked
    return np.linalg.qr(stacked, mode="r")  # type: ignore[return-value]
