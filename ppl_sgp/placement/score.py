"""What a basis makes of some rows: the evidence of these, and the density of others, with amplitude and noise refitted.

All weights have one prior variance a², features carry what differs. With ``λ = σ²/a²`` the best a² is known.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

#: Factors of the ratio of noise to signal variance that are tried.
FACTORS = 4.0 ** np.arange(-2, 3)


class Sample(NamedTuple):
    """Rows to learn from, and others to be predicted; y about its mean.

    :ivar X: inputs (s, d); ``y`` (s,); ``root`` square roots of row weights (s,).
    :ivar X_new: inputs (t, d), t perhaps 0; ``y_new`` (t,); ``root_new`` (t,).
    """

    X: np.ndarray
    y: np.ndarray
    root: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray
    root_new: np.ndarray


class Score(NamedTuple):
    """How good a basis is.

    :ivar log_density: mean log density of the rows that are predicted, nats a row; ``nan`` without such rows.
    :ivar log_evidence: of the rows learned from, nats.
    :ivar amplitude: the best; ``noise_scale`` likewise.
    """

    log_density: float
    log_evidence: float
    amplitude: float
    noise_scale: float


def score(sample: Sample, Phi: np.ndarray, Phi_new: np.ndarray, residual: np.ndarray, ratio: float) -> Score:
    """The score at the best ratio of noise to signal variance. O(s m min(s, m)).

    :param Phi: features (s, m) with prior weights N(0, a²); ``Phi_new`` (t, m).
    :param residual: variance that f lacks at the new rows, over a², (t,).
    :param ratio: the ratio to try first, with multiples of it.
    """
    of = _primal if Phi.shape[1] < len(Phi) else _dual
    return of(sample, sample.root[:, None] * Phi, Phi_new, residual, ratio * FACTORS)


def exact_score(sample: Sample, K: np.ndarray, K_new: np.ndarray, diagonal_new: np.ndarray, ratio: float) -> Score:
    """The score of an exact GP of covariance a²K, (s, s); ``K_new`` (t, s), ``diagonal_new`` (t,). O(s³)."""
    root = sample.root
    weighted = root[:, None] * K * root
    return _from_covariance(sample, weighted, K_new * root, diagonal_new, ratio * FACTORS)


def _dual(sample: Sample, Phi: np.ndarray, Phi_new: np.ndarray, residual: np.ndarray, ratios: np.ndarray) -> Score:
    diagonal = np.sum(Phi_new**2, axis=1) + residual
    return _from_covariance(sample, Phi @ Phi.T, Phi_new @ Phi.T, diagonal, ratios)


def _from_covariance(
    sample: Sample, K: np.ndarray, K_new: np.ndarray, diagonal_new: np.ndarray, ratios: np.ndarray
) -> Score:
    z, best = sample.root * sample.y, None
    for ratio in ratios:
        L = cholesky(K + ratio * np.eye(len(K)), lower=True, overwrite_a=True, check_finite=False)
        half = solve_triangular(L, z, lower=True, check_finite=False)
        evidence = _evidence(half @ half, 2 * np.sum(np.log(np.diag(L))), sample.root)
        if best is None or evidence > best[0]:
            best = (evidence, ratio, L, half)
    assert best is not None
    evidence, ratio, L, half = best
    projected = solve_triangular(L, K_new.T, lower=True, check_finite=False)
    variance = (diagonal_new - np.sum(projected**2, axis=0)).clip(0)
    return _scored(sample, evidence, ratio, float(half @ half), half @ projected, variance)


def _primal(sample: Sample, Phi: np.ndarray, Phi_new: np.ndarray, residual: np.ndarray, ratios: np.ndarray) -> Score:
    z, best = sample.root * sample.y, None
    A, b = Phi.T @ Phi, Phi.T @ z
    for ratio in ratios:
        L = cholesky(A + ratio * np.eye(len(A)), lower=True, overwrite_a=True, check_finite=False)
        w = cho_solve((L, True), b, check_finite=False)
        square = (np.sum((z - Phi @ w) ** 2) + ratio * w @ w) / ratio
        determinant = 2 * np.sum(np.log(np.diag(L))) + (len(z) - len(A)) * np.log(ratio)
        evidence = _evidence(square, determinant, sample.root)
        if best is None or evidence > best[0]:
            best = (evidence, ratio, L, w, square)
    assert best is not None
    evidence, ratio, L, w, square = best
    projected = solve_triangular(L, Phi_new.T, lower=True, check_finite=False)
    variance = ratio * np.sum(projected**2, axis=0) + residual
    return _scored(sample, evidence, ratio, float(square), Phi_new @ w, variance)


def _evidence(square: float, log_determinant: float, root: np.ndarray) -> float:
    """At the best a²: ``square`` over the number of rows."""
    n = len(root)
    return -0.5 * (n * np.log(2 * np.pi * square / n) + log_determinant + n) + float(np.sum(np.log(root)))


def _scored(
    sample: Sample, evidence: float, ratio: float, square: float, mean: np.ndarray, variance: np.ndarray
) -> Score:
    amplitude = (square / len(sample.y)) ** 0.5
    total = amplitude**2 * (variance + ratio / sample.root_new**2)
    density = -0.5 * (np.log(2 * np.pi * total) + (sample.y_new - mean) ** 2 / total)
    return Score(float(np.mean(density)) if len(density) else np.nan, evidence, amplitude, amplitude * ratio**0.5)
