"""Groups, space and time, seasons: products of bases against exact GPs with product kernels, written out in NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp

pytestmark = pytest.mark.float64_only

NOISE = 0.3
#: Laplace functions of a squared exponential of lengthscale 1.2 on [0, 1]: with walls so far away (at −5.5 and 6.5, by
#: the correlation ``exp(−11²/2·1.2²)`` of a point with its image) and frequencies this high (``exp(−2(πℓ·26/24)²)``)
#: the kernel is exact to 1e-14.
SMOOTH = sgp.LaplaceBasis([26], centre=[0.5], boundary=[6.0])
SITES = np.array([0.0, 0.3, 0.7, 1.0])


def squared_exponential(a, b, lengthscale):
    return np.exp(-0.5 * ((a[:, None] - b) / lengthscale) ** 2)


def matern32(a, b, lengthscale):
    r = 3**0.5 * np.abs(a[:, None] - b) / lengthscale
    return (1 + r) * np.exp(-r)


def periodic(a, b, period, lengthscale):
    return np.exp(-2 * (np.sin(np.pi * (a[:, None] - b) / period) / lengthscale) ** 2)


class Case(NamedTuple):
    """A basis, the prior of its weights, inputs of rows and new ones, and the kernel that f should have."""

    basis: sgp.Basis
    prior: Any
    X: np.ndarray
    X_new: np.ndarray
    kernel: Any


def at(basis, *columns, of=2):
    return sgp.SelectedColumns(basis, columns, of)


def ragged_groups(rng):
    """A function a group, and what they have in common; one group has many rows, one has one, one has none."""
    group = np.repeat([0, 1, 2], [17, 1, 8])
    basis = sgp.stack(at(SMOOTH, 1), sgp.tensor(at(sgp.CategoricalBasis(4), 0), at(SMOOTH, 1)))
    SE = sgp.SquaredExponential
    prior = basis.weight_prior((SE(1.2, 1.5), (sgp.Categorical(0.8), SE(1.2))))
    return Case(
        basis,
        prior,
        np.column_stack([group, rng.random(26)]),
        np.column_stack([np.arange(4), rng.random(4)]),
        lambda A, B: (1.5**2 + 0.8**2 * (A[:, :1] == B[:, 0])) * squared_exponential(A[:, 1], B[:, 1], 1.2),
    )


def space_and_time(rng):
    """Sites with the Matérn kernel of their places, a dense factor, times a smooth function of time."""
    basis = sgp.tensor(at(sgp.CategoricalBasis(SITES), 0), at(SMOOTH, 1))
    prior = basis.weight_prior((sgp.Matern32(0.6, 1.4), sgp.SquaredExponential(1.2)))
    assert isinstance(prior, sgp.KroneckerPrior)

    def inputs(n):
        return np.column_stack([rng.choice(SITES, n), rng.random(n)])

    return Case(
        basis,
        prior,
        inputs(25),
        inputs(5),
        lambda A, B: 1.4**2 * matern32(A[:, 0], B[:, 0], 0.6) * squared_exponential(A[:, 1], B[:, 1], 1.2),
    )


def intercepts_and_slopes(rng):
    """Of each group, correlated, beside those of all."""
    line = at(sgp.LinearBasis(1), 1)
    basis = sgp.stack(line, sgp.tensor(at(sgp.CategoricalBasis(5, sum_to_zero=True), 0), line))
    covariance = np.array([[1.0, -0.6], [-0.6, 0.7]])
    wide = sgp.DiagonalPrior([3.0, 2.0])
    prior = basis.weight_prior((wide, (sgp.Categorical(), sgp.DensePrior(covariance))))

    def inputs(n):
        return np.column_stack([rng.integers(0, 5, n), rng.standard_normal(n)])

    def kernel(A, B):
        lines = [np.column_stack([np.ones(len(Z)), Z[:, 1]]) for Z in (A, B)]
        of_groups = (A[:, :1] == B[:, 0]) - 1 / 5
        return lines[0] @ np.diag([9.0, 4.0]) @ lines[1].T + of_groups * (lines[0] @ covariance @ lines[1].T)

    return Case(basis, prior, inputs(30), inputs(6), kernel)


def seasons(rng):
    """A day whose shape changes over the week."""
    day, week = sgp.PeriodicBasis(1.0, 6), sgp.PeriodicBasis(7.0, 6)
    basis = sgp.tensor(day, week)
    prior = basis.weight_prior(sgp.Periodic(1.0, 2.5, 1.3) * sgp.Periodic(7.0, 2.5))
    return Case(
        basis,
        prior,
        rng.uniform(0, 30, (24, 1)),
        rng.uniform(-9, 40, (5, 1)),
        lambda A, B: 1.3**2 * periodic(A[:, 0], B[:, 0], 1.0, 2.5) * periodic(A[:, 0], B[:, 0], 7.0, 2.5),
    )


CASES = {case.__name__: case for case in (ragged_groups, space_and_time, intercepts_and_slopes, seasons)}


@pytest.fixture(params=CASES)
def case(request, rng):
    return CASES[request.param](rng)


@pytest.mark.slow
def test_products_are_exact_gps(case, rng, tmp_path):
    basis, prior, X, X_new, kernel = case
    y = rng.standard_normal(len(X))
    stats = sgp.sufficient_statistics(basis, X, y)
    K = kernel(X, X) + NOISE**2 * np.eye(len(X))
    gain = np.linalg.solve(K, kernel(X, X_new)).T
    mean, covariance = gain @ y, kernel(X_new, X_new) - gain @ kernel(X, X_new)
    expected = -0.5 * (y @ np.linalg.solve(K, y) + np.linalg.slogdet(2 * np.pi * K)[1])
    np.testing.assert_allclose(sgp.log_evidence(stats, prior, NOISE), expected, rtol=1e-8)

    # The weights, by conditioning the joint Gaussian of (w, y); and f, which is linear in them.
    Phi, C = basis.host_features(X), np.asarray(prior.covariance)
    weight_gain = np.linalg.solve(K, Phi @ C).T
    weights = sgp.weight_posterior(stats, prior, NOISE)
    np.testing.assert_allclose(weights.mean, weight_gain @ y, atol=1e-8)
    np.testing.assert_allclose(weights.covariance_matrix, C - weight_gain @ Phi @ C, atol=1e-8)
    Phi_new = basis.host_features(X_new)
    np.testing.assert_allclose(Phi_new @ weights.mean, mean, atol=1e-8)
    np.testing.assert_allclose(Phi_new @ weights.covariance_matrix @ Phi_new.T, covariance, atol=1e-8)

    stats.save(tmp_path / "stats")
    loaded = sgp.SufficientStatistics.load(tmp_path / "stats")
    np.testing.assert_array_equal(loaded.basis.host_features(X_new), Phi_new)


# A period times a decay, as one model ---------------------------------------------------------------------------------


def quasi_periodic(lengthscale, amplitude, period=1.0, shape=2.5):
    return sgp.Periodic(period, shape) * sgp.SquaredExponential(lengthscale, amplitude)


@pytest.mark.slow
def test_a_quasi_periodic_model_on_a_product_and_with_its_period_free_on_a_box(rng):
    X, X_new = np.sort(rng.uniform(0, 8, (60, 1)), axis=0), np.array([[0.3], [4.4], [7.9]])
    y = rng.standard_normal(60)
    season, decay = sgp.PeriodicBasis(1.0, 6), sgp.LaplaceBasis([40], centre=[4.0], boundary=[16.0])
    draw = {"lengthscale": np.array([3.0]), "amplitude": np.array([1.4]), "noise_scale": np.array([NOISE])}
    kernel = quasi_periodic(3.0, 1.4)
    K = np.asarray(kernel(X)) + NOISE**2 * np.eye(60)
    gain = np.linalg.solve(K, kernel(X, X_new)).T
    expected = -0.5 * (y @ np.linalg.solve(K, y) + np.linalg.slogdet(2 * np.pi * K)[1])
    model = sgp.models.basis_gp(quasi_periodic)
    free = sgp.models.basis_gp(quasi_periodic, period=dist.LogNormal(0.0, 0.1))
    box = sgp.LaplaceBasis([600], centre=[4.0], boundary=[16.0])
    for own, basis, sites in ((model, sgp.tensor(season, decay), {}), (free, box, {"period": np.array([1.0])})):
        posterior = sgp.posterior(own, draw | sites, sgp.sufficient_statistics(basis, X, y))
        np.testing.assert_allclose(posterior.log_evidence, expected, rtol=1e-8)
        assert posterior.kernel_error(X[::6]).relative_error.item() < 1e-8
        prediction = posterior.predict(X_new)
        np.testing.assert_allclose(prediction.mean, gain @ y, atol=1e-8)
        variance = np.diag(kernel(X_new) - gain @ kernel(X, X_new))
        np.testing.assert_allclose(prediction.variance, variance, atol=1e-8)


def test_a_group_that_is_new_has_the_spread_of_the_others(rng):
    group = rng.integers(0, 4, 40)
    X = np.column_stack([group, rng.random(40)])
    y = np.sin(3 * X[:, 1]) * (1 + group) + NOISE * rng.standard_normal(40)
    columns = sgp.InputColumns(["group", "x"])
    basis = sgp.tensor(columns.select(sgp.CategoricalBasis(4, unseen="prior"), "group"), columns.select(SMOOTH, "x"))

    def model(stats):
        amplitude = numpyro.sample("amplitude", dist.HalfNormal(2.0))
        kernels = (sgp.Categorical(amplitude), sgp.SquaredExponential(1.2))
        sgp.observe("y", stats, stats.basis.weight_prior(kernels), NOISE)

    posterior = sgp.posterior(model, {"amplitude": np.array([1.5])}, sgp.sufficient_statistics(basis, X, y))
    prediction = posterior.predict(np.array([[7.0, 0.5], [1.0, 0.5]]))
    np.testing.assert_allclose(prediction.mean[0], 0, atol=1e-12)
    np.testing.assert_allclose(prediction.variance[0], 1.5**2, rtol=1e-8)
    assert prediction.variance[1] < 0.1


@pytest.mark.slow
@pytest.mark.relaxed_promotion  # of NumPyro's LKJ distribution
def test_correlated_intercepts_and_slopes_in_a_model_and_in_a_file(rng, tmp_path):
    X = np.column_stack([rng.integers(0, 5, 30), rng.standard_normal(30)])
    y = rng.standard_normal(30)
    basis = sgp.tensor(at(sgp.CategoricalBasis(5), 0), at(sgp.LinearBasis(1), 1))
    factors = np.array([[[1.0, 0.0], [-0.6, 0.7]], [[0.5, 0.0], [0.3, 1.2]]])

    def model(stats):
        L = numpyro.sample("L", dist.LKJCholesky(2)) * 1.5
        prior = stats.basis.weight_prior((sgp.Categorical(), sgp.DensePrior(scale_tril=L)))
        sgp.observe("y", stats, prior, NOISE)

    posterior = sgp.posterior(model, {"L": factors / 1.5}, sgp.sufficient_statistics(basis, X, y))
    X_new, moments = X[:4] + np.array([0.0, 0.5]), []
    for L in factors:
        lines = [np.column_stack([np.ones(len(Z)), Z[:, 1]]) for Z in (X, X_new)]
        K, cross = ((X[:, :1] == Z[:, 0]) * (lines[0] @ L @ L.T @ lines[i].T) for i, Z in enumerate((X, X_new)))
        gain = np.linalg.solve(K + NOISE**2 * np.eye(30), cross).T
        moments.append((gain @ y, np.sum(lines[1] * (lines[1] @ L @ L.T), axis=1) - np.sum(gain * cross.T, axis=1)))
    means, variances = map(np.array, zip(*moments, strict=True))
    posterior.save(tmp_path / "posterior")
    for each in (posterior, sgp.load_posterior(tmp_path / "posterior")):
        prediction = each.predict(X_new)
        np.testing.assert_allclose(prediction.mean, means.mean(axis=0), atol=1e-8)
        np.testing.assert_allclose(prediction.variance, variances.mean(axis=0) + means.var(axis=0), atol=1e-8)
