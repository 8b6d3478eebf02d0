"""Evidences of a covariance by its eigenvalues, and what they say of rows left out, against dense normals."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from ppl_sgp.evidence.spectrum import RATIOS, Spectrum

pytestmark = pytest.mark.float64_only  # NumPy in either lane


@pytest.fixture
def rows(rng):
    root = rng.standard_normal((12, 5))  # of low rank, so that some eigenvalues are rounding
    return root @ root.T, rng.standard_normal(12)


def test_evidences_of_any_amplitude_and_noise(rows):
    K, y = rows
    variances, noises = np.array([0.5, 2.0]), np.array([0.1, 0.3])
    covariances = [v * K + s * np.eye(12) for v, s in zip(variances, noises, strict=True)]
    expected = [multivariate_normal(np.zeros(12), C).logpdf(y) for C in covariances]
    spectrum = Spectrum.of(K, y)
    np.testing.assert_allclose(spectrum.log_evidence(variances, noises), expected, rtol=1e-10)
    np.testing.assert_allclose(spectrum.log_evidence(0.5, 0.1), expected[0], rtol=1e-10)


def test_the_best_variance_is_the_maximum(rows):
    spectrum = Spectrum.of(*rows)
    best = spectrum.best_variance(RATIOS)
    at = spectrum.log_evidence(best, best * RATIOS)
    for factor in (0.99, 1.01):
        assert (spectrum.log_evidence(factor * best, factor * best * RATIOS) < at).all()


def test_rows_left_out(rows):
    K, y = rows
    C, expected = 0.7 * K + 0.2 * np.eye(12), []
    for i in range(12):
        others = np.arange(12) != i
        gain = np.linalg.solve(C[np.ix_(others, others)], C[others, i])
        expected.append(norm(gain @ y[others], np.sqrt(C[i, i] - gain @ C[others, i])).logpdf(y[i]))
    np.testing.assert_allclose(Spectrum.of(K, y).leave_one_out(0.7, 0.2), expected, rtol=1e-10)
