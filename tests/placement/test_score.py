"""Scores against the dense formulas."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal, norm

from ppl_sgp.placement.score import FACTORS, Sample, exact_score, score

pytestmark = pytest.mark.float64_only  # NumPy in either lane


@pytest.fixture
def sample(rng):
    X, X_new = rng.uniform(size=(25, 1)), rng.uniform(size=(6, 1))
    weights, weights_new = rng.uniform(0.5, 2, 25), rng.uniform(0.5, 2, 6)
    y, y_new = rng.standard_normal(25), rng.standard_normal(6)
    return Sample(X, y, weights**0.5, X_new, y_new, weights_new**0.5)


def dense(sample, K, K_new, diagonal_new, found):
    """Evidence and mean log density at the amplitude and noise of a score."""
    amplitude, noise = found.amplitude, found.noise_scale
    C = amplitude**2 * K + np.diag(noise**2 / sample.root**2)
    mean = amplitude**2 * K_new @ np.linalg.solve(C, sample.y)
    explained = np.sum(K_new * np.linalg.solve(C, K_new.T).T, axis=1) * amplitude**4
    variance = amplitude**2 * diagonal_new - explained + noise**2 / sample.root_new**2
    evidence = multivariate_normal(np.zeros(len(C)), C).logpdf(sample.y)
    return evidence, norm(mean, variance**0.5).logpdf(sample.y_new).mean()


@pytest.mark.parametrize("m", [7, 40])
def test_features(m, sample, rng):
    Phi, Phi_new, residual = rng.standard_normal((25, m)), rng.standard_normal((6, m)), rng.uniform(size=6)
    found = score(sample, Phi, Phi_new, residual, 0.3)
    evidence, density = dense(sample, Phi @ Phi.T, Phi_new @ Phi.T, np.sum(Phi_new**2, axis=1) + residual, found)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-9)
    assert found.log_density == pytest.approx(density, abs=1e-9)


def test_an_exact_process_and_the_best_amplitude(sample):
    def kernel(A, B):
        return np.exp(-((A - B.T) ** 2) / 0.1)

    K, K_new = kernel(sample.X, sample.X), kernel(sample.X_new, sample.X)
    found = exact_score(sample, K, K_new, np.ones(6), 0.3)
    evidence, density = dense(sample, K, K_new, np.ones(6), found)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-9)
    assert found.log_density == pytest.approx(density, abs=1e-9)
    ratio = found.noise_scale**2 / found.amplitude**2
    assert np.isclose(ratio / 0.3, FACTORS).any()

    def negative(log_amplitude):
        a = np.exp(log_amplitude)
        moved = found._replace(amplitude=a, noise_scale=a * ratio**0.5)
        return -dense(sample, K, K_new, np.ones(6), moved)[0]

    end = minimize_scalar(negative, bracket=(np.log(found.amplitude) - 0.1, np.log(found.amplitude) + 0.1))
    assert np.exp(end.x) == pytest.approx(found.amplitude, rel=1e-5)


def test_without_rows_to_predict(sample, rng):
    none = sample._replace(X_new=np.zeros((0, 1)), y_new=np.zeros(0), root_new=np.zeros(0))
    found = score(none, rng.standard_normal((25, 3)), np.zeros((0, 3)), np.zeros(0), 0.3)
    assert np.isnan(found.log_density) and np.isfinite(found.log_evidence)
