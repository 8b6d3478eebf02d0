"""Containers, reports and calibration by simulation of GPs with inducing points."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.diagnostics import inducing_checks
from ppl_sgp.diagnostics.simulation_based_calibration import _rows_again
from ppl_sgp.posteriors.arviz_compat import groups
from tests.diagnostics.test_exact_gp_diagnostics import INFORMED, run_of

pytestmark = [pytest.mark.float64_only, pytest.mark.relaxed_promotion]

POINTS = np.linspace(0, 1, 6)[:, None]
MODEL = sgp.models.inducing_gp(POINTS, sgp.Matern32)


@pytest.fixture(scope="module")
def rows():
    """Thirty rows of a smooth function."""
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(30, 1))
    return sgp.rows(X, np.sin(5 * X[:, 0]) + 0.3 * rng.normal(size=30))


@pytest.mark.slow
def test_containers_hold_what_follows_from_the_rows(rows):
    chunks = sgp.rows([(rows.X[:20], rows.y[:20]), (rows.X[20:], rows.y[20:])])
    posterior = sgp.posterior(MODEL, run_of(MODEL), rows).spaced(40)
    for data in (rows, chunks):
        of_data = sgp.posterior(MODEL, run_of(MODEL), data).spaced(40)
        idata = of_data.to_arviz(X_new=[[0.5], [0.6]], key=jax.random.key(0))
        names = {name.strip("/") for name in groups(idata)}
        assert {"posterior", "log_prior", "log_likelihood", "posterior_predictive", "predictions"} <= names
        left_out = idata["log_likelihood"]["y"].values[0]
        np.testing.assert_allclose(left_out, posterior.leave_one_out(), rtol=1e-10)
        np.testing.assert_array_equal(idata["constant_data"]["X"], rows.X)
        assert idata["predictions"]["y"].shape == (1, 40, 2)
    evidence = posterior.to_arviz(predictive=False, log_likelihood="evidence")
    np.testing.assert_allclose(evidence["log_likelihood"]["y"].values.ravel(), posterior.log_evidence, rtol=1e-12)


@pytest.mark.slow
def test_report_says_whether_the_points_are_enough(rows):
    good = sgp.models.inducing_gp(np.linspace(0, 1, 20)[:, None], sgp.Matern32)
    found = sgp.report(run_of(good), rows, X_new=[[0.5]])
    assert found.ok and found.not_checked == (), found
    two = sgp.models.inducing_gp(np.array([[0.0], [0.1]]), sgp.Matern32, method="fitc")
    (poor,) = [each for each in sgp.report(run_of(two), rows).findings if each.check == "too few inducing points"]
    assert "fit_inducing" in poor.remedy and "2 points lose up to" in poor.symptom


def parameters_at(rows, points, method="vfe", noise=0.3):
    model = sgp.models.inducing_gp(points, sgp.Matern32, method=method)
    draws = {"lengthscale": np.full(1, 0.4), "amplitude": np.full(1, 0.9), "noise_scale": np.full(1, noise)}
    stacked = sgp.posterior(model, draws, rows).parameters()
    return jax.tree.map(lambda leaf: leaf[0], stacked)


@pytest.mark.slow
@pytest.mark.parametrize("count, end", [(2, 1.0), (5, 0.6), (15, 1.0)])
def test_what_points_lose_is_bounded_as_tightly_as_said(rows, count, end, monkeypatch):
    monkeypatch.setattr(inducing_checks, "PAIRS", 7 * 30)  # several blocks
    weighted = sgp.rows(rows.X, rows.y, np.linspace(0.5, 2, 30))
    points = np.linspace(0, end, count)[:, None]
    parameters = parameters_at(weighted, points)
    K, Kx, Kz = (np.asarray(parameters.kernel(*p)) for p in ((rows.X,) * 2, (rows.X, points), (points,) * 2))
    lacking, noise = K - Kx @ np.linalg.solve(Kz, Kx.T), 0.3**2 * np.diag(1 / weighted.row_weights)
    d = np.linalg.solve(K - lacking + noise, rows.y)
    expected = 0.5 * (d @ lacking @ d + np.sum(weighted.row_weights * np.diag(lacking)) / 0.3**2)
    found = inducing_checks.most_lost(weighted, parameters)
    arguments = (weighted, parameters.kernel, points, 0.3)
    lower, upper = sgp.inducing_evidence(*arguments), sgp.inducing_upper_bound(*arguments)
    assert found == pytest.approx(min(expected, float(upper - lower)), rel=1e-6)
    true = float(sgp.ExactGP(weighted, parameters.kernel, 0.3).log_prob(rows.y) - lower)
    assert true <= found < (2 * true if count == 15 else np.inf)


def test_some_of_many_rows_are_looked_at(rows, monkeypatch):
    monkeypatch.setattr(inducing_checks, "ROWS", 20)
    chunks = sgp.rows([(rows.X[:20], rows.y[:20]), (rows.X[20:], rows.y[20:])])
    parameters = jax.tree.map(lambda leaf: leaf[None], parameters_at(rows, np.array([[0.0]]), noise=0.05))
    found = [list(inducing_checks.point_findings(each, parameters)) for each in (rows, chunks)]
    assert found[0] == found[1] and "20 of the rows" in found[0][0].symptom


@pytest.mark.slow
def test_report_names_what_it_did_not_check(rows):
    two = sgp.rows(rows.X, np.stack([rows.y, rows.y[::-1]], axis=1))
    model = sgp.models.inducing_gp(POINTS, noise_scale=0.3)
    skipped = sgp.report(sgp.posterior(model, run_of(model), two).spaced(40)).not_checked
    assert any("inducing points" in each for each in skipped)
    found = sgp.report(sgp.posterior(MODEL, run_of(MODEL), rows).spaced(40), X_new=[[5.0]]).findings
    assert "out of domain" in {each.check for each in found}


SHORT = {"num_warmup": 60, "num_draws": 19, "thinning": 3}


def of_method(method, rows=None):
    blocks = None if rows is None else np.zeros(rows.num_rows, int)
    return sgp.models.inducing_gp(POINTS[::2], sgp.Matern32, method=method, blocks=blocks, **INFORMED)


@pytest.mark.end_to_end
def test_ranks_of_truths_are_uniform():
    inputs = sgp.rows(np.linspace(0, 1, 10)[:, None], np.cos(np.arange(10.0)))
    ranks = sgp.simulation_based_calibration(of_method("fitc"), inputs, jax.random.key(0), 100, **SHORT)
    assert min(float(p) for p in sgp.rank_uniformity(ranks).values()) > 1e-3


@pytest.mark.end_to_end
def test_posterior_calibration_sees_the_rows_twice():
    rng = np.random.default_rng(5)
    X = np.linspace(0, 1, 10)[:, None]
    rows = sgp.rows(X, np.sin(5 * X[:, 0]) + 0.3 * rng.normal(size=10), np.linspace(0.5, 2, 10))
    draws = {name: np.exp(np.asarray(prior.loc) + 0.1 * rng.normal(size=20)) for name, prior in INFORMED.items()}
    ranks = sgp.posterior_sbc(of_method("fitc"), rows, draws, jax.random.key(1), **SHORT)
    assert ranks["noise_scale"].shape == (20,) and 0 <= int(ranks["noise_scale"].max()) <= 19


@pytest.mark.slow
def test_repetitions_of_dtc_are_drawn_from_its_own_model():
    """With next to no noise and a single point, rows given the point have no variance of their own."""
    rng = np.random.default_rng(5)
    rows = sgp.rows(rng.uniform(size=(10, 1)), rng.normal(size=10))
    draws = {"lengthscale": np.full(50, 0.2), "amplitude": np.ones(50), "noise_scale": np.full(50, 1e-3)}
    repeated = {
        method: _rows_again(
            sgp.posterior(sgp.models.inducing_gp([[0.5]], method=method), draws, rows), jax.random.key(0)
        )[1][:, 10:]
        for method in ("dtc", "fitc")
    }
    v = np.exp(-0.5 * ((rows.X[:, 0] - 0.5) / 0.2) ** 2)
    assert (repeated["dtc"].std(axis=0) < 0.01).all()
    far = v < 0.5
    assert (repeated["fitc"].std(axis=0)[far] > 0.5).all()


def test_bounds_and_what_cannot_be_repeated_are_refused(rows):
    for study in (
        lambda: sgp.simulation_based_calibration(of_method("vfe"), rows, jax.random.key(0), 5),
        lambda: sgp.posterior_sbc(of_method("vfe"), rows, run_of().get_samples(True), jax.random.key(0)),
    ):
        with pytest.raises(ValueError, match='observes a bound.*method="fitc"'):
            study()
    draws = {name: values[0, :3] for name, values in run_of().get_samples(True).items()}
    with pytest.raises(ValueError, match="labels of each row once"):
        sgp.posterior_sbc(of_method("pitc", rows), rows, draws, jax.random.key(0))
    chunks = sgp.rows([(rows.X, rows.y)])
    with pytest.raises(ValueError, match="inputs as an array"):
        sgp.posterior_sbc(of_method("fitc"), chunks, draws, jax.random.key(0))
