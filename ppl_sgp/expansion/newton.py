"""Newton's method for the centre of an expansion: damped, in units of the prior, first on some of the rows.

With a prior ``w = μ + Fu``, u standard normal, and the sums A and g of a pass, a step is ``(I + FᵀAF)⁻¹(Fᵀg − u)``. Of
averaged expansions it is one towards the variational normal distribution (Opper & Archambeau 2009): its covariance
``F(I + FᵀAF)⁻¹Fᵀ`` is that over which the next pass averages, and the objective is its bound, E[log p(y | w)] − KL.
Where it falls, half the step is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from ..likelihoods.likelihood import Likelihood
from .sums import Point, Sums

#: A Newton step is short if it is less than this many standard deviations of the posterior, all weights together.
SHORT_STEP = 0.1
#: Halvings of a step before it is given up.
MOST_HALVINGS = 30
#: Share of the objective, and nats, that count as rounding where it falls.
ROUNDING, ROUNDING_NATS = 1e-10, 1e-6

Evaluate = Callable[[Point], Sums]


class Reference(NamedTuple):
    """A normal prior of weights and parameters, in units of which steps are taken.

    :ivar mean: shape (K·m + p,).
    :ivar root: F, (K·m + p, K·m + p).
    :ivar num_weights: K·m.
    """

    mean: np.ndarray
    root: np.ndarray
    num_weights: int


class State(NamedTuple):
    """A point in units of the prior, with the precision there over which a pass averages, and what the pass found.

    :ivar u: shape (K·m + p,).
    :ivar lower: triangular L with ``LLᵀ = I + FᵀAF`` of the covariance averaged over; ``None`` at a point.
    :ivar sums: what the pass found.
    :ivar objective: the bound, or log joint density up to the prior's constant, nats.
    """

    u: np.ndarray
    lower: np.ndarray | None
    sums: Sums
    objective: float


class Step(NamedTuple):
    """A Newton step in units of the prior, with the triangular factor of the precision, and its length."""

    direction: np.ndarray
    lower: np.ndarray
    length: float


def point_at(likelihood: Likelihood, reference: Reference, u: np.ndarray, lower: np.ndarray | None) -> Point:
    """Where a pass expands the rows."""
    k = reference.num_weights
    v = reference.mean + reference.root @ u
    return Point(likelihood, v[:k], None if lower is None else covariance_root(reference, lower), v[k:])


def covariance_root(reference: Reference, lower: np.ndarray) -> np.ndarray:
    """``FL⁻ᵀ`` of the weights, a root of their covariance ``F(LLᵀ)⁻¹Fᵀ`` given the parameters."""
    k = reference.num_weights
    root: np.ndarray = solve_triangular(lower[:k, :k], reference.root[:k, :k].T, lower=True).T
    return root


def evaluated(
    evaluate: Evaluate,
    likelihood: Likelihood,
    reference: Reference,
    u: np.ndarray,
    lower: np.ndarray | None,
    is_start: bool = False,
) -> State:
    """The state of a point, by one pass."""
    sums = evaluate(point_at(likelihood, reference, u, lower)._replace(is_start=is_start))
    objective = float(sums.log_prob) - 0.5 * u @ u
    if lower is not None:
        # The divergence from the prior, of weights given parameters, over which nothing is averaged.
        k = reference.num_weights
        inverse = solve_triangular(lower[:k, :k], np.eye(k), lower=True)
        objective -= 0.5 * (np.sum(inverse**2) - k + 2 * np.sum(np.log(np.diag(lower)[:k])))
    finite = np.isfinite(objective) and np.isfinite(sums.gradient).all() and np.isfinite(sums.curvature).all()
    return State(u, lower, sums, objective if finite else -np.inf)


def newton_step(state: State, reference: Reference) -> Step:
    """The step from a state, and the precision it leads to."""
    F = reference.root
    precision = np.eye(len(F)) + F.T @ state.sums.curvature @ F
    lower = positive_factor(0.5 * (precision + precision.T))
    gradient = F.T @ state.sums.gradient - state.u
    direction = cho_solve((lower, True), gradient)
    return Step(direction, lower, float(np.sqrt(max(0.0, gradient @ direction))))


def positive_factor(precision: np.ndarray) -> np.ndarray:
    """Lower triangular factor; where parameters of a likelihood make a precision indefinite, of its absolute value."""
    try:
        return np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(precision)
        return lower_factor(vectors * np.sqrt(np.maximum(np.abs(values), 1e-8 * np.abs(values).max())))


def lower_factor(root: np.ndarray) -> np.ndarray:
    """The lower triangular L, of positive diagonal, with the same ``LLᵀ`` as ``root rootᵀ``."""
    upper: np.ndarray = np.linalg.qr(root.T, mode="r")  # type: ignore[assignment]
    return (upper * np.where(np.diag(upper) < 0, -1.0, 1.0)[:, None]).T


class Newton:
    """Damped steps on one set of rows.

    :param evaluate: a pass over the rows.
    :param likelihood: of the rows.
    :param reference: prior of weights and parameters.
    :param record: called with each state, the length of the step to come from there, and the damping that led there.
    """

    def __init__(
        self,
        evaluate: Evaluate,
        likelihood: Likelihood,
        reference: Reference,
        record: Callable[[State, float, float], None],
    ) -> None:
        self._evaluate, self.likelihood, self._reference, self._record = evaluate, likelihood, reference, record

    def at(self, u: np.ndarray, lower: np.ndarray | None) -> State:
        """A state, by one pass."""
        return evaluated(self._evaluate, self.likelihood, self._reference, u, lower)

    def start(self, u: np.ndarray, lower: np.ndarray | None) -> State:
        """A state with derivatives at predictors that outcomes alone suggest; its objective means nothing."""
        return evaluated(self._evaluate, self.likelihood, self._reference, u, lower, is_start=True)

    def climb(
        self, state: State, averaged: bool, most_passes: int, short: float = SHORT_STEP
    ) -> tuple[State, Step, bool]:
        """Steps from a state until one would be short: the last state, the step from there, and whether it is short."""
        step, damping, passes = newton_step(state, self._reference), 1.0, 1
        self._record(state, step.length, damping)
        while step.length > short and passes < most_passes:
            found, damping, taken = self._advance(state, step, averaged, most_passes - passes)
            passes += taken
            if found is None:
                break
            state, step = found, newton_step(found, self._reference)
            self._record(state, step.length, damping)
        return state, step, step.length <= short

    def _advance(self, state: State, step: Step, averaged: bool, most: int) -> tuple[State | None, float, int]:
        """The state after a step, of which as much is taken as gains; ``None`` if nothing does."""
        share = 1.0
        for taken in range(1, min(most, MOST_HALVINGS) + 1):
            lower = step.lower if averaged else None
            if averaged and share < 1 and state.lower is not None:
                mixed = share * step.lower @ step.lower.T + (1 - share) * state.lower @ state.lower.T
                lower = np.linalg.cholesky(mixed)
            found = self.at(state.u + share * step.direction, lower)
            if found.objective >= state.objective - ROUNDING_NATS - ROUNDING * abs(state.objective):
                return found, share, taken
            share /= 2
        return None, share, taken
