"""Placement for other likelihoods: working outcomes as defined, and predictions near those of the true predictor."""

from __future__ import annotations

import pickle

import jax
import numpy as np
import pytest
from scipy.special import expit, gammaln, log_expit, logit

import ppl_sgp as sgp
from ppl_sgp.placement import tasks
from ppl_sgp.placement.outcomes import working

pytestmark = pytest.mark.usefixtures("relaxed_promotion")  # fit_evidence draws from NumPyro's distributions


def classes(n=800):
    """Two classes, with a unit of x and a column that says nothing."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.uniform(-1000, 1000, n), rng.standard_normal(n)], axis=1)
    eta = 2 * np.sin(X[:, 0] / 250) - 1
    return X, (rng.random(n) < expit(eta)).astype(float), eta


def counts(n=400):
    rng = np.random.default_rng(1)
    x, exposure = rng.uniform(0, 10, n), rng.uniform(0.5, 4, n)
    eta = 1 + np.sin(x)
    return x[:, None], rng.poisson(exposure * np.exp(eta)).astype(float), exposure, eta


@pytest.fixture(scope="module")
def placed_classes(relaxed):
    X, y, _ = classes()
    with relaxed():
        return sgp.place(jax.random.key(0), X[:600], y[:600], likelihood=sgp.likelihoods.Bernoulli())


def test_working_outcomes_of_classes_are_those_of_least_squares_about_the_best_constant():
    X, y, _ = classes(100)
    data, _ = working(sgp.likelihoods.Bernoulli(), X, y, None, None)
    p = y.mean()
    assert data.level == pytest.approx(logit(p), abs=1e-4)
    np.testing.assert_allclose(data.y + data.mean, logit(p) + (y - p) / (p * (1 - p)), rtol=1e-4)
    assert not data.weighted and data.scale == 1
    assert data.noise == (pytest.approx((p * (1 - p)) ** -0.5, rel=1e-4), True)


def test_working_outcomes_of_counts_follow_the_counts_and_the_exposure():
    X, y, exposure, _ = counts(50)
    often = np.linspace(1, 2, 50)
    data, _ = working(sgp.likelihoods.Poisson(), X, y, often, np.log(exposure))
    rate = y + 0.5
    np.testing.assert_allclose(data.y + data.mean, np.log(rate / exposure) + (y - rate) / rate, rtol=1e-9)
    np.testing.assert_allclose(data.weights * data.average, rate * often, rtol=1e-9)
    assert data.level == pytest.approx(np.log(often @ y / (often @ exposure)), abs=1e-4)
    assert data.noise == (pytest.approx(np.mean(rate * often) ** -0.5), True)


def test_noise_is_not_known_where_the_likelihood_has_parameters():
    X, y, _, _ = counts(50)
    assert working(sgp.likelihoods.NegativeBinomial(), X, y, None, None)[0].noise[1] is False


def test_kinks_have_working_outcomes_too():
    X, y, eta = classes(60)
    data, _ = working(sgp.likelihoods.AsymmetricLaplace(0.5), X, eta + y, None, None)
    assert np.isfinite(data.y).all() and (data.weights > 0).all()
    assert np.corrcoef(data.y, eta + y)[0, 1] > 0.9


@pytest.mark.slow
def test_classes_are_predicted_nearly_as_by_the_true_predictor(placed_classes):
    X, y, eta = classes()
    new = slice(600, None)
    prediction = sgp.predict(placed_classes.model, placed_classes.fit, placed_classes.statistics, X[new])
    best = np.mean(log_expit(np.where(y[new] > 0, eta[new], -eta[new])))
    p = y[:600].mean()
    worst = np.mean(np.where(y[new] > 0, np.log(p), np.log1p(-p)))
    found = float(np.mean(np.asarray(prediction.log_density(y[new]))))
    assert best - found < 0.2 * (best - worst)
    assert "working outcomes of Bernoulli" in str(placed_classes.report)
    assert placed_classes.statistics.converged


@pytest.mark.slow
def test_the_result_is_a_model_of_its_statistics_only(placed_classes):
    X, y, _ = classes(30)
    again = pickle.loads(pickle.dumps(placed_classes))
    assert again.model == placed_classes.model
    with pytest.raises(AttributeError, match="no Gaussian noise"):
        _ = placed_classes.noise_scale
    with pytest.raises(ValueError, match="placed for a likelihood of its own, and the statistics"):
        placed_classes.model(sgp.sufficient_statistics(placed_classes.basis, X, y))


@pytest.mark.slow
def test_exposure_is_an_offset_and_rates_are_found():
    X, y, exposure, eta = counts()
    likelihood, key = sgp.likelihoods.Poisson(), jax.random.key(0)
    placed = sgp.place(key, X, y, likelihood=likelihood, exposure=exposure)
    same = sgp.place(key, X, y, likelihood=likelihood, offset=np.log(exposure))
    assert placed.fit.log_evidence == same.fit.log_evidence
    mean = np.asarray(sgp.predict(placed.model, placed.fit, placed.statistics, X).mean)
    rates = np.exp(eta)
    assert np.sqrt(np.mean((mean / rates - 1) ** 2)) < 0.1
    # The evidence is that of counts: no more than the true rates make of them.
    truth = np.sum(y * np.log(exposure * rates) - exposure * rates - gammaln(y + 1))
    assert truth - 40 < placed.fit.log_evidence < truth


@pytest.mark.slow
def test_an_interrupted_expansion_is_of_the_first_rows(monkeypatch):
    X, y, exposure, _ = counts(60)
    original, calls = tasks.compress_likelihood, []

    def first_fails(*arguments, **options):
        calls.append(options["offset"])
        if len(calls) == 1:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(tasks, "compress_likelihood", first_fails)
    monkeypatch.setattr(tasks, "INTERRUPTED_ROWS", 40)
    with pytest.warns(UserWarning, match="statistics of 40 of 60 rows"):
        placed = sgp.place(jax.random.key(0), X, y, likelihood=sgp.likelihoods.Poisson(), exposure=exposure)
    np.testing.assert_array_equal(calls[1], np.log(exposure[:40]))
    assert np.isfinite(placed.fit.log_evidence)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(likelihood=sgp.likelihoods.Categorical(3)), "3 predictors a row"),
        (dict(y=np.full(30, 0.5)), "0 or 1"),
        (dict(y=np.ones(30)), "y says the same in all of 30 rows"),
        (dict(offset=np.ones(3)), r"`offset` must have shape \(30,\)"),
        (dict(exposure=np.ones(30)), "place: `exposure` is for rates"),
        (dict(X=np.ones((30, 2))), "no column of `X` varies"),
        (dict(row_weights=-np.ones(30)), "row_weights"),
    ],
)
def test_bad_input(arguments, message):
    X, y, _ = classes(30)
    given = dict(X=X, y=y, likelihood=sgp.likelihoods.Bernoulli()) | arguments
    with pytest.raises(ValueError, match=message):
        sgp.place(jax.random.key(0), **given)
