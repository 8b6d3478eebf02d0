"""PolynomialBasis: monomials, and exactly the polynomial kernel."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from tests.bases.frozen import check_copies, check_features, check_gradients, implied_kernel
from tests.builders import by_lane

RTOL = by_lane(1e-12, 2e-5)


@pytest.mark.parametrize("interactions", [True, False])
@pytest.mark.parametrize("input_dim, degree", [(1, 4), (2, 3), (3, 2), (4, 1)])
def test_features_are_all_monomials_once(input_dim, degree, interactions, rng):
    basis, X = sgp.PolynomialBasis(input_dim, degree, interactions), rng.standard_normal((5, input_dim))
    wanted = [
        powers
        for powers in itertools.product(range(degree + 1), repeat=input_dim)
        if sum(powers) <= degree and (interactions or np.count_nonzero(powers) <= 1)
    ]
    assert sorted(map(tuple, basis.powers.tolist())) == wanted
    assert (np.diff(basis.powers.sum(axis=1)) >= 0).all()
    number = math.comb(input_dim + degree, degree) if interactions else 1 + input_dim * degree
    assert (basis.num_features, basis.input_dim) == (number, input_dim)
    features = basis.host_features(X)
    for column, powers in zip(features.T, basis.powers, strict=True):
        np.testing.assert_allclose(column, np.prod(X**powers, axis=1), rtol=1e-13)


def test_monomials_are_named():
    names = sgp.PolynomialBasis(2, 2).feature_coords["feature"]
    assert names == ["constant", "z0", "z1", "z0^2", "z0 z1", "z1^2"]
    assert sgp.PolynomialBasis(2, 3, interactions=False).feature_coords["feature"][-2:] == ["z0^3", "z1^3"]


def test_copies_and_features_in_jax(rng, tmp_path):
    X = rng.uniform(-1, 3, (7, 2))
    basis = sgp.PolynomialBasis.from_data(X, 3)
    check_features(basis, X)
    check_copies(basis, X, sgp.Polynomial(3), tmp_path)


@pytest.mark.parametrize("amplitude", [0.7, [0.7, 2.0]])
@pytest.mark.parametrize("degree", [1, 2, 5])
@pytest.mark.parametrize("bias", [0.0, 1.5])
@pytest.mark.float64_only
def test_the_kernel_is_exact(amplitude, degree, bias, rng):
    X, kernel = rng.standard_normal((6, 2)), sgp.Polynomial(degree, amplitude, bias)
    K = np.asarray(kernel(X), np.float64)
    implied = implied_kernel(sgp.PolynomialBasis(2, degree), kernel, X)
    np.testing.assert_allclose(implied, K, rtol=RTOL, atol=RTOL * np.abs(K).max())


def test_centre_and_scale_are_frozen_and_the_kernel_is_of_standardised_inputs(rng):
    X = rng.uniform(1990, 2020, (8, 1))
    basis = sgp.PolynomialBasis.from_data(X, 4)
    Z = (X - basis.centre) / basis.scale
    np.testing.assert_allclose([Z.min(), Z.max()], [-1, 1])
    np.testing.assert_allclose(basis.host_features(X), Z ** np.arange(5), atol=1e-13)
    np.testing.assert_allclose(basis.host_features(X[2:4]), basis.host_features(X)[2:4], atol=1e-14)
    kernel = sgp.Polynomial(4, 0.5, 1.2)
    np.testing.assert_allclose(implied_kernel(basis, kernel, X), kernel(Z), rtol=10 * RTOL)


def test_powers_alone_have_a_prior_for_one_input(rng):
    X, kernel = rng.standard_normal((5, 1)), sgp.Polynomial(3)
    implied = implied_kernel(sgp.PolynomialBasis(1, 3, interactions=False), kernel, X)
    np.testing.assert_allclose(implied, kernel(X), rtol=10 * RTOL, atol=RTOL)


@pytest.mark.slow
@pytest.mark.float64_only
def test_gradients_and_transformations():
    basis = sgp.PolynomialBasis(2, 3)
    check_gradients(lambda a, b: basis.weight_prior(sgp.Polynomial(3, a, b)).log_scale, 0.7, 1.5)
    at_zero = jax.grad(lambda b: jnp.sum(basis.weight_prior(sgp.Polynomial(3, 0.7, b)).variance))(0.0)
    assert at_zero == 0
    log_scales = jax.vmap(lambda b: basis.weight_prior(sgp.Polynomial(3, 0.7, b)).log_scale)(jnp.asarray([0.5, 2.0]))
    np.testing.assert_allclose(log_scales[1], basis.weight_prior(sgp.Polynomial(3, 0.7, 2.0)).log_scale, atol=RTOL)


X = np.array([[0.0, 5.0], [1.0, 5.0]])
REFUSED = {
    "degree": (lambda: sgp.PolynomialBasis(2, 0), "`degree` must be an integer of 1 or more; got 0"),
    "input_dim": (lambda: sgp.PolynomialBasis(1.5, 2), "`input_dim` must be an integer of 1 or more; got 1.5"),
    "centre": (lambda: sgp.PolynomialBasis(2, 2, centre=[0.0]), r"`centre` must have shape \(2,\).*got shape \(1,\)"),
    "scale": (lambda: sgp.PolynomialBasis(1, 2, scale=[0.0]), "`scale` must be positive"),
    "constant": (
        lambda: sgp.PolynomialBasis.from_data(X, 2),
        r"from_data: column 1 of `X` is constant \(5.0\).*Drop it",
    ),
    "kernel": (
        lambda: sgp.PolynomialBasis(2, 2).weight_prior(sgp.Linear()),
        "a Polynomial kernel; got Linear.*DiagonalPrior",
    ),
    "other degree": (
        lambda: sgp.PolynomialBasis(2, 2).weight_prior(sgp.Polynomial(3)),
        "the kernel has degree 3, the basis 2",
    ),
    "no interactions": (
        lambda: sgp.PolynomialBasis(2, 2, interactions=False).weight_prior(sgp.Polynomial(2)),
        "`interactions=False` lacks.*Use `interactions=True`",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_remedy(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        call()
