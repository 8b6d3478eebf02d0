"""Kernels and bases in other units of the inputs are the same functions; kernels are covariances."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ppl_sgp as sgp
from ppl_sgp.bases.frozen_kernel import evaluate
from tests.properties.drawn import few, scales, seeds

pytestmark = pytest.mark.float64_only
FAMILIES = {
    "squared exponential": sgp.SquaredExponential,
    "Matern12": sgp.Matern12,
    "Matern32": sgp.Matern32,
    "Matern52": sgp.Matern52,
    "rational quadratic": lambda lengthscale, amplitude: sgp.RationalQuadratic(lengthscale, amplitude, alpha=1.5),
}
BASES = {
    "Fourier": lambda X: sgp.FourierBasis.from_data(jax.random.key(0), X, 12),
    "Laplace": lambda X: sgp.LaplaceBasis.from_data(X, 4),
}


def covariance(kernel, X):
    return kernel(X)


@few
@given(seeds, scales(3), scales(4), scales(6))
@pytest.mark.parametrize("name", FAMILIES)
def test_kernels_are_covariances_in_any_unit(name, seed, lengthscale, amplitude, unit):
    X = np.random.default_rng(seed).standard_normal((6, 2))
    K = evaluate(covariance, FAMILIES[name](lengthscale, amplitude), X, np)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(np.diag(K), amplitude**2, rtol=1e-12)
    assert (np.abs(K) <= amplitude**2 * (1 + 1e-12)).all()
    assert np.linalg.eigvalsh(K).min() >= -1e-12 * amplitude**2
    scaled = evaluate(covariance, FAMILIES[name](unit * lengthscale, amplitude), unit * X, np)
    np.testing.assert_allclose(scaled, K, rtol=1e-7, atol=1e-9 * amplitude**2)


@few
@given(seeds, st.integers(2, 20), st.integers(1, 3), scales(6), st.floats(-3, 3))
@pytest.mark.parametrize("name", BASES)
def test_bases_follow_the_inputs(name, seed, n, d, unit, shift):
    X = np.random.default_rng(seed).standard_normal((n, d))
    basis = BASES[name](X)
    Phi = basis.host_features(X)
    assert Phi.shape == (n, basis.num_features) and Phi.dtype == np.float64 and np.isfinite(Phi).all()
    np.testing.assert_allclose(basis.host_features(X[:1]), Phi[:1], atol=1e-13)
    moved = BASES[name](unit * (X + shift)).host_features(unit * (X + shift))
    size = unit ** (d / 2) if name == "Laplace" else 1.0  # those of the Laplacian have norm one over the box
    np.testing.assert_allclose(size * moved, Phi, atol=1e-8)
