"""Containers, reports and calibration by simulation of exact GPs."""

from __future__ import annotations

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from matplotlib.figure import Figure

import ppl_sgp as sgp
from ppl_sgp.posteriors.arviz_compat import groups
from tests.diagnostics.test_report import Run

pytestmark = [pytest.mark.float64_only, pytest.mark.relaxed_promotion]

MODEL = sgp.models.exact_gp(sgp.Matern32)


@pytest.fixture(scope="module")
def rows():
    """Thirty rows of a smooth function."""
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(30, 1))
    return sgp.rows(X, np.sin(5 * X[:, 0]) + 0.3 * rng.normal(size=30))


def run_of(model=MODEL, noise=0.3, **more):
    rng = np.random.default_rng(2)
    medians = {"lengthscale": 0.4, "amplitude": 0.9, "noise_scale": noise, **more}
    draws = {name: median * np.exp(0.1 * rng.normal(size=(4, 400))) for name, median in medians.items()}
    return Run(model, draws)


@pytest.mark.slow
def test_containers_hold_what_follows_from_the_rows(rows):
    idata = sgp.to_arviz(run_of(), rows, X_new=[[0.5], [0.6]], key=jax.random.key(0))
    assert {
        "posterior",
        "sample_stats",
        "log_prior",
        "log_likelihood",
        "posterior_predictive",
        "observed_data",
        "constant_data",
        "predictions",
    } <= {name.strip("/") for name in groups(idata)}
    left_out = idata["log_likelihood"]["y"]
    assert left_out.shape == (4, 400, 30)
    posterior = sgp.posterior(MODEL, run_of(), rows)
    np.testing.assert_allclose(left_out.values.reshape(1600, 30), posterior.leave_one_out(), rtol=1e-12)
    assert idata["posterior_predictive"]["y"].shape == (4, 400, 30)
    assert idata["predictions"]["y"].shape == (4, 400, 2)
    np.testing.assert_array_equal(idata["observed_data"]["y"], rows.y)
    with pytest.raises(ValueError, match="`y` is not that of the rows"):
        sgp.to_arviz(run_of(), rows, X=rows.X, y=rows.y + 1)


@pytest.mark.slow
def test_evidences_stand_for_the_likelihood_where_asked(rows):
    posterior = sgp.posterior(MODEL, run_of(), rows)
    idata = posterior.to_arviz(predictive=False, log_likelihood="evidence")
    np.testing.assert_allclose(idata["log_likelihood"]["y"].values.ravel(), posterior.log_evidence, rtol=1e-12)


def test_report_of_a_clean_run_says_nothing_of_a_basis(rows):
    found = sgp.report(run_of(), rows, X_new=[[0.5]])
    assert found.ok, found
    assert found.not_checked == ()


@pytest.mark.slow
def test_report_finds_planted_faults(rows):
    def checks(*arguments, **more):
        return {each.check for each in sgp.report(*arguments, **more).findings}

    assert "out of domain" in checks(run_of(), rows, X_new=[[5.0]])
    assert "interpolation" in checks(run_of(noise=1e-5), rows)
    assert "prior-data conflict" in checks(run_of(noise=1e3), rows)
    shifted = sgp.rows(rows.X, rows.y + 50)
    with pytest.warns(UserWarning, match="Subtract the mean first"):
        assert "mean of y" in checks(run_of(), shifted)
    trend = sgp.models.exact_gp(sgp.Matern32, features=sgp.LinearBasis(1))
    assert "mean of y" not in checks(run_of(trend, feature_scale=50.0), shifted)
    odd = sgp.rows(rows.X, rows.y + 6.0 * (np.arange(30) == 4))
    assert "Pareto k" in checks(run_of(), odd)


SHORT = {"num_warmup": 100, "num_draws": 31, "thinning": 3}
INFORMED = {
    "lengthscale": dist.LogNormal(np.log(0.4), 0.4),
    "amplitude": dist.LogNormal(0.0, 0.4),
    "noise_scale": dist.LogNormal(np.log(0.3), 0.4),
}


@pytest.mark.end_to_end
def test_ranks_of_truths_are_uniform_and_of_wrong_noise_are_not():
    inputs = sgp.rows(np.linspace(0, 1, 12)[:, None], np.cos(np.arange(12.0)))
    model = sgp.models.exact_gp(sgp.Matern32, **INFORMED)
    ranks = sgp.simulation_based_calibration(model, inputs, jax.random.key(0), 160, **SHORT)
    assert min(float(p) for p in sgp.rank_uniformity(ranks).values()) > 1e-3
    louder = {**INFORMED, "noise_scale": dist.LogNormal(np.log(0.9), 0.4)}
    wrong = sgp.simulation_based_calibration(
        model, inputs, jax.random.key(0), 160, generator=sgp.models.exact_gp(sgp.Matern32, **louder), **SHORT
    )
    assert float(sgp.rank_uniformity(wrong)["noise_scale"]) < 1e-3


@pytest.mark.end_to_end
def test_posterior_calibration_sees_the_rows_twice():
    rng = np.random.default_rng(5)
    X = np.linspace(0, 1, 10)[:, None]
    rows = sgp.rows(X, np.sin(5 * X[:, 0]) + 0.3 * rng.normal(size=10), np.linspace(0.5, 2, 10))
    draws = {name: np.exp(np.asarray(prior.loc) + 0.1 * rng.normal(size=40)) for name, prior in INFORMED.items()}
    model = sgp.models.exact_gp(sgp.Matern32, **INFORMED)
    ranks = sgp.posterior_sbc(model, rows, draws, jax.random.key(1), **SHORT)
    assert ranks["noise_scale"].shape == (40,)
    assert 0 <= int(ranks["noise_scale"].min()) <= int(ranks["noise_scale"].max()) <= 31


def test_plots_take_what_exact_gps_give(rows):
    posterior = sgp.posterior(MODEL, run_of(), rows)
    grid = np.linspace(0, 1, 20)[:, None]
    ax = sgp.plots.plot_predictive(posterior.predict(grid), grid, X=rows.X, y=rows.y, ax=Figure().subplots())
    assert ax.lines
    ax = sgp.plots.plot_loo_pit(posterior, bins=10, ax=Figure().subplots())
    assert sum(bar.get_height() for bar in ax.patches[:10]) == 30
