"""Number and box of a Laplace basis that are chosen for a prior of lengthscales, and what is said of a bad choice."""

from __future__ import annotations

import warnings

import numpy as np
import numpyro.distributions as dist
import pytest
import statsmodels.api as sm

import ppl_sgp as sgp

X = np.random.default_rng(0).uniform(0, 10, (400, 1))
LONG = 1.2815515655446004  # standard normal quantile of 0.9


def served(X):
    """The central 80% of the default prior over half the range: √d/2 standard deviations, times or over a factor."""
    half = np.ptp(X, axis=0) / 2
    median = X.std(axis=0) * X.shape[1] ** 0.5 / 2
    return median / half * np.exp(-LONG), median / half * np.exp(LONG)


@pytest.mark.parametrize(("kernel", "a", "b"), [(sgp.Matern52, 2.65, 4.1), (sgp.SquaredExponential, 1.75, 3.2)])
def test_number_and_box_serve_the_default_prior(kernel, a, b, x64):
    short, long = served(X)
    basis = sgp.LaplaceBasis.from_data(X, kernel=kernel)
    factor = basis.boundary / (np.ptp(X, axis=0) / 2)
    assert factor == pytest.approx(b * long, rel=1e-6)
    assert basis.num_functions[0] == pytest.approx(a * factor[0] / short[0], abs=1)


def test_a_prior_of_ones_own():
    prior = dist.LogNormal(np.log(1.0), 0.5)
    ends = np.exp(0.5 * LONG * np.array([-1, 1]))
    number, factor = sgp.LaplaceBasis.suggest(X, prior, sgp.Matern52)
    expected = sgp.LaplaceBasis.suggest(X, ends, sgp.Matern52)
    assert factor == pytest.approx(expected[1], rel=0.05) and number == pytest.approx(expected[0], rel=0.1)
    basis = sgp.LaplaceBasis.from_data(X, lengthscale=prior)
    assert basis.boundary / (np.ptp(X) / 2) == pytest.approx(max(1.5, factor[0]), rel=1e-3)
    assert sgp.LaplaceBasis.from_data(X, lengthscale=[0.5, 4.0]).num_functions == (87,)


def test_of_fewer_functions_the_box_is_in_the_middle():
    """They serve lengthscales from a c/m to c/b, about the median of the prior."""
    median = X.std() / 2 / (np.ptp(X) / 2)
    for number in (40, 60):
        basis = sgp.LaplaceBasis.from_data(X, number)
        factor = float(basis.boundary[0] / (np.ptp(X) / 2))
        assert (2.65 * factor / number) * (factor / 4.1) == pytest.approx(median**2, rel=1e-5)
    assert sgp.LaplaceBasis.from_data(X, 5).boundary[0] == pytest.approx(1.5 * np.ptp(X) / 2)
    wide = sgp.LaplaceBasis.from_data(X, 2000).boundary[0]
    assert wide == pytest.approx(sgp.LaplaceBasis.from_data(X).boundary[0])
    assert sgp.LaplaceBasis.from_data(X, boundary_factor=2.0).num_functions[0] > 50


def test_many_inputs_have_two_hundred_functions_at_most():
    Z = np.random.default_rng(0).uniform(0, 1, (100, 3))
    assert sgp.LaplaceBasis.from_data(Z).num_functions == (5, 5, 5)


def test_a_lengthscale_that_chooses_nothing_is_refused():
    with pytest.raises(ValueError, match="`lengthscale` chooses what is not given"):
        sgp.LaplaceBasis.from_data(X, 10, 2.0, lengthscale=[1.0])
    with pytest.raises(ValueError, match="there are rules for"):
        sgp.LaplaceBasis.from_data(X, kernel=sgp.Matern12)
    with pytest.raises(ValueError, match="`lengthscales` must be positive"):
        sgp.LaplaceBasis.from_data(X, lengthscale=[-1.0])


@pytest.fixture(scope="module")
def engel():
    """Logarithms of income and of expenses for food of 235 households, and the sd of an exact GP outside the data."""
    data = sm.datasets.engel.load_pandas().data
    x, y = np.log(data["income"].to_numpy())[:, None], np.log(data["foodexp"].to_numpy())
    y = y - y.mean()
    model, rows = sgp.models.exact_gp(sgp.Matern52), sgp.rows(x, y)
    fit = sgp.fit_evidence(model, rows)
    return x, y, fit, float(sgp.posterior(model, fit, rows).predict([[9.0]]).std[0])


def fitted(basis, engel):
    """Log evidence, the sd of f outside the data, and what was said of the fit and of the prediction."""
    x, y, _, _ = engel
    stats, model = sgp.sufficient_statistics(basis, x, y), sgp.models.basis_gp(sgp.Matern52)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit = sgp.fit_evidence(model, stats)
        deviation = float(sgp.posterior(model, fit, stats).predict([[9.0]]).std[0])
    assert all(each.filename == __file__ for each in said)  # at the line of whoever asks
    return fit, deviation, [str(each.message) for each in said]


@pytest.mark.slow
@pytest.mark.float64_only
def test_engel(engel):
    """The default box was silently wrong at long lengthscales: an sd of 0.096 instead of 0.255, 3.7 nats worse."""
    x, _, exact, exact_deviation = engel
    chosen = sgp.LaplaceBasis.from_data(x, kernel=sgp.Matern52)
    fit, deviation, _ = fitted(chosen, engel)
    assert deviation == pytest.approx(exact_deviation, rel=0.05)
    assert fit.log_evidence == pytest.approx(exact.log_evidence, abs=0.6)
    assert fit.values["lengthscale"] == pytest.approx(float(exact.values["lengthscale"]), rel=0.1)


@pytest.mark.slow
@pytest.mark.float64_only
def test_a_box_that_is_too_narrow_for_the_fit_is_announced_with_a_remedy_that_works(engel):
    x, _, exact, exact_deviation = engel
    fit, deviation, said = fitted(sgp.LaplaceBasis.from_data(x, 20, 1.5), engel)
    assert deviation < 0.5 * exact_deviation
    assert len(said) == 2 and said[0].startswith("fit_evidence: The box of the basis is 1.5 times as wide as the data")
    assert "predict: at 1 of the new rows LaplaceBasis has less than half" in said[1]
    factor = float(said[0].partition("boundary_factor=")[2].partition(")")[0])
    fit, deviation, said = fitted(sgp.LaplaceBasis.from_data(x, int(20 * factor / 1.5), factor), engel)
    assert deviation == pytest.approx(exact_deviation, rel=0.05) and said == []
    assert fit.log_evidence == pytest.approx(exact.log_evidence, abs=0.5)


@pytest.mark.float64_only
def test_a_line_needs_no_box_of_any_width():
    """Lengthscales beyond the range grow without bound, and the box need not."""
    x = np.linspace(-1, 1, 50)[:, None]
    stats = sgp.sufficient_statistics(sgp.LaplaceBasis.from_data(x, 60, 7.0), x, x[:, 0] + 0.01 * np.cos(77 * x[:, 0]))
    fit = sgp.fit_evidence(sgp.models.basis_gp(), stats)  # warns of nothing
    assert fit.values["lengthscale"] > 2.0
