"""Pareto k of both lines of ArviZ, and leave-one-out PIT values against refits on a grid."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

import ppl_sgp as sgp
from ppl_sgp.plots import plot_loo_pit, plot_pareto_k
from ppl_sgp.posteriors.arviz_compat import arviz

GRID = np.exp(np.linspace(-4.0, 1.0, 51))  # of the noise scale
DRAWS = 1000


def container(rng, first=4.0, draws=500):
    """ArviZ's container of log-likelihoods ``log N(y_i; θ_s, 1)`` of nine rows, the first of them given."""
    theta = rng.normal(0, 0.3, (2, draws // 2))
    y = np.array([first, *rng.normal(size=8)])
    posterior = xr.Dataset({"theta": (("chain", "draw"), theta)})
    log_likelihood = xr.Dataset({"y": (("chain", "draw", "obs"), norm.logpdf(y, theta[..., None]))})
    if arviz().__version__.startswith("0."):
        return arviz().InferenceData(posterior=posterior, log_likelihood=log_likelihood)
    return xr.DataTree.from_dict({"posterior": posterior, "log_likelihood": log_likelihood})


@pytest.mark.float64_only
def test_pareto_k_of_a_container_and_of_a_loo_result(rng, image):
    data = container(rng)
    with pytest.warns(UserWarning, match="Estimated shape parameter"):  # of the first row, which is far off
        loo = arviz().loo(data, pointwise=True)
        axes = [plot_pareto_k(data), plot_pareto_k(loo)]
    expected, good = np.asarray(loo.pareto_k), 1 - 1 / np.log10(500)
    for ax in axes:
        low, high, threshold = ax.lines
        shown = dict(zip([*low.get_xdata(), *high.get_xdata()], [*low.get_ydata(), *high.get_ydata()], strict=True))
        assert shown == dict(enumerate(expected)) and list(high.get_xdata()) == [0]
        np.testing.assert_allclose(threshold.get_ydata(), [good, good])
        assert ax.get_xlabel() == "row" and ax.get_ylabel() == "Pareto k"
    image(ax)


@pytest.mark.float64_only
def test_pareto_k_of_an_array():
    ax = plot_pareto_k(np.array([[0.1, 1.4], [-0.3, 0.7]]))
    low, high, threshold = ax.lines
    np.testing.assert_array_equal(low.get_xydata(), [[0, 0.1], [2, -0.3], [3, 0.7]])
    np.testing.assert_array_equal(high.get_xydata(), [[1, 1.4]])
    assert list(threshold.get_ydata()) == [0.7, 0.7] and ax.get_ylim()[0] < -0.3 and ax.get_ylim()[1] > 1.4
    assert high.get_label() == "k > 0.70: 1 row"


@pytest.mark.float64_only
def test_pareto_k_refusals(rng):
    data = container(rng)
    del data["log_likelihood"]
    with pytest.raises(ValueError, match="no group 'log_likelihood'"):
        plot_pareto_k(data)
    with pytest.raises(ValueError, match=r"pointwise=True.*got ELPDData.* without them"):
        plot_pareto_k(arviz().loo(container(rng, first=0.5), pointwise=False))
    with pytest.raises(ValueError, match="1 of 2 that are not finite"):
        plot_pareto_k([0.1, np.inf])


def model(stats):
    noise_scale = numpyro.sample("noise_scale", dist.LogNormal(-1.0, 0.7))
    sgp.observe("y", stats, sgp.DiagonalPrior(jnp.ones(2)), noise_scale)


@pytest.fixture(scope="module")
def problem():
    """Rows, statistics, and draws at even quantiles of the posterior on the grid."""
    rng = np.random.default_rng(3)
    X = np.append(rng.uniform(-1, 1, 9), 4.0)[:, None]  # the last row is far out: its leverage is high
    y = 0.5 * X[:, 0] + 0.4 * rng.normal(size=10)
    density = log_posterior(X, y)
    cumulative = np.cumsum(np.exp(density - logsumexp(density)))
    noise_scale = GRID[np.searchsorted(cumulative, (np.arange(DRAWS) + 0.5) / DRAWS)]
    draws = {"noise_scale": jnp.asarray(rng.permutation(noise_scale), jnp.result_type(float))}
    return X, y, sgp.sufficient_statistics(sgp.LinearBasis(1), X, y), draws


def features(X):
    return np.concatenate([np.ones_like(X), X], axis=1)


def log_posterior(X, y):
    """Of the noise scale at the points of the grid, which is even in its logarithm."""
    K = features(X) @ features(X).T
    evidence = [multivariate_normal.logpdf(y, np.zeros(len(y)), K + s**2 * np.eye(len(y))) for s in GRID]
    return norm.logpdf(np.log(GRID), -1, 0.7) + evidence


def refit_pit(row, X, y):
    """Where y lies in the predictive distribution of the model fitted to the other rows."""
    rest = np.arange(len(y)) != row
    weight = log_posterior(X[rest], y[rest])
    weight = np.exp(weight - logsumexp(weight))
    Phi, phi = features(X[rest]), features(X[row : row + 1])[0]
    pit = []
    for noise in GRID:
        covariance = np.linalg.inv(Phi.T @ Phi / noise**2 + np.eye(2))
        mean = phi @ covariance @ Phi.T @ y[rest] / noise**2
        pit.append(norm.cdf(y[row], mean, np.sqrt(phi @ covariance @ phi + noise**2)))
    return weight @ pit


def test_pit_equals_refits(problem):
    X, y, stats, draws = problem
    pit = sgp.posterior(model, draws, stats, max_memory=2e9).loo_pit(X, y, row_weights=None)
    expected = [refit_pit(row, X, y) for row in range(10)]
    np.testing.assert_allclose(pit, [expected], atol=0.01)  # smoothing of the weights, and 1,000 draws
    # What predictions that have seen the row would give is far off.
    seen = sgp.predict(model, draws, stats, X)
    naive = norm.cdf(y, seen.mean, np.sqrt(seen.variance + seen.noise_variance))
    assert np.abs(naive - expected).max() > 0.05
    # In blocks of a few rows all is the same.
    np.testing.assert_allclose(
        sgp.posterior(model, draws, stats, max_memory=16e4).loo_pit(X, y, row_weights=None), pit, atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.float64_only
def test_pit_of_several_outputs_and_weighted_rows(problem):
    X, y, _, draws = problem
    draws = {"noise_scale": draws["noise_scale"][:200]}
    omega = np.linspace(0.5, 2, 10)
    both = np.column_stack([y, -y])
    stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, both, row_weights=omega)
    ax = plot_loo_pit(sgp.posterior(model, draws, stats), X, both, row_weights=omega, bins=4)
    assert sum(bar.get_height() for bar in ax.containers[0]) == 20
    assert ax.get_xlabel() == "leave-one-out PIT"
    pit = sgp.posterior(model, draws, stats, max_memory=2e9).loo_pit(X, both, row_weights=omega)
    np.testing.assert_allclose(pit[0] + pit[1], 1, atol=1e-10)  # by symmetry
    np.testing.assert_allclose([bar.get_height() for bar in ax.containers[0]], np.histogram(pit, 4, (0, 1))[0])
    # At one value of the noise scale, row weights are noise variances of their own.
    one = {"noise_scale": np.full(2, 0.3)}
    row, rest = 4, np.arange(10) != 4
    precision = omega[rest] / 0.09
    covariance = np.linalg.inv(features(X[rest]).T * precision @ features(X[rest]) + np.eye(2))
    phi = features(X[[row]])[0]
    mean = phi @ covariance @ features(X[rest]).T @ (precision * y[rest])
    expected = norm.cdf(y[row], mean, np.sqrt(phi @ covariance @ phi + 0.09 / omega[row]))
    np.testing.assert_allclose(
        sgp.posterior(model, one, stats, max_memory=2e9).loo_pit(X, both, row_weights=omega)[0, row],
        expected,
        rtol=1e-8,
    )
    few = {"noise_scale": np.linspace(0.2, 0.3, 24)}
    with pytest.raises(ValueError, match="plot_loo_pit: 24 draws are too few"):
        plot_loo_pit(sgp.posterior(model, few, stats), X, both, row_weights=omega)
