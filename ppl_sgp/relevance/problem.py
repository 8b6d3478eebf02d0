"""A regression by its pseudo-rows alone, in units of the data, and its evidence for a set of active features.

For active features a with precisions α and noise variance σ², of pseudo-rows (R, c) with a residual rss,

    log p = −½ [ n log 2πσ² + rss/σ² + ‖c − R_aμ‖²/σ² + Σ αμ² + log|I + α^-½ R_aᵀR_a α^-½ / σ²| ]

(Tipping 2001, eqs 12-13 and 15; Evans 2022, eq 5.3, as a sum of positive terms). Nothing is formed from the Gram
matrix of the active features: kernels at neighbouring centres are nearly collinear, and at a small noise its rounding
is worth nats, or makes it indefinite. Their triangular factor keeps the digits, and every evidence of the same features
follows from it in O(k³). Units: features of unit norm over the rows, y of unit mean square, so that nothing depends on
the scales of either.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dtpqrt, dtrtri

from ..statistics.statistics import SufficientStatistics

#: The least noise variance, in units of the mean square of y: below, the fit interpolates.
NOISE_FLOOR = 1e-12
#: Columns that LAPACK eliminates together.
BLOCK = 32


@dataclasses.dataclass(frozen=True)
class Problem:
    """The compressed rows, scaled.

    :param rows: R and c side by side, and below them the root of rss, shape (m̃ + 1, m + 1): as many rows of features
        and y with the products of all n.
    :param gram: RᵀR, shape (m, m), with a unit diagonal (zero for features that are zero at all rows).
    :param projection: r = Rᵀc, shape (m,).
    :param defects: what the sums have beside RᵀR and Rᵀc, shapes (m, m) and (m,): see
        :class:`~ppl_sgp.statistics.compressed.Compressed`; ``None`` where R is known better than they are.
    :param num_rows: n; yᵀy is n as well.
    :param feature_norm: norms that were divided out, shape (m,); one for zero features.
    :param output_scale: root mean square of y.
    :param log_weights: ½ Σ log ω of row weights.
    """

    rows: np.ndarray
    gram: np.ndarray
    projection: np.ndarray
    defects: tuple[np.ndarray, np.ndarray] | None
    num_rows: float
    feature_norm: np.ndarray
    output_scale: float
    log_weights: float

    @classmethod
    def of(cls, statistics: SufficientStatistics) -> Problem:
        """The statistics in units of the data."""
        moments, compressed = statistics.moments, statistics.compressed
        factor = np.diag(compressed.factor) if compressed.factor.ndim == 1 else compressed.factor
        norm = np.linalg.norm(factor, axis=0)
        norm = np.where(norm > 0, norm, 1.0)
        n = float(moments.num_rows)
        scale = float(np.sqrt(moments.sum_squares / n))
        R, c, rss = factor / norm, compressed.projection[:-1] / scale, compressed.projection[-1] / scale**2
        rows = np.block([[R, c[:, None]], [np.zeros((1, len(norm))), np.sqrt(rss)]])
        defects = None
        if compressed.gram_defect is not None:
            defects = compressed.gram_defect / np.outer(norm, norm), compressed.output_defect / (norm * scale)
        return cls(rows, R.T @ R, R.T @ c, defects, n, norm, scale, 0.5 * float(moments.log_weights))

    def active(self, indices: np.ndarray) -> ActiveRows:
        """What the evidence of chosen features needs of the rows. O(m̃ k²)."""
        triangle = np.linalg.qr(self.rows[:, [*indices, -1]], mode="r")
        padded = np.zeros((len(indices) + 1, len(indices) + 1))
        padded[: len(triangle)] = triangle
        if self.defects is None:
            return ActiveRows(padded, None, self.num_rows)
        of_gram, of_output = self.defects
        return ActiveRows(padded, (of_gram[np.ix_(indices, indices)], of_output[indices]), self.num_rows)

    def natural_log_evidence(self, scaled: float) -> float:
        """The log evidence in the units of y, in nats."""
        return scaled - self.num_rows * np.log(self.output_scale) + self.log_weights


class ActiveRows(NamedTuple):
    """The rows of k active features and y, as the triangular factor of their QR decomposition.

    :ivar triangle: shape (k + 1, k + 1); the last column is y.
    :ivar defects: those of the problem, of these features.
    :ivar num_rows: n.
    """

    triangle: np.ndarray
    defects: tuple[np.ndarray, np.ndarray] | None
    num_rows: float

    def posterior(self, precision: np.ndarray, noise_variance: float) -> ActivePosterior:
        """Σ, μ, evidence and residual, by eliminating the prior's pseudo-rows. O(k³), for any precisions."""
        k, noise_scale = len(precision), noise_variance**0.5
        root = precision**-0.5
        whitened = np.asfortranarray(self.triangle * (np.append(root, 1.0) / noise_scale))
        if k:
            prior = np.eye(k, k + 1, order="F")
            whitened, *_ = dtpqrt(k, min(BLOCK, k + 1), whitened, prior, overwrite_a=True, overwrite_b=True)
        factor, y = whitened[:k, :k], whitened[:, k]
        inverse = dtrtri(factor)[0] if k else factor
        inverse_factor = root[:, None] * np.triu(inverse)
        mean = inverse_factor @ y[:k]
        residual = np.sum((self.triangle[:, k] - self.triangle[:, :k] @ mean) ** 2)
        log_determinant = 2 * np.sum(np.log(np.abs(np.diag(factor))))
        value = -0.5 * (self.num_rows * np.log(2 * np.pi * noise_variance) + y[k] ** 2 + log_determinant)
        return ActivePosterior(mean, inverse_factor, float(value), float(residual))

    def log_evidence(self, solved: ActivePosterior, noise_variance: float) -> float:
        """The evidence with what the pseudo-rows lack of the sums, to first order. O(k³)."""
        if self.defects is None:
            return solved.log_evidence
        of_gram, of_output = self.defects
        J, mean = solved.inverse_factor, solved.mean
        lacking = np.sum((of_gram @ J) * J) + mean @ of_gram @ mean - 2 * of_output @ mean
        return solved.log_evidence - float(0.5 * lacking / noise_variance)


class ActivePosterior(NamedTuple):
    """The weights of active features given their precisions, in scaled units."""

    mean: np.ndarray
    inverse_factor: np.ndarray  # upper triangular J with Σ = JJᵀ
    log_evidence: float
    residual: float  # ‖y − Φμ‖²

    @property
    def variances(self) -> np.ndarray:
        """The diagonal of Σ."""
        return np.sum(self.inverse_factor**2, axis=1)


class Outcome(NamedTuple):
    """Where a scheme ended, in scaled units."""

    active: np.ndarray
    precision: np.ndarray
    noise_variance: float
    trace: list[float]
    iterations: int
    converged: bool
    reason: str
