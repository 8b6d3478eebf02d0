"""The search for hyperparameters, against dense evidences."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.stats import multivariate_normal

import ppl_sgp as sgp
from ppl_sgp.placement import hyperparameters
from ppl_sgp.placement.hyperparameters import find_hyperparameters
from ppl_sgp.placement.prior import LogPrior

pytestmark = pytest.mark.float64_only  # float64 on the host in either lane


def log_density(theta, X, y, prior):
    """Evidence and log prior of log lengthscale, amplitude and noise, squared exponential with a level."""
    lengthscale, amplitude, noise = np.exp(theta[:-2]), np.exp(theta[-2]), np.exp(theta[-1])
    squares = np.sum(((X[:, None] - X[None]) / lengthscale) ** 2, axis=-1)
    C = amplitude**2 * (1 + np.exp(-squares / 2)) + noise**2 * np.eye(len(y))
    of_prior = -0.5 * np.sum(((theta - prior.centre) / prior.spread) ** 2)
    return multivariate_normal(np.zeros(len(y)), C).logpdf(y) + of_prior


def searched(X, y, families=(sgp.SquaredExponential,)):
    prior = LogPrior.of_data(X.std(axis=0), y.std(), y.std())
    rows = sgp.rows(X, y - y.mean())
    return find_hyperparameters(np.random.default_rng(0), families, rows, prior, lambda text: None), prior, rows


def test_density_and_gradient(rng):
    X, y = rng.uniform(size=(20, 2)), rng.standard_normal(20)
    prior = LogPrior.of_data(X.std(axis=0), y.std(), y.std())
    point = np.array([-0.3, 0.4, 0.2, -0.5])
    with jax.enable_x64(True):
        value, gradient = hyperparameters.density(
            hyperparameters._exact, sgp.SquaredExponential, sgp.rows(X, y), prior.centre, prior.spread, point
        )

    def truth(point):
        return log_density(point + prior.centre, X, y, prior)

    assert float(value) == pytest.approx(truth(point), abs=1e-8)
    np.testing.assert_allclose(gradient, approx_fprime(point, truth, 1e-6), rtol=1e-4, atol=1e-4)


def season(rng):
    X = np.linspace(0, 1, 120)[:, None]
    return X, np.sin(10 * np.pi * X[:, 0]) + 0.05 * rng.standard_normal(120)


def gap(rng):
    t = np.sort(np.concatenate([rng.uniform(0, 30, 60), 1100 + rng.uniform(0, 30, 60)]))
    return t[:, None], np.sin(2 * np.pi * t / 9) + 0.2 * rng.standard_normal(120)


def wrong_time_stamp(rng):
    t = np.append(np.sort(rng.uniform(0, 60, 119)), 5000.0)
    return t[:, None], np.sin(2 * np.pi * t / 9) + 0.2 * rng.standard_normal(120)


@pytest.mark.parametrize("data", [season, gap, wrong_time_stamp])
def test_the_maximum_is_found_whatever_the_scale_of_inputs(data, rng):
    X, y = data(rng)
    (found,), prior, rows = searched(X, y)
    theta = np.log([*found.lengthscale, found.amplitude, found.noise_scale])

    def negative(theta):
        return -log_density(theta, X, rows.y, prior)

    # A dense search that is told where to look: lengthscales of a fraction of the period.
    period = 0.2 if data is season else 9.0
    ends = [minimize(negative, np.log([c * period, 1.0, 0.1]), method="Nelder-Mead") for c in (0.15, 0.4)]
    assert negative(theta) < min(end.fun for end in ends) + 0.01
    assert found.log_evidence == pytest.approx(
        log_density(theta, X, rows.y, prior) + 0.5 * np.sum(((theta - prior.centre) / prior.spread) ** 2), abs=1e-6
    )


def test_a_season_beside_an_input_that_varies_slowly(rng):
    """No common factor of the lengthscales finds it."""
    X = np.column_stack([1.6e9 + 86400 * np.linspace(0, 12, 120), rng.standard_normal(120)])
    y = np.sin(2 * np.pi * X[:, 0] / 86400) + 0.5 * X[:, 1] + 0.2 * rng.standard_normal(120)
    (found,), _, _ = searched(X, y)
    assert 0.08 < found.lengthscale[0] / 86400 < 0.5 and found.lengthscale[1] > 1
    assert found.noise_scale == pytest.approx(0.2, rel=0.25)


def test_a_start_without_a_factor_gets_more_noise(rng):
    """As at the best start of outputs without noise: the covariance is rounding beside what noise there is."""
    X, y = rng.uniform(size=(60, 2)), rng.standard_normal(60)
    prior = LogPrior.of_data(X.std(axis=0), y.std(), y.std())
    start = np.array([3.0, 3.0, 8.0, -11.0])
    with jax.enable_x64(True):
        arguments = (hyperparameters._exact, sgp.SquaredExponential, sgp.rows(X, y), prior.centre, prior.spread)
        assert not np.isfinite(hyperparameters.density(*arguments, start)[0])
        best = hyperparameters.maximum(*arguments[:1], arguments[2], arguments[1], prior, [start], 20)
    assert np.isfinite(best.value)


def test_a_search_from_a_good_start_stays_near_it(rng, monkeypatch):
    """An evaluation on all rows is dear: none is spent on the bounds of the search, where covariances are singular."""
    X, y = season(rng)
    (found,), prior, rows = searched(X, y)
    evaluate, points = hyperparameters.density, []

    def noted(*arguments):
        points.append(np.asarray(arguments[-1]))
        return evaluate(*arguments)

    monkeypatch.setattr(hyperparameters, "density", noted)
    start = np.log([*found.lengthscale, found.amplitude, found.noise_scale]) - prior.centre + np.array([0.2, -0.2, 0.1])
    with jax.enable_x64(True):
        hyperparameters.maximum(hyperparameters._exact, rows, sgp.SquaredExponential, prior, [start], 20)
    assert np.max(np.abs(np.array(points) - start)) < 2


def test_the_evidence_chooses_the_kernel(rng):
    X = np.sort(rng.uniform(0, 10, 60))[:, None]
    y = np.sin(X[:, 0]) + 0.01 * rng.standard_normal(60)
    found, _, _ = searched(X, y, (sgp.Matern12, sgp.SquaredExponential))
    assert [each.family for each in found] == [sgp.SquaredExponential, sgp.Matern12]
    assert found[0].log_evidence > found[1].log_evidence


def test_interrupted_the_best_so_far_is_returned(rng, monkeypatch):
    X, y = season(rng)
    evaluate, calls = hyperparameters.density, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > 5:
            raise KeyboardInterrupt
        return evaluate(*arguments)

    monkeypatch.setattr(hyperparameters, "density", interrupted)
    (found,), _, _ = searched(X, y)
    assert not found.complete
    assert found.log_evidence > 0  # the starts are good already
