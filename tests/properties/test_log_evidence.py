"""The evidence of any small problem is the density of its rows, in any units and any order."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ppl_sgp as sgp
from ppl_sgp.relevance.problem import Problem
from tests.builders import IdentityBasis
from tests.properties.drawn import features, few, scales, seeds
from tests.reference import exact_log_density

pytestmark = pytest.mark.float64_only
M = 4


def problem(seed, n, collinear):
    rng = np.random.default_rng(seed + 2)
    return features(seed, n, M, collinear), rng.standard_normal(n)


def evidence(Phi, y, scale, noise_scale, method, row_weights=None):
    stats = sgp.sufficient_statistics(IdentityBasis(M), Phi, y, row_weights=row_weights, method=method)
    return float(sgp.log_evidence(stats, sgp.DiagonalPrior(jnp.asarray(scale)), noise_scale))


@pytest.mark.slow
@few
@given(seeds, st.sampled_from([2, 4, 12]), scales(3), scales(2), st.sampled_from([1.0, 1e-3]))
def test_it_is_the_density_of_the_rows(seed, n, noise_scale, spread, collinear):
    Phi, y = problem(seed, n, collinear)
    rng = np.random.default_rng(seed + 3)
    scale, omega = spread ** rng.standard_normal(M), np.exp(rng.standard_normal(n))
    exact = exact_log_density(Phi, y, scale, 0.0, noise_scale, omega)
    got = evidence(Phi, y, scale, noise_scale, "qr", omega)
    assert got == pytest.approx(exact, rel=1e-8, abs=1e-7)


@few
@given(seeds, st.sampled_from([2, 4, 12]), scales(4), scales(4))
@pytest.mark.parametrize("method", ["gram", "qr"])
def test_units_and_order_do_not_matter(method, seed, n, of_y, of_x):
    Phi, y = problem(seed, n, 1.0)
    scale = np.array([0.5, 1.0, 2.0, 1.0])
    value = evidence(Phi, y, scale, 0.5, method)
    # log p(s y) = log p(y) - n log s; features times u and weights over u are the same functions.
    scaled = evidence(of_x * Phi, of_y * y, of_y * scale / of_x, of_y * 0.5, method)
    assert scaled == pytest.approx(value - n * np.log(of_y), rel=1e-9, abs=1e-7)
    order = np.random.default_rng(seed).permutation(n)
    assert evidence(Phi[order], y[order], scale, 0.5, method) == pytest.approx(value, rel=1e-10, abs=1e-8)


@few
@given(seeds, st.integers(1, 25), st.integers(1, 8), scales(5), scales(8), scales(8))
def test_relevance_vectors_have_the_same_evidence(seed, n, m, collinear, least, most):
    """Of any precisions and noise, against singular values of the rows: nothing fails, whatever is nearly collinear."""
    Phi, y = features(seed, n, m, min(collinear, 1.0)), np.random.default_rng(seed + 4).standard_normal(n)
    stats = sgp.sufficient_statistics(IdentityBasis(m), Phi, y, method="qr")
    scaled = Problem.of(stats)
    precision = np.geomspace(least, most, m)
    noise_variance = 1e-6 * max(1.0, collinear)
    rows = scaled.active(np.arange(m))
    solved = rows.posterior(precision, noise_variance)
    got = scaled.natural_log_evidence(rows.log_evidence(solved, noise_variance))
    unit = scaled.feature_norm * precision**0.5
    e = y / scaled.output_scale
    left, singular, _ = np.linalg.svd(Phi / unit / noise_variance**0.5, full_matrices=False)
    t = left.T @ e
    quadratic = (np.sum((e - left @ t) ** 2) + np.sum(t**2 / (1 + singular**2))) / noise_variance
    expected = -0.5 * (n * np.log(2 * np.pi * noise_variance) + quadratic + np.sum(np.log1p(singular**2)))
    expected -= n * np.log(scaled.output_scale)
    assert got == pytest.approx(expected, rel=1e-7, abs=1e-6)
