"""Fits of hyperparameters and inducing points: each schedule, and what is returned when something goes wrong."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp
from ppl_sgp._internal.pytree import pytree_dataclass
from ppl_sgp.evidence import exact
from ppl_sgp.inference import inducing_fit
from ppl_sgp.inference.inducing_fit import SCHEDULES

pytestmark = pytest.mark.float64_only


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(5)
    X = rng.uniform(-2, 2, size=(80, 1))
    return sgp.rows(X, np.sin(3 * X[:, 0]) + 0.2 * rng.normal(size=80))


@pytest.fixture(scope="module")
def fits(rows):
    return {schedule: sgp.fit_inducing(jax.random.key(1), rows, None, 9, schedule=schedule) for schedule in SCHEDULES}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_best_seen_is_returned_with_what_it_says(fits, rows, schedule):
    fit = fits[schedule]
    assert fit.converged and fit.num_evaluations == len(fit.trace)
    assert fit.log_joint == fit.trace[-1] == fit.trace.max()
    kernel = sgp.SquaredExponential(fit.values["lengthscale"], fit.values["amplitude"])
    np.testing.assert_allclose(fit.bound, sgp.inducing_evidence(rows, kernel, fit.points, fit.noise_scale), rtol=1e-10)
    upper = sgp.inducing_upper_bound(rows, fit.kernel, fit.points, fit.noise_scale)
    np.testing.assert_allclose(fit.gap, upper - fit.bound, rtol=1e-8)
    assert fit.gap > 0
    rms = np.sqrt(np.mean(rows.y**2))
    priors = {"lengthscale": (rows.X.std() / 2, 1.0), "amplitude": (rms, 1.0), "noise_scale": (0.3 * rms, 1.5)}
    log_prior = sum(
        float(np.sum(dist.LogNormal(np.log(median), spread).log_prob(fit.values[name])))
        for name, (median, spread) in priors.items()
    )
    np.testing.assert_allclose(fit.log_joint, fit.bound + log_prior, rtol=1e-8)


def test_points_that_move_or_are_chosen_anew_do_no_harm(fits):
    assert fits["fix-retrain"].log_joint >= fits["fix"].log_joint - 1e-6
    assert fits["reinitialise"].log_joint >= fits["fix"].log_joint - 1e-2
    assert fits["reinitialise-retrain"].log_joint >= fits["reinitialise"].log_joint - 1e-6


def test_nine_points_carry_a_sine(fits, rows):
    fit = fits["reinitialise-retrain"]
    assert 0 < exact.evaluate(rows, fit.kernel, fit.noise_scale, rows.values) - fit.bound < 0.5


def test_the_end_is_stationary(fits, rows):
    fit = fits["reinitialise-retrain"]

    def bound(Z):
        return sgp.inducing_evidence(rows, fit.kernel, Z, fit.noise_scale)

    assert np.abs(jax.grad(bound)(jnp.asarray(fit.points))).max() < 0.05


@pytest.mark.slow
def test_other_kernels_methods_outputs_and_starts(rows):
    Y = np.stack([rows.y, 100 * rows.y[::-1]], axis=1)
    fit = sgp.fit_inducing(
        jax.random.key(0),
        sgp.rows(rows.X, Y),
        lambda lengthscale, amplitude: sgp.Matern52(lengthscale, amplitude) + sgp.Linear(0.1),
        5,
        method="fitc",
        schedule="fix",
        start={"lengthscale": 0.5},
    )
    assert fit.noise_scale.shape == (2,) and fit.noise_scale[1] > 20 * fit.noise_scale[0]
    assert len(fit.points) == 5


@pytest.mark.slow
def test_interruption_returns_the_best_so_far(rows, monkeypatch):
    evaluate, calls = inducing_fit.value_and_gradients, []

    def interrupted(*arguments):
        calls.append(0)
        if len(calls) == 12:
            raise KeyboardInterrupt
        return evaluate(*arguments)

    monkeypatch.setattr(inducing_fit, "value_and_gradients", interrupted)
    with pytest.warns(UserWarning, match="interrupted. This is the best point so far"):
        fit = sgp.fit_inducing(jax.random.key(1), rows, None, 6)
    assert not fit.converged and fit.num_evaluations == 11 and fit.log_joint == fit.trace.max()


def test_an_iteration_limit_is_announced(rows):
    with pytest.warns(UserWarning, match="Raise `max_iterations`"):
        assert not sgp.fit_inducing(jax.random.key(1), rows, None, 6, schedule="fix", max_iterations=2).converged


@pytest.mark.slow
def test_few_equal_rows_and_constant_columns():
    X = np.column_stack([np.repeat([0.0, 1.0, 2.0], 4), np.ones(12)])
    fit = sgp.fit_inducing(jax.random.key(0), sgp.rows(X, np.sin(X[:, 0]) + np.tile([-0.1, 0.1], 6)), None, 50)
    assert len(fit.points) == 3 and fit.gap < 1e-3
    one = sgp.fit_inducing(jax.random.key(0), sgp.rows(np.ones((1, 1)), np.ones(1)), None, 5)
    assert len(one.points) == 1 and np.isfinite(one.bound)


@pytree_dataclass
class Quartic(sgp.SquaredExponential):
    """exp(−r⁴), no covariance: only of a few points far apart it has a Cholesky factor."""

    def _correlation(self, r2):
        return jnp.exp(-(r2**2))


@pytest.mark.slow
def test_points_without_a_factor_are_made_fewer(rows, monkeypatch):
    """Random points, since greedy ones end before the covariance has a negative eigenvalue."""
    uniform = functools.partial(sgp.select_inducing_points, method="uniform")
    monkeypatch.setattr(inducing_fit, "select_inducing_points", uniform)
    with pytest.warns(UserWarning, match=r"with 60 points the density is not finite.*goes on with \d+.*definite"):
        fit = sgp.fit_inducing(jax.random.key(0), rows, Quartic, 60, schedule="fix")
    assert 1 <= len(fit.points) < 60 and np.isfinite([fit.bound, fit.log_joint]).all()
    asked = uniform(jax.random.key(0), rows, fit.kernel, 60).points
    np.testing.assert_array_equal(fit.points, asked[: len(fit.points)])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_points_that_cannot_be_used_are_not(rows, schedule, monkeypatch):
    """All choices but the first are not finite: the first one stays."""
    select, calls = inducing_fit.select_inducing_points, []

    def broken(*arguments, **options):
        calls.append(select(*arguments, **options))
        return calls[0] if len(calls) == 1 else dataclasses.replace(calls[0], points=np.full((9, 1), np.nan))

    monkeypatch.setattr(inducing_fit, "select_inducing_points", broken)
    fit = sgp.fit_inducing(jax.random.key(1), rows, None, 9, schedule=schedule)
    assert fit.converged and np.isfinite(fit.points).all() and fit.points.shape == (9, 1)
    if schedule in ("fix", "reinitialise"):
        np.testing.assert_array_equal(fit.points, calls[0].points)


def test_points_are_chosen_for_the_best_where_the_current_ones_fail(rows):
    run = inducing_fit._Run(jax.random.key(0), rows, None, 6, "vfe", None, False, 1e9)
    good, bad = run.log_values({}), run.log_values({"amplitude": 1e153, "noise_scale": 1e-3})
    with pytest.raises(ValueError, match="density is not finite at the start"):
        run.choose(bad)
    _, expected, _ = run.choose(good)
    theta, Z, value = run.choose(bad)
    np.testing.assert_array_equal(theta, good)
    np.testing.assert_array_equal(Z, expected)
    assert value == run.log_joint(good, Z)


def test_duplicates_and_a_lengthscale_that_is_far_too_long_are_left_behind(rows, fits, monkeypatch):
    far = sgp.fit_inducing(jax.random.key(1), rows, None, 9, start={"lengthscale": 1e4})
    assert len(far.points) == 9 and far.log_joint > fits["reinitialise-retrain"].log_joint - 0.1
    few = np.repeat(np.array([[-1.0], [0.0], [1.0]]), 3, axis=0)
    chosen = sgp.InducingPoints(few, None, np.zeros(9), 80)
    monkeypatch.setattr(inducing_fit, "select_inducing_points", lambda *arguments, **options: chosen)
    for schedule in ("fix", "joint"):
        fit = sgp.fit_inducing(jax.random.key(1), rows, None, 9, schedule=schedule)
        assert np.isfinite(fit.log_joint) and fit.converged


@pytest.mark.parametrize(
    "changed, message",
    [
        (dict(rows=1.0), "`rows` must come from"),
        (dict(kernel_family=sgp.Matern32(1.0)), "`kernel_family` must be a class"),
        (dict(schedule="best"), "`schedule` must be one of"),
        (dict(num_points=0), "`num_points` must be"),
        (dict(method="exact"), "`method` must be one of"),
        (dict(start={"variance": 1.0}), "`start` may have"),
        (dict(start={"amplitude": -1.0}), "`amplitude` must be positive"),
        (dict(rows=sgp.rows(np.ones((2, 1)), np.zeros(2))), "y is identically zero"),
    ],
)
def test_refusals(rows, changed, message):
    arguments = dict(key=jax.random.key(0), rows=rows, kernel_family=None, num_points=3) | changed
    with pytest.raises(ValueError, match=message):
        sgp.fit_inducing(**arguments)
