"""Scores of counts against brute force, and calibration of predictions that are right, and wrong."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from matplotlib.figure import Figure

import ppl_sgp as sgp
from tests.builders import by_lane

pytestmark = pytest.mark.relaxed_promotion
RTOL = by_lane(1e-8, 2e-4)
X = np.linspace(-1, 1, 400)[:, None]
SLOPES = np.array([0.8, 1.0, 1.2])
RATES = np.exp(1 + SLOPES[:, None] * X[:, 0])


def model(X, y=None):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Poisson(jnp.exp(1 + slope * X[:, 0])), obs=y)


def drawn(rng):
    return rng.poisson(RATES[rng.integers(0, 3, len(X)), np.arange(len(X))])


@pytest.fixture(scope="module")
def prediction():
    return sgp.posterior(model, {"slope": SLOPES}, sgp.rows(X, np.zeros(len(X)))).predict(X)


def test_scores_against_brute_force(prediction, rng):
    y = drawn(rng)
    scores = sgp.calibrate_counts(prediction, y, largest=60)
    k = np.arange(61)
    mass = scipy.stats.poisson.pmf(k, RATES[..., None]).mean(axis=0)
    below = np.cumsum(mass, axis=1)
    np.testing.assert_allclose(scores["expected"], mass.sum(axis=0), rtol=10 * RTOL, atol=1e-6)
    np.testing.assert_allclose(scores["expected_sd"], np.sqrt((mass * (1 - mass)).sum(axis=0)), rtol=0.01, atol=1e-3)
    np.testing.assert_array_equal(scores["observed"], np.bincount(y, minlength=61))
    rps = np.sum((below - (k >= y[:, None])) ** 2, axis=1)
    np.testing.assert_allclose(scores["rps"], rps, rtol=by_lane(1e-6, 1e-2), atol=1e-4)
    rows = np.arange(len(y))
    np.testing.assert_allclose(scores["log_density"], np.log(mass[rows, y]), rtol=10 * RTOL, atol=RTOL)
    low = np.where(y > 0, below[rows, y - 1], 0)
    assert ((scores["pit"] >= low - 1e-5) & (scores["pit"] <= below[rows, y] + 1e-5)).all()
    mean, second = RATES.mean(axis=0), (RATES + RATES**2).mean(axis=0)
    np.testing.assert_allclose(scores["dispersion"], np.mean((y - mean) ** 2 / (second - mean**2)), rtol=100 * RTOL)


def test_right_predictions_are_calibrated_and_wrong_ones_are_not(prediction, rng):
    right = sgp.calibrate_counts(prediction, drawn(rng))
    assert scipy.stats.kstest(right["pit"], "uniform").pvalue > 0.01
    assert abs(right["coverage"][2] - 0.9) < 3 * right["coverage_standard_error"][2]
    assert 0.75 < right["dispersion"] < 1.3
    heavier = rng.negative_binomial(1.0, 1 / (1 + RATES[1]))
    wrong = sgp.calibrate_counts(prediction, heavier)
    assert scipy.stats.kstest(wrong["pit"], "uniform").pvalue < 1e-6 and wrong["dispersion"] > 2
    assert wrong["observed"][0] > wrong["expected"][0] + 5 * wrong["expected_sd"][0]


def test_large_counts_are_one_group(prediction, rng):
    y = drawn(rng)
    scores = sgp.calibrate_counts(prediction, y, largest=2)
    assert scores["observed_more"] == np.sum(y > 2)
    np.testing.assert_allclose(scores["expected_more"] + scores["expected"].sum(), len(y), rtol=1e-5)


def test_the_rootogram_hangs_what_was_observed(prediction, rng):
    scores = sgp.calibrate_counts(prediction, drawn(rng))
    ax = sgp.plots.plot_rootogram(scores, ax=Figure().subplots())
    tops = [bar.get_y() + bar.get_height() for bar in ax.patches]
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(np.square(tops), scores["expected"][: len(tops)], rtol=1e-6)
    np.testing.assert_allclose(np.square(heights), scores["observed"][: len(tops)], atol=1e-6)
    with pytest.raises(ValueError, match="calibrate_counts"):
        sgp.plots.plot_rootogram(scores.drop_vars("expected"))


def test_what_is_no_count_is_refused(prediction):
    with pytest.raises(ValueError, match="whole numbers of at least 0"):
        sgp.calibrate_counts(prediction, np.full(len(X), 0.5))
    with pytest.raises(ValueError, match="must be of one count a row"):
        sgp.calibrate_counts(np.zeros(3), np.zeros(3))
    assert jax.devices()
