"""Orthogonal coordinates from products, and from their root where products have not the digits."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import ppl_sgp as sgp
from ppl_sgp.statistics import rotation
from ppl_sgp.statistics.rotation import of_factor, of_products, reference_root
from ppl_sgp.statistics.same_rows import require_same_rows
from tests.builders import by_lane


@pytest.fixture(scope="module")
def basis():
    """Smooth features with a level far above them."""
    functions = sgp.FourierBasis.sample(jax.random.key(2), sgp.SquaredExponential(0.3), 30, 1)
    return sgp.stack(sgp.ConstantBasis(1), functions)


def rows(noise, level=0.0, outputs=()):
    rng = np.random.default_rng(5)
    X = rng.random((200, 1))
    y = np.sin(9 * X[:, 0]) + level
    y = y.reshape(-1, *[1 for _ in outputs]) + noise * rng.standard_normal((200, *outputs))
    return X, y


@pytest.mark.parametrize("outputs", [(), (3,)])
@pytest.mark.parametrize("correlated", [False, True])
def test_evidence_after_rotation_from_products(basis, outputs, correlated):
    X, y = rows(0.1, outputs=outputs)
    stats = sgp.sufficient_statistics(basis, X, y, method="gram")
    scale = np.exp(np.linspace(0, -2, 31))
    half = np.eye(31) + 0.3 * np.eye(31, k=-1) if correlated else np.eye(31)
    half = scale[:, None] * half
    prior = sgp.DensePrior(half @ half.T) if correlated else sgp.DiagonalPrior(scale)
    assert of_products(stats.moments, reference_root(prior, 31)) is not None
    rotated = stats.rotate(prior)
    for amplitude, noise in ((0.1, 1.0), (1.0, 0.1), (10.0, 0.05)):
        Phi = basis.host_features(X) @ half * amplitude
        found = sgp.log_evidence(rotated, sgp.DiagonalPrior(amplitude), noise)
        expected = multivariate_normal(np.zeros(200), Phi @ Phi.T + noise**2 * np.eye(200)).logpdf(y.T)
        np.testing.assert_allclose(found, expected, rtol=by_lane(1e-9, 1e-4), atol=by_lane(1e-6, 0.05))


def test_the_basis_turns_with_the_weights(basis):
    X, y = rows(0.1, level=1e4)  # a level costs no digits of the rest
    stats = sgp.sufficient_statistics(basis, X, y, method="gram")
    prior = sgp.DiagonalPrior(2.0)
    root = reference_root(prior, 31)
    found, slow = of_products(stats.moments, root), of_factor(stats.compressed.factor, stats.projection, root)
    assert found is not None
    np.testing.assert_allclose(found.rotation @ found.rotation.T, 4 * np.eye(31), atol=1e-12)
    Z = basis.host_features(X) @ found.rotation
    norms = np.zeros(31)
    norms[: len(found.norms)] = found.norms
    np.testing.assert_allclose(Z.T @ Z, np.diag(norms**2), atol=1e-12 * norms[0] ** 2)
    np.testing.assert_allclose(found.norms[:8], slow.norms[:8], rtol=1e-9)
    np.testing.assert_allclose(np.abs(found.projection[:8]), np.abs(slow.projection[:8]), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.sum(found.projection[:-1] ** 2) + found.projection[-1], np.sum(y**2), rtol=1e-12)


@pytest.mark.float64_only
@pytest.mark.parametrize(("n", "outputs"), [(200, ()), (200, (3,)), (31, ()), (20, ())])
@pytest.mark.parametrize("noise", [0.1, 1e-3])
def test_evidence_after_rotation_of_many_features_from_their_root(basis, n, outputs, noise, monkeypatch):
    """Which takes one decomposition, and no compressed rows."""
    monkeypatch.setattr(rotation, "MANY", 5)
    X, y = (each[:n] for each in rows(noise, outputs=outputs))
    stats = sgp.sufficient_statistics(basis, X, y, method="qr")
    scale = np.exp(np.linspace(0, -2, 31))
    rotated = stats.rotate(sgp.DiagonalPrior(scale))
    assert "compressed" not in vars(stats)
    Phi = basis.host_features(X) * scale
    found = sgp.log_evidence(rotated, sgp.DiagonalPrior(1.0), noise)
    expected = multivariate_normal(np.zeros(n), Phi @ Phi.T + noise**2 * np.eye(n)).logpdf(y.T)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-5)


def test_products_without_the_digits_are_not_used(basis):
    root = np.eye(31)
    X, y = rows(0.1)
    noisy = sgp.sufficient_statistics(basis, X, y, method="gram")
    smooth = sgp.sufficient_statistics(basis, X, basis.host_features(X) @ np.linspace(-1, 1, 31), method="gram")
    assert of_products(noisy.moments, root) is not None
    assert of_products(smooth.moments, root) is None  # what is left of y is rounding
    nothing = sgp.sufficient_statistics(basis, X, np.zeros(200), method="gram")
    assert of_products(nothing.moments, root) is None
    kept = sgp.sufficient_statistics(basis, X, y, method="qr")
    assert of_products(kept.moments, root) is None
    assert of_products(noisy.rotate().moments, root) is None


def test_rows_are_known_again_in_directions_that_are_rounding():
    rng = np.random.default_rng(4)
    x = rng.uniform(0, 50, (3000, 1))
    y = 10 + np.sin(x[:, 0]) + 0.3 * rng.standard_normal(3000)
    smooth = sgp.NystromBasis(x[:150], sgp.SquaredExponential(2.0))
    stats = sgp.sufficient_statistics(sgp.stack(sgp.ConstantBasis(1), smooth), x, y, method="gram")
    assert of_products(stats.moments, np.eye(stats.num_features)) is not None
    rotated = stats.rotate(sgp.DiagonalPrior(1.0))
    require_same_rows(rotated, x, y, owner="test")
    with pytest.raises(ValueError, match="other norms"):
        require_same_rows(rotated, 1.01 * x, y, owner="test")
