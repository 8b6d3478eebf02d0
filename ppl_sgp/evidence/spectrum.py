"""Evidences of one covariance times any amplitude, under any noise: O(k³) once for k rows, then O(k) each.

What finds lengthscales tries multiples of some, each with the best amplitude and noise. NumPy, float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

#: Common factors of lengthscales that are tried, an octave apart: a gap in an input, or a wrong time stamp, stretches
#: scales of the data a hundredfold.
FACTORS = 2.0 ** np.arange(-10, 5)
#: Ratios of the variance of the noise to that of f.
RATIOS = np.geomspace(1e-8, 1e4, 49)


class Spectrum(NamedTuple):
    """A covariance by its eigenvalues (k,) and eigenvectors (k, k), and y in these, (k,)."""

    eigenvalues: np.ndarray
    vectors: np.ndarray
    projections: np.ndarray

    @classmethod
    def of(cls, K: np.ndarray, y: np.ndarray) -> Spectrum:
        """Of rows in units in which they have the same noise: ``√Ω K √Ω`` and ``√Ω y``."""
        values, vectors = np.linalg.eigh(K)
        return cls(values.clip(0), vectors, vectors.T @ y)

    def log_evidence(self, variance: Any, noise_variance: Any) -> np.ndarray:
        """Of ``variance·K`` and noise of a variance, of any shapes that broadcast; in nats."""
        total = self._total(variance, noise_variance)
        return -0.5 * np.sum(self.projections**2 / total + np.log(2 * np.pi * total), axis=-1)

    def best_variance(self, ratios: np.ndarray) -> np.ndarray:
        """The variance of f that is best where that of the noise is so many times as large."""
        return np.mean(self.projections**2 / (self.eigenvalues + ratios[..., None]), axis=-1)

    def leave_one_out(self, variance: float, noise_variance: float) -> np.ndarray:
        """Log density of each row given all others, (k,) (Rasmussen & Williams 2006, eqs 5.10 to 5.12)."""
        inverse = 1 / self._total(variance, noise_variance)
        dual, precisions = self.vectors @ (inverse * self.projections), self.vectors**2 @ inverse
        return 0.5 * (np.log(precisions / (2 * np.pi)) - dual**2 / precisions)

    def _total(self, variance: Any, noise_variance: Any) -> np.ndarray:
        variance, noise_variance = (np.asarray(each)[..., None] for each in (variance, noise_variance))
        return np.asarray(variance * self.eigenvalues + noise_variance)
