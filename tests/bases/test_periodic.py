"""PeriodicBasis and its kernel: harmonics against Bessel functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ive

import ppl_sgp as sgp
from tests.bases.frozen import check_copies, check_features, check_gradients, implied_kernel
from tests.builders import by_lane

PERIOD = 12.0


def basis_of(num_harmonics):
    return sgp.PeriodicBasis(PERIOD, num_harmonics)


@pytest.mark.float64_only
def test_features_are_harmonics(rng, tmp_path):
    basis, X = basis_of(3), rng.uniform(-30, 30, (9, 1))
    angle, k = 2 * np.pi * X / PERIOD, np.arange(1, 4)
    expected = np.concatenate([np.ones((9, 1)), np.cos(k * angle), np.sin(k * angle)], axis=1)
    np.testing.assert_allclose(basis.host_features(X), expected, atol=1e-13)
    check_features(basis, X)
    check_copies(basis, X, sgp.Periodic(PERIOD, 0.7), tmp_path)


def test_features_keep_their_digits_after_many_periods():
    basis, X = basis_of(8), np.array([[3.0], [4.5]])
    np.testing.assert_allclose(basis(X + 12 * 2**12), basis.host_features(X), atol=by_lane(1e-11, 1e-5))


@pytest.mark.parametrize("length", [0.2, 0.5, 1.0, 5.0])
@pytest.mark.float64_only
def test_variances_are_bessel_functions(length):
    # exp(cos θ/ℓ²) = I₀ + 2 Σ I_k cos kθ; in absolute terms to rounding of the sum, relative where they are large.
    variance = np.exp(2 * np.asarray(basis_of(25).weight_prior(sgp.Periodic(PERIOD, length, 1.3)).log_scale))
    expected = 1.3**2 * ive(np.arange(26), length**-2) * np.where(np.arange(26) == 0, 1, 2)
    np.testing.assert_allclose(variance[:26], expected, rtol=by_lane(1e-12, 1e-5), atol=by_lane(2e-15, 2e-6))
    np.testing.assert_array_equal(variance[1:26], variance[26:])


@pytest.mark.parametrize("length", [0.1, 0.3, 1.0, 2.0, 4.0])
@pytest.mark.float64_only
def test_four_over_the_lengthscale_harmonics_are_enough(length):
    kernel, X = sgp.Periodic(PERIOD, length, 1.5), np.linspace(-20, 20, 41)[:, None]
    basis = basis_of(int(np.ceil(4 / length)))
    np.testing.assert_allclose(implied_kernel(basis, kernel, X), np.asarray(kernel(X)), atol=1.5**2 * 1e-3)


@pytest.mark.float64_only
def test_the_error_falls_to_rounding():
    kernel, X = sgp.Periodic(PERIOD, 0.6), np.linspace(-9, 9, 25)[:, None]
    errors = [np.abs(implied_kernel(basis_of(K), kernel, X) - np.asarray(kernel(X))).max() for K in (2, 4, 8, 20)]
    assert errors[0] > 3 * errors[1] > 9 * errors[2]
    assert errors[3] < by_lane(1e-13, 1e-5)


@pytest.mark.slow
@pytest.mark.float64_only
def test_without_its_constant_the_kernel_has_lost_its_mean_over_a_period(tmp_path):
    kernel, X = sgp.Periodic(PERIOD, 0.8, 1.5), np.linspace(-20, 20, 41)[:, None]
    basis = sgp.PeriodicBasis(PERIOD, 12, constant=False)
    assert basis.num_features == 24 and not basis.constant_features.any()
    mean = np.mean(kernel(np.zeros((1, 1)), PERIOD * np.arange(64)[:, None] / 64))
    np.testing.assert_allclose(implied_kernel(basis, kernel, X), kernel(X) - mean, atol=1e-9)
    check_features(basis, X)
    check_copies(basis, X, kernel, tmp_path)


def test_two_seasons_without_constants_are_not_collinear():
    X = np.linspace(0, 84, 400)[:, None]
    seasons = [sgp.PeriodicBasis(period, 2, constant=False) for period in (7.0, 12.0)]
    for basis, lost in ((sgp.stack(sgp.ConstantBasis(1), *seasons), 0), (sgp.stack(basis_of(2), basis_of(2)), 5)):
        assert basis.num_features - np.linalg.matrix_rank(basis.host_features(X)) == lost


@pytest.mark.parametrize("length", [0.3, 3.0, 30.0])
@pytest.mark.float64_only
def test_gradients_are_finite_where_variances_vanish(length):
    # At ℓ = 30 the tenth coefficient is of order 1e-39.
    def log_scale(length, amplitude):
        return basis_of(10).weight_prior(sgp.Periodic(PERIOD, length, amplitude)).log_scale

    value, gradient = jax.jit(lambda *a: (log_scale(*a), jnp.stack(jax.jacobian(log_scale, (0, 1))(*a))))(length, 1.3)
    assert np.isfinite(value).all() and np.isfinite(gradient).all()
    np.testing.assert_allclose(gradient[1], 1 / 1.3, rtol=1e-5)
    check_gradients(lambda length, amplitude: log_scale(length, amplitude)[:3], 0.5, 1.3)


@pytest.mark.slow
def test_priors_under_vmap_and_in_float32():
    prior = jax.vmap(lambda length: basis_of(4).weight_prior(sgp.Periodic(PERIOD, length)))(jnp.asarray([0.5, 1.0]))
    np.testing.assert_allclose(
        prior.log_scale[1], basis_of(4).weight_prior(sgp.Periodic(PERIOD, 1.0)).log_scale, rtol=by_lane(1e-9, 1e-2)
    )
    assert basis_of(4).weight_prior(sgp.Periodic(PERIOD, jnp.float32(0.5))).log_scale.dtype == jnp.float32
    assert basis_of(4).weight_prior(sgp.Periodic(jnp.float32(PERIOD), 0.5)).log_scale.dtype == jnp.result_type(float)


REFUSED = {
    "other period": (lambda: basis_of(2).weight_prior(sgp.Periodic(6.0, 1.0)), "kernel has period 6.0.*basis.period"),
    "traced period": (
        lambda: jax.jit(lambda T: basis_of(2).weight_prior(sgp.Periodic(T, 1.0)).log_scale)(PERIOD),
        "`period` is traced.*basis.period.*12.0",
    ),
    "other kernel": (
        lambda: basis_of(2).weight_prior(sgp.SquaredExponential(1.0)),
        "needs a Periodic kernel; got SquaredExponential.*FourierBasis",
    ),
    "negative": (lambda: sgp.PeriodicBasis(-1.0, 2), "`period` must be positive"),
    "list": (lambda: sgp.PeriodicBasis([1.0], 2), "`period` must be a number.*got list"),
    "traced": (lambda: jax.jit(lambda T: sgp.PeriodicBasis(T, 2)([[0.0]]))(1.0), "`period` must be a number"),
    "harmonics": (lambda: sgp.PeriodicBasis(1.0, 0), "`num_harmonics` must be an integer of 1 or more; got 0"),
    "columns": (lambda: basis_of(2).host_features(np.ones((3, 2))), r"must have shape \(n, 1\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_remedy(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        call()
