"""Bases in general, and bases seen in other coordinates."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import ppl_sgp as sgp
from tests.builders import IdentityBasis, by_lane, smooth_rows


@pytest.fixture
def rotated(key, rng):
    basis = sgp.FourierBasis.sample(key, sgp.Matern52(0.4), 8, 1)
    return sgp.sufficient_statistics(basis, *smooth_rows(rng, 50)).rotate().basis


def test_features_are_those_of_the_basis_times_the_rotation(rotated, rng):
    X = rng.standard_normal((6, 1))
    assert (rotated.num_features, rotated.input_dim) == (8, 1)
    expected = rotated.basis.host_features(X) @ rotated.rotation
    np.testing.assert_allclose(rotated.host_features(X), expected, atol=1e-13)
    np.testing.assert_allclose(rotated(X), expected, atol=by_lane(1e-12, 1e-5))
    np.testing.assert_allclose(jax.jit(lambda basis, X: basis(X))(rotated, X), expected, atol=by_lane(1e-12, 1e-5))


def test_rotation_without_a_prior_is_orthogonal(rotated):
    np.testing.assert_allclose(rotated.rotation.T @ rotated.rotation, np.eye(8), atol=1e-12)


def test_rotation_with_a_prior_whitens_it(key, rng):
    basis = sgp.FourierBasis.sample(key, sgp.Matern52(0.4), 8, 1)
    X, y = smooth_rows(rng, 50)
    prior = basis.weight_prior(sgp.Matern52(0.5, amplitude=1.7))
    rotated = sgp.sufficient_statistics(basis, X, y).rotate(prior).basis
    Phi, Z = basis.host_features(X), rotated.host_features(X)
    # The covariance of f under weights N(0, I) is that under the prior.
    variance = np.exp(2 * np.asarray(prior.log_scale, np.float64))
    np.testing.assert_allclose(Z @ Z.T, (Phi * variance) @ Phi.T, atol=1e-12)


def test_bases_without_a_kernel_say_so(rotated):
    for basis in (rotated, IdentityBasis(3)):
        with pytest.raises(ValueError, match=r"has no weight prior for a kernel.*DiagonalPrior\(scale\).*FourierBasis"):
            basis.weight_prior(sgp.SquaredExponential(1.0))


def test_inputs_are_checked(rotated):
    with pytest.raises(ValueError, match=r"RotatedBasis: `X` must have shape \(n, 1\); got \(2, 3\)"):
        rotated(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"IdentityBasis: `X` must have shape \(n, 3\); got \(3,\)"):
        IdentityBasis(3)(np.ones(3))


def test_an_abstract_basis_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        sgp.Basis()
