"""InterpolationBasis: what it reproduces, and the kernels it implies."""

from __future__ import annotations

import itertools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.bases.interpolation import METHODS
from tests.bases.frozen import check_features
from tests.builders import by_lane

SE = sgp.SquaredExponential
GRID = (np.linspace(-1, 1, 6), np.linspace(10, 12, 5))
UNEVEN = (np.array([-1.0, -0.7, 0.2, 1.0]), np.array([10.0, 11.5, 12.0]))
methods = pytest.mark.parametrize("method", METHODS)


def nodes(grid):
    return np.array(list(itertools.product(*grid)))


def inputs(rng, n=40):
    return np.array([-1.0, 10.0]) + 2 * rng.random((n, 2))


def implied(basis, kernel, X):
    Phi = basis.host_features(X)
    return Phi @ np.asarray(basis.weight_prior(kernel).covariance, np.float64) @ Phi.T


# Weights --------------------------------------------------------------------------------------------------------------


@methods
def test_interpolates_and_sums_to_one(method, rng):
    basis = sgp.InterpolationBasis(GRID, method)
    assert (basis.num_features, basis.input_dim) == (30, 2)
    np.testing.assert_allclose(basis.host_features(nodes(GRID)), np.eye(30), atol=1e-13)
    features = basis.host_features(inputs(rng))
    np.testing.assert_allclose(features.sum(axis=1), 1, atol=1e-13)
    assert (np.count_nonzero(features, axis=1) <= {"nearest": 1, "cubic": 16}.get(method, 4)).all()


@pytest.mark.parametrize(
    ("method", "grid", "powers"),
    [("linear", GRID, 1), ("linear", UNEVEN, 1), ("cubic", GRID, 2), ("cubic", (np.arange(3.0) - 1, GRID[1]), 2)],
)
def test_reproduces_polynomials_up_to_the_edges(method, grid, powers, rng):
    X = np.concatenate([inputs(rng), [[-1, 10], [1, 12], [-0.99, 11.99]]])
    basis = sgp.InterpolationBasis(grid, method)
    for a, b in itertools.product(range(powers + 1), repeat=2):
        values, expected = ((Z[:, 0] ** a) * (Z[:, 1] - 11) ** b for Z in (nodes(grid), X))
        np.testing.assert_allclose(basis.host_features(X) @ values, expected, atol=1e-12)


@pytest.mark.parametrize("grid", [GRID, UNEVEN])
def test_nearest_and_shepard_by_their_definitions(grid, rng):
    X, U = inputs(rng), nodes(grid)
    nearest = sgp.InterpolationBasis(grid, "nearest").host_features(X)
    shepard = sgp.InterpolationBasis(grid, "shepard").host_features(X)
    for x, one, weights in zip(X, nearest, shepard, strict=True):
        assert U[one.argmax()].tolist() == [g[np.abs(g - v).argmin()] for g, v in zip(grid, x, strict=True)]
        corners = [(max(g[g <= v]), min(g[g > v])) for g, v in zip(grid, x, strict=True)]
        width = np.array([high - low for low, high in corners])
        expected = np.zeros(len(U))
        for corner in itertools.product(*corners):
            expected[np.flatnonzero((corner == U).all(axis=1))] = 1 / np.sum(((x - corner) / width) ** 2)
        np.testing.assert_allclose(weights, expected / expected.sum(), atol=1e-13)


def test_orders_of_convergence():
    x = np.linspace(0, 1, 501)[:, None]
    for method, order in (("nearest", 1), ("linear", 2), ("cubic", 3)):
        errors = []
        for size in (21, 41):
            grid = np.linspace(0, 1, size)
            errors.append(
                np.abs(sgp.InterpolationBasis(grid, method).host_features(x) @ np.exp(grid) - np.exp(x[:, 0]))
            )
        assert np.log2(errors[0].max() / errors[1].max()) == pytest.approx(order, abs=0.25)


@pytest.mark.slow
@methods
def test_features_and_copies(method, rng, tmp_path):
    basis, X = sgp.InterpolationBasis(GRID, method), inputs(rng, 10)
    check_features(basis, X)
    stats = sgp.sufficient_statistics(basis, X, X[:, 0])
    stats.save(tmp_path / "stats")
    loaded = sgp.SufficientStatistics.load(tmp_path / "stats")
    for copy in (loaded.basis, pickle.loads(pickle.dumps(basis)), jax.jit(lambda basis: basis)(basis)):
        assert jax.tree.structure(copy) == jax.tree.structure(basis)
        np.testing.assert_allclose(copy.host_features(X), basis.host_features(X), atol=by_lane(1e-13, 1e-5))
    assert (stats + loaded).num_rows == 20


