"""CallableBasis: functions of the user's, NumPyro's Hilbert-space approximation among them."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.contrib.hsgp.laplacian import eigenfunctions
from numpyro.contrib.hsgp.spectral_densities import diag_spectral_density_squared_exponential

import ppl_sgp as sgp
from tests.bases.frozen import check_features
from tests.builders import by_lane

X = np.random.default_rng(0).random((30, 2))


def waves(X):
    return jnp.concatenate([jnp.sin(3 * X), jnp.cos(X[:, :1])], axis=1)


def waves_in_numpy(X):
    return np.concatenate([np.sin(3 * X), np.cos(X[:, :1])], axis=1)


def test_features_are_those_of_the_function():
    basis = sgp.CallableBasis(waves, 3, 2)
    assert (basis.num_features, basis.input_dim) == (3, 2)
    check_features(basis, X)
    # In float64, whatever the lane, for JAX as for NumPy.
    np.testing.assert_allclose(basis.host_features(X), waves_in_numpy(X), rtol=1e-14)
    np.testing.assert_array_equal(sgp.CallableBasis(waves_in_numpy, 3, 2).host_features(X), waves_in_numpy(X))
    jitted = sgp.CallableBasis(jax.jit(waves), 3, 2)
    np.testing.assert_allclose(jitted(X), waves_in_numpy(X), atol=by_lane(1e-14, 1e-6))
    np.testing.assert_allclose(jitted.host_features(X), waves_in_numpy(X), rtol=1e-14)


def test_host_features_are_concrete_within_a_trace():
    basis = sgp.CallableBasis(waves, 3, 2)
    traced = jax.jit(lambda scale: scale * basis.host_features(X[:2]).astype(np.float32))
    np.testing.assert_allclose(traced(jnp.float32(2)), 2 * waves_in_numpy(X[:2]), rtol=1e-6)


def test_evidence_and_gradients():
    basis = sgp.CallableBasis(waves, 3, 2)
    y, Phi, scale = X[:, 0], waves_in_numpy(X), np.array([1.0, 0.5, 2.0])
    covariance = (Phi * scale**2) @ Phi.T + 0.3**2 * np.eye(30)
    expected = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    value = sgp.log_evidence(sgp.sufficient_statistics(basis, X, y), sgp.DiagonalPrior(scale), 0.3)
    np.testing.assert_allclose(value, expected, rtol=by_lane(1e-10, 1e-4))
    slope = jax.jit(jax.grad(lambda x: basis(x[None, :])[0, 1]))(jnp.array([0.1, 0.2]))
    np.testing.assert_allclose(slope, [0, 3 * np.cos(0.6)], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.relaxed_promotion
@pytest.mark.float64_only
def test_hilbert_space_approximations_of_numpyro():
    x = np.linspace(-1, 1, 40)[:, None]
    y = np.sin(4 * x[:, 0])
    basis = sgp.CallableBasis(lambda X: eigenfunctions(X, ell=1.5, m=20), num_features=20, input_dim=1)
    spd = jnp.sqrt(diag_spectral_density_squared_exponential(1.3**2, 0.4, ell=1.5, m=20, dim=1))
    value = sgp.log_evidence(sgp.sufficient_statistics(basis, x, y), sgp.DiagonalPrior(spd), 0.2)
    phi = np.asarray(eigenfunctions(x, ell=1.5, m=20), np.float64)
    covariance = (phi * np.asarray(spd, np.float64) ** 2) @ phi.T + 0.2**2 * np.eye(40)
    expected = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    np.testing.assert_allclose(value, expected, rtol=by_lane(1e-9, 1e-4))
    # In the middle of its box it approximates what it should.
    middle = slice(10, 30)
    kernel = np.asarray(sgp.SquaredExponential(0.4, 1.3)(x[middle]))
    np.testing.assert_allclose((covariance - 0.2**2 * np.eye(40))[middle, middle], kernel, atol=1e-4)


@pytest.mark.float64_only
def test_is_static_and_compares_by_its_function():
    basis = sgp.CallableBasis(waves, 3, 2)
    assert jax.tree.leaves(basis) == []
    assert basis == sgp.CallableBasis(waves, 3, 2) != sgp.CallableBasis(waves_in_numpy, 3, 2)
    np.testing.assert_allclose(jax.jit(lambda basis, X: basis(X))(basis, X), waves(X), atol=by_lane(1e-14, 1e-6))
    assert pickle.loads(pickle.dumps(basis)) == basis
    left, right = (sgp.sufficient_statistics(basis, X[rows], X[rows, 0]) for rows in (slice(9), slice(9, None)))
    assert (left + right).num_rows == 30
    other = sgp.sufficient_statistics(sgp.CallableBasis(waves_in_numpy, 3, 2), X, X[:, 0])
    with pytest.raises(ValueError, match="same basis"):
        left + other


def test_saving_is_refused_with_the_remedy(tmp_path):
    basis = sgp.CallableBasis(waves, 3, 2)
    for part in (basis, sgp.stack(basis, basis)):
        with pytest.raises(
            ValueError, match=r"is a CallableBasis, which cannot be saved without pickle.*@sgp.pytree_dataclass"
        ):
            sgp.sufficient_statistics(part, X, X[:, 0]).save(tmp_path / "stats")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda X: X[:, 0], r"of shape \(n, m\) = \(30, 3\) for inputs of shape \(30, 2\); got \(30,\).*in columns"),
        (lambda X: waves(X).T, r"\(30, 3\).*got \(3, 30\)"),
        (lambda X: X, r"\(30, 3\).*got \(30, 2\).*`num_features`"),
    ],
)
def test_other_shapes_are_refused(function, message):
    basis = sgp.CallableBasis(function, 3, 2)
    for call in (basis, basis.host_features, jax.jit(basis.__call__)):
        with pytest.raises(ValueError, match=f"CallableBasis: the function must return features .*{message}"):
            call(X)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones(3), 3, 2), "`function` must be callable.*got ndarray"),
        ((waves, 0, 2), "`num_features` must be an integer of 1 or more; got 0"),
        ((waves, 3, 1.5), "`input_dim` must be an integer of 1 or more; got 1.5"),
    ],
)
def test_bad_requests_are_refused(arguments, message):
    with pytest.raises(ValueError, match=f"CallableBasis: {message}"):
        sgp.CallableBasis(*arguments)
