"""L-BFGS whose end is judged by what a Newton step from there would gain."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

#: A maximum is one from which a Newton step gains less, in nats, or less than so many roundings of the value.
LEAST_GAIN, ROUNDINGS = 1e-3, 10
#: Rounding that is measured, beyond that of the value itself, excuses no more: it may come from a wrong value.
MOST_EXCUSED = 0.1
#: How often L-BFGS starts again, with nothing remembered, where it stopped short of a maximum: from where a Newton step
#: leads, if the value there is better. After a line search that failed, L-BFGS would begin by the same steepest ascent.
RESTARTS = 4
#: Shares of a Newton step that are tried.
SHARES = (1.0, 0.25, 0.05)
#: Steps that L-BFGS remembers. With the hyperparameters of an additive model of tall data, whose curvatures are a
#: million to one, 30 need a fourth of the evaluations that SciPy's 10 do (494 and 132, 19 parameters of 60,000 rows).
#: Old differences of gradients in single precision are rounding: there it is SciPy's 10.
MEMORY, MEMORY_IN_SINGLE = 30, 10
#: Steps of conjugate gradients, each an evaluation, that a Newton step is approximated by: exact for so few parameters.
NEWTON_STEPS = 10
#: A value that is not finite counts as this much below the best, relative to its size, so that a step can go back.
WALL = 1e3

#: Why SciPy ended, by its status.
REASONS = {0: "L-BFGS has settled", 1: "the iteration limit was reached", 2: "the line search found no better point"}


#: The reason where gradients are of another function than values.
MISLED = "values do not follow their gradients"
#: Steps along the gradient, and how many times more values are off after the longer one, if gradients are wrong:
#: by rounding they are off by as much after both.
SHORT, LONG, GROWTH = 1e-5, 1e-3, 20


class Maximum(NamedTuple):
    """Where a run ended.

    :ivar x: the point.
    :ivar value: the value there.
    :ivar step: what a Newton step from there would gain.
    :ivar converged: whether that is next to nothing.
    :ivar reason: why it ended.
    """

    x: np.ndarray
    value: float
    step: NewtonStep
    converged: bool
    reason: str


class NewtonStep(NamedTuple):
    """A Newton step: what it expects to gain, how far values are from what their gradients say, by rounding, and where
    it leads."""

    gain: float
    rounding: float
    to: np.ndarray

    def __str__(self) -> str:
        return f"a further step would gain {self.gain:.1g} nats, of values rounded to {self.rounding:.1g}"


class Objective:
    """A function to be maximised that counts its evaluations and remembers the best of them.

    :param evaluate: value and gradient at a vector, float64.
    :param eps: the relative rounding of values.
    """

    def __init__(self, evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]], eps: float) -> None:
        self._evaluate, self.eps = evaluate, eps
        self.num_evaluations, self.best_x, self.best_value = 0, np.zeros(0), -np.inf

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient."""
        value, gradient = self._evaluate(x)
        self.num_evaluations += 1
        if value > self.best_value and np.isfinite(gradient).all():
            self.best_x, self.best_value = x.copy(), value
        return value, gradient

    def negative(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """For a minimiser: a wall where the function is not finite, from which the line search steps back."""
        value, gradient = self(x)
        if np.isfinite(value) and np.isfinite(gradient).all():
            return -value, -gradient
        return -self.best_value + WALL * (1 + abs(self.best_value)), np.zeros_like(x)


def maximise(objective: Objective, start: np.ndarray, max_iterations: int) -> Maximum:
    """The maximum that L-BFGS reaches from a start with a finite value, started again where it stopped short of one."""
    # Single precision cannot resolve SciPy's default tolerance.
    memory = MEMORY if objective.eps < np.finfo(np.float32).eps else MEMORY_IN_SINGLE
    options = {"ftol": ROUNDINGS * objective.eps, "maxiter": max_iterations, "maxcor": memory}
    x = start
    for restart in range(1 + RESTARTS):
        end = minimize(objective.negative, x, jac=True, method="L-BFGS-B", options=options)
        x, value = end.x, -float(end.fun)
        step = newton_step(objective, x, value, -end.jac)
        options["maxiter"] -= end.nit
        limited = options["maxiter"] <= 0
        excused = max(ROUNDINGS * objective.eps * abs(value), min(ROUNDINGS * step.rounding, MOST_EXCUSED))
        converged = step.gain <= max(LEAST_GAIN, excused)
        if converged or limited or restart == RESTARTS:
            break
        x = better_start(objective, x, value, step)
    reason = REASONS[1 if limited and not converged else end.status]
    if not converged and not limited and misled(objective, end.x, value, -end.jac):
        reason = MISLED
    return Maximum(end.x, value, step, converged, reason)


def better_start(objective: Objective, x: np.ndarray, value: float, step: NewtonStep) -> np.ndarray:
    """A point along a Newton step with a better value; ``x`` itself if there is none."""
    for share in SHARES:
        ahead = x + share * (step.to - x)
        if np.isfinite(ahead).all() and objective(ahead)[0] > value:
            return ahead
    return x


def misled(objective: Objective, x: np.ndarray, value: float, gradient: np.ndarray) -> bool:
    """Whether values rise by other amounts than gradients say, and the more so the longer the step."""
    length = float(np.linalg.norm(gradient))
    if not 0 < length < np.inf:
        return False
    off, rise, ahead_value = [], 0.0, value
    for step in (SHORT, LONG):
        ahead_value, ahead = objective(x + step * gradient / length)
        rise = 0.5 * step / length * float((gradient + ahead) @ gradient)
        off.append(abs(ahead_value - value - rise))
    # A value that does not change at all is rounded to more than this.
    return bool(ahead_value != value and off[1] > max(GROWTH * off[0], 0.1 * abs(rise)))


def newton_step(objective: Objective, x: np.ndarray, value: float, gradient: np.ndarray) -> NewtonStep:
    """``½gᵀH⁻¹g``, what a Newton step expects to gain, by conjugate gradients on differences of gradients.

    Where the function curves upwards, what a step of length one along that direction would gain.
    """
    step = objective.eps ** (1 / 3)  # parameters are logarithms and the like, of scale one
    residual, direction, gain, rounding, to = gradient, gradient, 0.0, objective.eps * abs(value), x
    for _ in range(min(len(x), NEWTON_STEPS)):
        length = float(np.linalg.norm(direction))
        if length == 0:
            break
        value_ahead, ahead = objective(x + step * direction / length)
        product = (gradient - ahead) * (length / step)  # of the negative Hessian
        curvature = float(direction @ product)
        if not np.isfinite(curvature):
            return NewtonStep(np.inf, rounding, to)
        rise = 0.5 * step / length * float((gradient + ahead) @ direction)
        rounding = max(rounding, abs(value_ahead - value - rise))
        square = float(residual @ residual)
        if curvature <= 0:
            return NewtonStep(gain + square / length, rounding, to + direction / length)
        gain += 0.5 * square**2 / curvature
        to = to + (square / curvature) * direction
        residual = residual - (square / curvature) * product
        direction = residual + (float(residual @ residual) / square) * direction
    return NewtonStep(gain, rounding, to)