@methods
@pytest.mark.float64_only
def test_gradients_are_finite_at_nodes_and_right_between(method):
    basis = sgp.InterpolationBasis(GRID, method)
    between = np.array([[0.13, 11.7]])
    X = jnp.asarray(np.concatenate([nodes(GRID), between]))
    gradient = jax.jit(jax.grad(lambda X: jnp.sum(basis(X) ** 2)))(X)
    assert np.isfinite(gradient).all()
    for j, step in enumerate(1e-5 * np.eye(2)):
        ahead, behind = (np.sum(basis.host_features(between + sign * step) ** 2) for sign in (1, -1))
        np.testing.assert_allclose(gradient[-1, j], (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-8)


# Priors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [SE([0.5, 0.8], amplitude=2.0), SE(0.9) * SE([1.0, 2.0], amplitude=3.0)])
@pytest.mark.float64_only
def test_squared_exponentials_have_kronecker_priors(kernel):
    prior = sgp.InterpolationBasis(GRID).weight_prior(kernel)
    assert isinstance(prior, sgp.KroneckerPrior)
    np.testing.assert_allclose(
        prior.covariance, kernel(nodes(GRID)), rtol=by_lane(1e-13, 1e-5), atol=by_lane(1e-13, 1e-5)
    )


@pytest.mark.parametrize("kernel", [sgp.Matern32(0.5, 2.0), SE(0.3) + SE(2.0), sgp.ArcCosine(order=1)])
@pytest.mark.float64_only
def test_other_kernels_have_dense_priors(kernel):
    prior = sgp.InterpolationBasis(GRID).weight_prior(kernel)
    assert isinstance(prior, sgp.DensePrior)
    np.testing.assert_allclose(prior.covariance, kernel(nodes(GRID)), rtol=by_lane(1e-13, 1e-5))


@pytest.mark.parametrize("kernel", [SE([0.7, 0.9], amplitude=1.5), sgp.Matern52(1.0)])
@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.float64_only
def test_the_implied_kernel_converges(kernel, method, rng):
    X = inputs(rng)
    errors = [
        np.abs(implied(sgp.InterpolationBasis(grid, method), kernel, X) - kernel(X)).max()
        for grid in [(np.linspace(-1, 1, m), np.linspace(10, 12, m)) for m in (5, 9)]
    ]
    assert errors[1] < errors[0] / 3


@pytest.mark.float64_only
@pytest.mark.parametrize("make", [SE, sgp.Matern32])
def test_evidence_and_its_gradient_are_dense_ones(make, rng):
    X = inputs(rng, 30)
    y = np.sin(3 * X[:, 0]) + X[:, 1]
    basis = sgp.InterpolationBasis(GRID)
    stats, Phi = sgp.sufficient_statistics(basis, X, y), basis.host_features(X)

    def evidence(log_parameters):
        lengthscale, amplitude, noise = jnp.exp(log_parameters)
        return sgp.log_evidence(stats, basis.weight_prior(make(lengthscale, amplitude)), noise)

    def dense(log_parameters):
        lengthscale, amplitude, noise = np.exp(log_parameters)
        covariance = Phi @ np.asarray(make(lengthscale, amplitude)(nodes(GRID))) @ Phi.T + noise**2 * np.eye(30)
        return -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1])

    at = np.array([-0.2, 0.5, -1.0])
    value, gradient = jax.jit(jax.value_and_grad(evidence))(jnp.asarray(at))
    np.testing.assert_allclose(value, dense(at), rtol=1e-9)
    differences = [(dense(at + e) - dense(at - e)) / 2e-5 for e in 1e-5 * np.eye(3)]
    np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-5)


# Refusals -------------------------------------------------------------------------------------------------------------


@methods
def test_rows_outside_the_grid_are_refused_where_they_can_be_read(method, rng):
    basis, X = sgp.InterpolationBasis(GRID, method), inputs(rng, 10)
    X[3] = [1.5, 11.0]
    for call in (basis, basis.host_features):
        with pytest.raises(ValueError, match=r"0.1 of the rows lie outside the grid.*covers all inputs"):
            call(X)
    at_the_edge = basis.host_features([[1.0, 11.0]])
    np.testing.assert_allclose(jax.jit(basis.__call__)(X)[3], at_the_edge[0], atol=by_lane(1e-13, 1e-5))
    basis.host_features(np.array([[1.0 + 1e-7, 12.0]], np.float32))  # outside by rounding


@pytest.mark.parametrize(
    ("grid", "method", "message"),
    [
        (GRID, "quintic", "`method` must be one of 'linear', 'cubic', 'nearest', 'shepard'; got 'quintic'"),
        (3.0, "linear", "`grid` must be a sequence of arrays.*got 3.0"),
        ([], "linear", "`grid` must be a sequence of arrays"),
        ([[0.0, 1.0], [1.0, 0.0]], "linear", r"`grid\[1\]` must be an increasing array"),
        ([[0.0, 1.0], [2.0]], "linear", r"`grid\[1\]` must be .* at least 2 finite numbers.*never varies"),
        ([[0.0, 1.0]], "cubic", "at least 3 finite numbers for method 'cubic'"),
        ([[0.0, 1.0, 1.0]], "linear", "increasing"),
        ([[0.0, np.nan]], "linear", "finite numbers"),
        (np.ones((2, 2, 2)), "linear", r"got shape \(2, 2\)"),
        (UNEVEN, "cubic", r"`grid\[0\]` must be equally spaced.*np.linspace, or method 'linear'"),
    ],
)
def test_bad_requests_are_refused(grid, method, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        sgp.InterpolationBasis(grid, method)


def test_bad_kernels_and_traced_grids_are_refused():
    basis = sgp.InterpolationBasis(GRID)
    with pytest.raises(ValueError, match="weight_prior needs a kernel .*got float"):
        basis.weight_prior(1.0)
    for kernel in (SE(np.ones(3)), sgp.Matern12(np.ones(3))):
        with pytest.raises(ValueError, match="3 entries but there are 2 inputs"):
            basis.weight_prior(kernel)
    with pytest.raises(ValueError, match="`grid` is traced"):
        jax.jit(lambda grid: sgp.InterpolationBasis(grid).host_features(np.ones((1, 1))))(jnp.arange(4.0))


def test_one_input_takes_one_array():
    for grid in ([0.0, 0.5, 1.0], np.array([0.0, 0.5, 1.0]), jnp.array([0.0, 0.5, 1.0]), [np.array([0.0, 0.5, 1.0])]):
        basis = sgp.InterpolationBasis(grid, "linear")
        np.testing.assert_allclose(basis.host_features([[0.25]]), [[0.5, 0.5, 0.0]])
