"""A regression by its sums alone, in units of the data, and its evidence for a set of active features.

For active features a with precisions α, noise variance σ² and β = 1/σ²

    Σ = (diag α + β A_aa)⁻¹,   μ = β Σ r_a,
    log p = −½ [ n log 2πσ² + β(yᵀy − r_aᵀμ) + log|diag α + β A_aa| − Σ log α ]

(Tipping 2001, eqs 12-13 and 15; Evans 2022, eq 5.3). Units: features of unit norm over the rows, y of unit mean
square, so that nothing depends on the scales of either.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from ..statistics.statistics import SufficientStatistics

#: The least noise variance, in units of the mean square of y: below, the fit interpolates.
NOISE_FLOOR = 1e-12


@dataclasses.dataclass(frozen=True)
class Problem:
    """Sums over rows, scaled.

    :param gram: A, shape (m, m), with a unit diagonal (zero for features that are zero at all rows).
    :param projection: r = Φᵀy, shape (m,).
    :param num_rows: n; yᵀy is n as well.
    :param feature_norm: norms that were divided out, shape (m,); one for zero features.
    :param output_scale: root mean square of y.
    :param log_weights: ½ Σ log ω of row weights.
    """

    gram: np.ndarray
    projection: np.ndarray
    num_rows: float
    feature_norm: np.ndarray
    output_scale: float
    log_weights: float

    @classmethod
    def of(cls, statistics: SufficientStatistics) -> Problem:
        """The statistics in units of the data."""
        moments = statistics.moments
        gram = np.diag(moments.gram) if moments.gram.ndim == 1 else moments.gram
        norm = np.sqrt(np.diag(gram))
        norm = np.where(norm > 0, norm, 1.0)
        n = float(moments.num_rows)
        scale = float(np.sqrt(moments.sum_squares / n))
        gram = gram / np.outer(norm, norm)
        return cls(gram, moments.feature_output / (norm * scale), n, norm, scale, 0.5 * float(moments.log_weights))

    def natural_log_evidence(self, scaled: float) -> float:
        """The log evidence in the units of y, in nats."""
        return scaled - self.num_rows * np.log(self.output_scale) + self.log_weights


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


def posterior(problem: Problem, active: np.ndarray, precision: np.ndarray, noise_variance: float) -> ActivePosterior:
    """Σ, μ, evidence and residual. O(k³) for k active features."""
    gram, r = problem.gram[np.ix_(active, active)], problem.projection[active]
    # Whitened by the prior: the matrix that is factorised is the identity plus a positive one.
    root = precision**-0.5
    whitened = root[:, None] * gram * (root / noise_variance)
    whitened.flat[:: len(active) + 1] += 1
    L, inverse = _cholesky(whitened)
    inverse_factor = root[:, None] * inverse.T
    mean = inverse_factor @ (inverse_factor.T @ r) / noise_variance
    n = problem.num_rows
    residual = max(n - 2 * r @ mean + mean @ gram @ mean, 0.0)
    # ‖y − Φμ‖²/σ² + Σ αμ² equals (yᵀy − rᵀμ)/σ², without its cancellation.
    quadratic = residual / noise_variance + np.sum(precision * mean**2)
    log_determinant = 2 * np.sum(np.log(np.diag(L)))
    value = -0.5 * (n * np.log(2 * np.pi * noise_variance) + quadratic + log_determinant)
    return ActivePosterior(mean, inverse_factor, float(value), float(residual))


def _cholesky(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L and its inverse, both lower triangular, straight from LAPACK: small problems are solved thousands of times."""
    if not len(matrix):
        return matrix, matrix
    L, failed = dpotrf(matrix, lower=True)
    if failed:
        raise np.linalg.LinAlgError(f"the posterior precision is not positive definite at row {failed}.")
    return L, dtrtri(L, lower=True)[0]


class Outcome(NamedTuple):
    """Where a scheme ended, in scaled units."""

    active: np.ndarray
    precision: np.ndarray
    noise_variance: float
    trace: list[float]
    iterations: int
    converged: bool
    reason: str
