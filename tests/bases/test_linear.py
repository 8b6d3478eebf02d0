"""LinearBasis: exactly the linear kernel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from tests.bases.frozen import check_copies, check_features, check_gradients, implied_kernel
from tests.builders import by_lane

RTOL = by_lane(1e-12, 1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_features_are_inputs(bias, rng, tmp_path):
    basis, X = sgp.LinearBasis(2, bias), rng.standard_normal((7, 2))
    assert (basis.num_features, basis.input_dim) == (2 + bias, 2)
    np.testing.assert_array_equal(basis.host_features(X), np.column_stack([np.ones(7), X])[:, not bias :])
    assert basis.feature_coords["feature"] == ["constant", "input 0", "input 1"][not bias :]
    check_features(basis, X)
    check_copies(basis, X, sgp.Linear(0.5), tmp_path)


@pytest.mark.parametrize("amplitude", [0.7, [0.7, 2.0]])
@pytest.mark.parametrize("bias", [0.0, 1.5])
def test_the_kernel_is_exact(amplitude, bias, rng):
    X, kernel = rng.standard_normal((6, 2)), sgp.Linear(amplitude, bias)
    np.testing.assert_allclose(implied_kernel(sgp.LinearBasis(2), kernel, X), kernel(X), rtol=RTOL, atol=RTOL)
    if not bias:
        np.testing.assert_allclose(
            implied_kernel(sgp.LinearBasis(2, False), kernel, X), kernel(X), rtol=RTOL, atol=RTOL
        )


def test_the_posterior_is_that_of_the_dense_process(rng):
    X, kernel = rng.standard_normal((12, 2)), sgp.Linear([0.7, 2.0], 1.5)
    y = X @ [1.0, -2.0] + 0.5 + 0.3 * rng.standard_normal(12)
    stats, basis = sgp.sufficient_statistics(sgp.LinearBasis(2), X, y), sgp.LinearBasis(2)
    covariance = np.asarray(kernel(X), np.float64) + 0.09 * np.eye(12)
    _, log_det = np.linalg.slogdet(covariance)
    expected = -(y @ np.linalg.solve(covariance, y) + log_det + 12 * np.log(2 * np.pi)) / 2
    value = sgp.log_evidence(stats, basis.weight_prior(kernel), 0.3)
    np.testing.assert_allclose(value, expected, rtol=by_lane(1e-10, 1e-4))


def test_gradients_and_transformations():
    check_gradients(lambda a, b: sgp.LinearBasis(2).weight_prior(sgp.Linear(a, b)).log_scale, 0.7, 1.5)
    at_zero = jax.grad(lambda b: jnp.sum(sgp.LinearBasis(2).weight_prior(sgp.Linear(0.7, b)).variance))(0.0)
    assert at_zero == 0
    scales = jax.vmap(lambda a: sgp.LinearBasis(1).weight_prior(sgp.Linear(a, 2.0)).scale)(jnp.asarray([0.5, 3.0]))
    np.testing.assert_allclose(scales, [[2.0, 0.5], [2.0, 3.0]], rtol=RTOL)


REFUSED = {
    "input_dim": (lambda: sgp.LinearBasis(0), "`input_dim` must be an integer of 1 or more; got 0"),
    "bias": (lambda: sgp.LinearBasis(2, False).weight_prior(sgp.Linear(1.0, 1.0)), "`bias=False`.*with `bias=True`"),
    "traced bias": (
        lambda: jax.jit(lambda b: sgp.LinearBasis(2, False).weight_prior(sgp.Linear(1.0, b)).scale)(0.0),
        "`bias=False`.*with `bias=True`",
    ),
    "kernel": (lambda: sgp.LinearBasis(2).weight_prior(sgp.Polynomial(1)), "Linear kernel; got Polynomial.*stack"),
    "amplitudes": (
        lambda: sgp.LinearBasis(3).weight_prior(sgp.Linear([1.0, 2.0])),
        "`weight_scale` has 2 entries but there are 3 inputs",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_remedy(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        call()
