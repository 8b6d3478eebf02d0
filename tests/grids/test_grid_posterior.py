"""What follows from draws on a grid, against the dense Gaussian process of the observed cells."""

import functools
import pickle

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr

import ppl_sgp as sgp
from tests.grids import dense

pytestmark = pytest.mark.float64_only

DRAWS = {"theta": np.stack([dense.THETA, 1.1 * dense.THETA])}
SOLVERS = {
    "factor": sgp.GridSolver(),
    "ignore": sgp.GridSolver(method="ignore", tolerance=1e-12),
}


def posterior_of(grid, solver=None):
    def model(grid):
        theta = numpyro.sample("theta", dist.LogNormal(0.0, 1.0).expand([5]).to_event(1))
        scale = None if grid.features is None else dense.FEATURE_SCALE
        sgp.observe_grid("y", grid, dense.kernels(theta), theta[4], feature_scale=scale, solver=solver)

    return sgp.posterior(model, DRAWS, grid)


@functools.partial(jax.jit, static_argnums=0)
def _kernel(number, theta, X, X2):
    return dense.kernels(theta)[number](X, X2)


def prior_covariance(grid, theta, X, X2):
    total, ends = 1.0, np.cumsum(grid.widths)
    for number, (end, width) in enumerate(zip(ends, grid.widths, strict=True)):
        total = total * np.asarray(_kernel(number, theta, X[:, end - width : end], X2[:, end - width : end]))
    if grid.features is None:
        return total
    return total + (X[:, ends[-1] :] * dense.FEATURE_SCALE**2) @ X2[:, ends[-1] :].T


def moments(grid, X):
    """Means and covariances at rows, a draw each."""
    found = []
    for theta in DRAWS["theta"]:
        cross = prior_covariance(grid, theta, X, grid.X)
        solved = np.linalg.solve(np.asarray(dense.of_observed(grid, theta)), np.c_[cross.T, grid.values])
        found.append((cross @ solved[:, -1], prior_covariance(grid, theta, X, X) - cross @ solved[:, :-1]))
    return tuple(np.stack(each) for each in zip(*found, strict=True))


def new_rows(grid, count=6):
    rng = np.random.default_rng(5)
    return np.concatenate([rng.uniform(0, 2, (count, 4)), rng.normal(size=(count, grid.num_features))], axis=1)


@pytest.mark.parametrize("name", ["factor", pytest.param("ignore", marks=pytest.mark.slow)])
def test_predictions_and_leave_one_out(name):
    grid = dense.make_grid(share=0.3, weights="few", features=True)
    posterior, X = posterior_of(grid, SOLVERS[name]), new_rows(dense.make_grid(features=True))
    mean, covariance = moments(grid, X)
    found = posterior.predict(X)
    np.testing.assert_allclose(found.mean, mean.mean(axis=0), atol=1e-9)
    expected = covariance.mean(axis=0) + np.cov(mean.T, bias=True)
    np.testing.assert_allclose(found.covariance(), expected, atol=1e-8)
    np.testing.assert_allclose(found.variance, np.diagonal(expected), atol=1e-8)
    for theta, log_density in zip(DRAWS["theta"], posterior.leave_one_out(), strict=True):
        P = np.linalg.inv(np.asarray(dense.of_observed(grid, theta)))
        residual = P @ grid.values / np.diagonal(P)
        expected = 0.5 * np.log(np.diagonal(P) / (2 * np.pi)) - 0.5 * residual**2 * np.diagonal(P)
        np.testing.assert_allclose(log_density, expected, atol=1e-8)


GRIDS = {
    "full": dict(),
    "gaps": dict(share=0.3),
    "few observed, features": dict(share=0.9, features=True),
}


@pytest.fixture(
    scope="module", params=["gaps", *(pytest.param(n, marks=pytest.mark.slow) for n in GRIDS if n != "gaps")]
)
def case(request):
    grid = dense.make_grid(**GRIDS[request.param])
    return grid, posterior_of(grid)


def cells_of(grid, axes, features=None):
    numbers = np.unravel_index(np.arange(np.prod([len(a) for a in axes])), [len(a) for a in axes])
    parts = [np.asarray(a)[i] for a, i in zip(axes, numbers, strict=True)]
    return np.concatenate(parts if features is None else [*parts, features], axis=1)


