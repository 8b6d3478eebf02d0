"""When a maximum counts as one: against functions whose distance from their maximum is known."""

import numpy as np
import pytest

from ppl_sgp.inference.maximise import Objective, maximise, newton_step

EPS = float(np.finfo(np.float64).eps)
CURVATURE = np.array([4e5, 3.0, 1e-3])


def quadratic(x, noise=0.0, offset=0.0):
    """Best at ones, with rounding of the given size in its value, but not in its gradient."""
    rounding = noise * np.sin(1e9 * x.sum())
    return offset + rounding - 0.5 * float(CURVATURE @ (x - 1) ** 2), -CURVATURE * (x - 1)


@pytest.mark.parametrize("at", [np.array([1.001, 0.5, -3.0]), np.array([1.0, 1.0, 30.0]), np.zeros(3)])
def test_newton_gain_is_what_is_left(at):
    objective = Objective(quadratic, EPS)
    assert newton_step(objective, at, *quadratic(at)).gain == pytest.approx(-quadratic(at)[0], rel=1e-3)


def test_newton_gain_of_many_parameters_is_a_lower_bound():
    rng = np.random.default_rng(0)
    curvature = np.exp(rng.uniform(-1, 1, 50))
    objective = Objective(lambda x: (-0.5 * float(curvature @ x**2), -curvature * x), EPS)
    at = rng.normal(size=50)
    value, gradient = objective(at)
    assert -0.99 * value < newton_step(objective, at, value, gradient).gain <= -value * (1 + 1e-6)


def test_a_saddle_is_no_maximum():
    at = np.array([1e-3, 0.0])
    objective = Objective(lambda x: (0.5 * float(x[0] ** 2 - x[1] ** 2), np.array([x[0], -x[1]])), EPS)
    assert newton_step(objective, at, *objective(at)).gain == pytest.approx(1e-3)  # of a step of length one


def test_rounding_is_measured():
    objective = Objective(lambda x: quadratic(x, noise=1e-4), EPS)
    at = np.array([1.001, 0.5, -3.0])
    assert 1e-5 < newton_step(objective, at, *objective(at)).rounding < 2.1e-4
    exact = Objective(quadratic, EPS)
    assert newton_step(exact, at, *exact(at)).rounding < 1e-12


@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-7])
def test_rounding_is_no_failure(noise):
    """SciPy's line search ends as "ABNORMAL" where values are rounded; there is nothing left to gain."""
    end = maximise(Objective(lambda x: quadratic(x, noise, offset=-40.0), EPS), np.array([2.0, -4.0, 3.0]), 500)
    assert end.converged and end.step.gain < 1e-3
    assert end.value == pytest.approx(-40.0, abs=1e-3)


def ridge(curvature, noise, turn):
    """Curvatures that are far apart, with values that are rounded."""
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(len(curvature),) * 2))[0] if turn else np.eye(3)
    H = Q @ np.diag(curvature) @ Q.T

    def evaluate(x):
        return -0.5 * float((x - 1) @ H @ (x - 1)) + noise * np.sin(1.2345e9 * x.sum()), -H @ (x - 1)

    return evaluate


@pytest.mark.parametrize(
    ("curvature", "noise", "turn"),
    [((1e10, 1.0), 1e-4, True), ((1e12, 1.0), 0.0, True), ((1e8, 1e4, 1.0), 1e-2, False)],
)
def test_a_failed_line_search_starts_again_where_a_newton_step_leads(curvature, noise, turn):
    evaluate = ridge(curvature, noise, turn)
    end = maximise(Objective(evaluate, EPS), np.linspace(3, -5, len(curvature)), 500)
    assert end.converged and evaluate(end.x)[0] == pytest.approx(0, abs=0.15)


def test_without_newton_steps_a_failed_line_search_is_the_end(monkeypatch):
    """Steepest ascent gains less than rounding, however often it starts again. (Of turned axes a BLAS decides.)"""
    curvature = (1e8, 1e4, 1.0)
    evaluate = ridge(curvature, 1e-2, False)
    monkeypatch.setattr("ppl_sgp.inference.maximise.better_start", lambda objective, x, value, step: x)
    without = maximise(Objective(evaluate, EPS), np.linspace(3, -5, len(curvature)), 500)
    assert not without.converged and without.reason == "the line search found no better point"
    assert evaluate(without.x)[0] < -2


def test_gradients_of_another_function_are_told_from_rounding():
    objective = Objective(lambda x: (-0.5 * float(x @ x), 1.0 - x), EPS)  # the derivative of a term is wrong
    end = maximise(objective, np.array([0.0]), 500)
    assert not end.converged and end.reason == "values do not follow their gradients"


def test_values_too_coarse_to_follow_the_gradient():
    end = maximise(Objective(lambda x: (np.rint(-0.5 * float(x @ x)), -x), EPS), np.array([0.7]), 500)
    assert not end.converged and end.step.gain == pytest.approx(0.245, rel=1e-3)
    assert end.reason == "the line search found no better point"


def test_steps_back_from_where_the_density_is_not_finite():
    def evaluate(x):
        value = float(np.log(x[0]) - 30 * x[0]) if x[0] > 0 else -np.inf
        return value, 1 / x - 30 if x[0] > 0 else np.array([np.nan])

    end = maximise(Objective(evaluate, EPS), np.array([0.5]), 100)
    assert end.converged
    assert end.x[0] == pytest.approx(1 / 30, rel=1e-3)


def test_iterations_are_limited_over_all_restarts():
    end = maximise(Objective(quadratic, EPS), np.array([2.0, -4.0, 300.0]), 2)
    assert not end.converged and end.reason == "the iteration limit was reached"
