"""NystromBasis: against the dense formula, for kernels of every kind."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp._internal.pytree import pytree_dataclass, static
from tests.bases.frozen import check_copies, check_features, implied_kernel
from tests.builders import by_lane

SE = sgp.SquaredExponential
KERNELS = {
    "squared exponential": SE([0.4, 1.1], amplitude=2.0),
    "Matern32": sgp.Matern32(0.8, amplitude=0.3),
    "rational quadratic": sgp.RationalQuadratic(0.5, alpha=2.0, amplitude=5.0),
    "product": sgp.Matern52([0.5, 1.0], amplitude=3.0) * SE(2.0, amplitude=2.0),
    "arc-cosine": sgp.ArcCosine(order=1, amplitude=2.0, weight_scale=[1.0, 3.0]),
    "growing": sgp.Linear(weight_scale=[1.0, 2.0], bias=0.5) * sgp.Matern12(1.0, amplitude=3.0),
}


def in_float64(kernel, X, Z):
    with jax.enable_x64(True):
        return np.asarray(kernel(X, Z))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.float64_only
def test_is_the_nystrom_approximation(name, rng):
    kernel, U, X = KERNELS[name], rng.standard_normal((9, 2)), rng.standard_normal((20, 2))
    basis = sgp.NystromBasis(U, kernel)
    cross = in_float64(kernel, X, U)
    expected = cross @ np.linalg.solve(in_float64(kernel, U, U), cross.T)
    scale = np.abs(expected).max()
    assert (basis.num_features, basis.input_dim) == (9, 2)
    np.testing.assert_allclose(implied_kernel(basis, kernel, X) / scale, expected / scale, atol=by_lane(1e-9, 1e-6))
    # Exact from inducing points to anywhere.
    np.testing.assert_allclose(
        implied_kernel(basis, kernel, X, U) / scale, in_float64(kernel, X, U) / scale, atol=by_lane(1e-9, 1e-6)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", by_lane(["Matern32", "arc-cosine", "growing"], ["arc-cosine"]))
def test_features_and_copies(name, rng, tmp_path):
    kernel, X = KERNELS[name], rng.standard_normal((10, 2))
    basis = sgp.NystromBasis(X[:6], kernel)
    check_features(basis, X)
    check_copies(basis, X, kernel, tmp_path)


@pytest.mark.float64_only
def test_directions_at_rounding_level_are_cut(rng):
    U = np.concatenate([np.linspace(0, 1, 30), [0.5, 0.5]])[:, None]  # much closer than a lengthscale; repeated
    basis = sgp.NystromBasis(U, SE(1.0))
    X = rng.random((50, 1))
    assert basis.num_features < 15
    np.testing.assert_allclose(implied_kernel(basis, SE(1.0), X), SE(1.0)(X), atol=1e-6)
    in_float32 = np.asarray(basis(jnp.asarray(X, jnp.float32)), np.float64)
    np.testing.assert_allclose(in_float32, basis.host_features(X), atol=2e-3)


def test_blocks_of_rows_have_the_features_that_are_left(rng, monkeypatch):
    U = np.concatenate([np.linspace(0, 1, 30), [0.5, 0.5]])[:, None]
    basis, X = sgp.NystromBasis(U, SE(1.0)), rng.random((50, 1))
    whole = basis.host_features(X)
    monkeypatch.setattr("ppl_sgp.bases.frozen_kernel.BLOCK_SIZE", 20 * len(U))
    assert whole.shape == (50, basis.num_features) != (50, len(U))
    np.testing.assert_allclose(basis.host_features(X), whole, atol=1e-9 * np.abs(whole).max())


def test_evidence_is_that_of_the_dense_approximation(rng):
    X, kernel = rng.random((40, 1)) * 3, sgp.Matern52(0.7, amplitude=1.3)
    y = np.sin(3 * X[:, 0])
    basis = sgp.NystromBasis(X[::4], kernel)
    covariance = implied_kernel(basis, kernel, X) + 0.2**2 * np.eye(40)
    expected = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    value = sgp.log_evidence(sgp.sufficient_statistics(basis, X, y), basis.weight_prior(kernel), 0.2)
    np.testing.assert_allclose(value, expected, rtol=by_lane(1e-9, 1e-4))


def test_gradients_are_finite(rng):
    basis = sgp.NystromBasis(rng.standard_normal((6, 2)), KERNELS["Matern32"])
    gradient = jax.jit(jax.grad(lambda X: jnp.sum(basis(X) ** 2)))(jnp.asarray(basis.inducing_points))
    assert np.isfinite(gradient).all()
    slope = jax.grad(lambda a: basis.weight_prior(sgp.Matern32(0.8, a)).scale[0])(2.0)
    assert float(slope) == pytest.approx(1, rel=1e-6)


@pytree_dataclass
class Wiener(sgp.Kernel):
    """A kernel of the user's: ``rate min(x, x')``, to a power that is static."""

    rate: float
    power: int = static(default=1)

    def __call__(self, X, X2=None):
        X, X2 = jnp.asarray(X), jnp.asarray(X if X2 is None else X2)
        return self.rate * jnp.minimum(X, X2.T) ** self.power

    def diag(self, X):
        return self.rate * X[:, 0] ** self.power

    @property
    def variance(self):
        raise ValueError("not stationary")


def test_kernels_of_the_user():
    kernel, X = Wiener(3.0), np.linspace(0.1, 1, 7)[:, None]
    basis = sgp.NystromBasis(X, kernel)
    np.testing.assert_allclose(implied_kernel(basis, kernel, X), 3 * np.minimum(X, X.T), atol=1e-12)
    for other in (Wiener(2.0), Wiener(3.0, power=2)):  # has no amplitude, so nothing is free
        with pytest.raises(ValueError, match="NystromBasis was made for"):
            basis.weight_prior(other)


def test_amplitudes_that_scale_inputs_are_frozen(rng):
    basis = sgp.NystromBasis(rng.standard_normal((9, 2)), KERNELS["growing"])
    prior = basis.weight_prior(sgp.Linear(weight_scale=[1.0, 2.0], bias=0.5) * sgp.Matern12(1.0, amplitude=7.0))
    np.testing.assert_allclose(prior.scale, 7, rtol=1e-6)
    with pytest.raises(ValueError, match=r"made for `Linear.weight_scale` \[1. 2.\]; got \[1. 3.\]"):
        basis.weight_prior(sgp.Linear(weight_scale=[1.0, 3.0], bias=0.5) * sgp.Matern12(1.0))


def test_static_numbers_of_kernels_are_compared(rng):
    basis = sgp.NystromBasis(rng.standard_normal((9, 2)), sgp.ArcCosine(order=1))
    with pytest.raises(ValueError, match=r"made for the kernel ArcCosine\(order=1\); got ArcCosine\(order=0\)"):
        basis.weight_prior(sgp.ArcCosine(order=0))


@pytest.mark.parametrize(
    ("points", "kernel", "message"),
    [
        (np.ones(3), SE(1.0), r"`inducing_points` must have shape \(k, d\).*got \(3,\).*\[:, None\]"),
        (np.ones((0, 2)), SE(1.0), r"`inducing_points` must have shape"),
        ([[np.inf]], SE(1.0), "`inducing_points` has non-finite entries"),
        (np.ones((3, 1)), SE(1.0) + SE(2.0), "has a sum in it.*sgp.stack"),
        (np.ones((3, 1)), 1.0, "`kernel` must be a kernel .*got float"),
        (np.ones((3, 2)), SE([1.0, 1.0, 1.0]), "3 entries but there are 2 inputs"),
    ],
)
def test_bad_requests_are_refused(points, kernel, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        sgp.NystromBasis(points, kernel)


def test_rows_far_from_all_points_are_announced():
    basis = sgp.NystromBasis(np.linspace(0, 1, 6)[:, None], SE(0.3))
    with pytest.warns(UserWarning, match="NystromBasis: 0.333 of the rows lie far from all inducing points"):
        basis.host_features([[0.5], [1.2], [3.0]])
    basis.host_features([[-0.4], [0.5], [1.4]])
    jax.jit(basis.__call__)(jnp.array([[3.0]]))


def test_a_row_without_prior_variance_is_not_far():
    basis = sgp.NystromBasis([[0.5], [1.0]], sgp.Linear(1.0))
    with jax.debug_nans(True):
        np.testing.assert_allclose(basis.host_features([[0.0], [0.2], [3.0]]) ** 2, [[0.0], [0.04], [9.0]], atol=1e-14)