@pytest.mark.slow
def test_filled_grids(case):
    grid, posterior = case
    found = sgp.predict_grid(posterior)
    mean, covariance = moments(grid, cells_of(grid, grid.axes, grid.features))
    np.testing.assert_allclose(found.mean.values.ravel(), mean.mean(axis=0), atol=1e-9)
    variance = np.diagonal(covariance, axis1=1, axis2=2).mean(axis=0) + mean.var(axis=0)
    np.testing.assert_allclose(found.variance.values.ravel(), variance, atol=1e-8)
    filled = found.filled.values
    np.testing.assert_array_equal(filled[~grid.gaps], grid.values)
    np.testing.assert_array_equal(filled[grid.gaps], found.mean.values[grid.gaps])


@pytest.mark.slow
def test_other_axes(case):
    grid, posterior = case
    axes = [np.array([[0.3], [2.5]]), grid.axes[1], np.array([[0.1], [1.0], [1.7], [0.4]])]
    features = None if grid.features is None else np.random.default_rng(8).normal(size=(2, 4, 4, 2))
    found = sgp.predict_grid(posterior, [axes[0][:, 0], None, axes[2][:, 0]], features=features)
    flat = None if features is None else features.reshape(-1, 2)
    mean, covariance = moments(grid, cells_of(grid, axes, flat))
    assert found.mean.dims == grid.dims and found.mean.shape == (2, 4, 4)
    np.testing.assert_allclose(found.mean.values.ravel(), mean.mean(axis=0), atol=1e-9)
    variance = np.diagonal(covariance, axis1=1, axis2=2).mean(axis=0) + mean.var(axis=0)
    np.testing.assert_allclose(found.variance.values.ravel(), variance, atol=1e-8)
    drawn = found.sample(jax.random.key(1), 600).values.reshape(600, -1)
    assert np.all(np.abs(drawn.mean(axis=0) - mean.mean(axis=0)) < 5 * np.sqrt(variance / 600))
    joint = covariance.mean(axis=0) + np.cov(mean.T, bias=True)
    spread = np.sqrt((np.outer(variance, variance) + joint**2) / 600)
    assert np.all(np.abs(np.cov(drawn.T) - joint) < 5.5 * spread)


@pytest.mark.slow
def test_files_labels_and_containers(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(4, 3, 2))
    values[rng.uniform(size=values.shape) < 0.2] = np.nan
    days = np.array(["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-05"], "datetime64[ns]")
    array = xr.DataArray(values, {"day": days, "hour": [0.0, 6.0, 12.0], "station": ["A", "B"]})
    grid = sgp.Grid.from_xarray(array, gaps="nan")
    model = sgp.models.grid_gp(noise_scale=0.3)
    names = ["amplitude", "correlation_station", "lengthscale_day", "lengthscale_hour"]
    draws = {name: np.full(30, 0.8) for name in names}
    posterior = sgp.posterior(model, draws, grid)
    assert sorted(posterior.latent) == names
    prediction = sgp.predict_grid(posterior)
    dataset = prediction.to_dataset()
    xr.testing.assert_equal(dataset["observed"], array)
    dataset.to_netcdf(tmp_path / "filled.nc")
    with xr.open_dataset(tmp_path / "filled.nc") as again:
        np.testing.assert_array_equal(again["mean"], dataset["mean"])
        np.testing.assert_array_equal(again["day"], days)
    posterior.save(tmp_path / "posterior.npz")
    for again in (sgp.load_posterior(tmp_path / "posterior.npz", model), pickle.loads(pickle.dumps(posterior))):
        xr.testing.assert_allclose(sgp.predict_grid(again).mean, prediction.mean)
    container = posterior.to_arviz()
    dataset = container["log_likelihood"] if "log_likelihood" in container else container.log_likelihood
    assert dict(dataset["y"].sizes)["draw"] == 30 and {"day", "hour", "station"} <= set(dataset.coords)


def test_refusals():
    grid = dense.make_grid(share=0.2)
    posterior = posterior_of(grid)
    with pytest.raises(ValueError, match="an entry for each of"):
        sgp.predict_grid(posterior, [[1.0]])
    with pytest.raises(ValueError, match="has 2 columns of numbers"):
        sgp.predict_grid(posterior, [None, [1.0], None])
    with pytest.raises(ValueError, match="other axes"):
        _ = sgp.predict_grid(posterior, [[1.0], None, None]).filled
    hasty = posterior_of(grid, sgp.GridSolver(method="ignore", max_iterations=2))
    with pytest.raises(ValueError, match="posterior: conjugate gradients"):
        _ = hasty.predict(grid.X).mean
