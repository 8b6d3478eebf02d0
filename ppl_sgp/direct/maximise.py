"""L-BFGS, and coordinate sweeps, with a trace of the bound; interrupted, they keep what was reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
from scipy.optimize import minimize

from .._internal import checks

T = TypeVar("T")

#: Iterations over which a gain below the tolerance counts as none.
WINDOW = 10
#: Until a sweep gains nothing L-BFGS gives way to it where ten iterations gain less than this share of all it gained:
#: where levels are far apart it creeps, and a sweep jumps. On six problems of 2,000 weights bounds were as good as
#: without or better, in 0.4 to 1 times the time; with 0.01 two were worse.
EARLY = 0.03
#: How many times the gain of the last window a start may still gain before it is given up.
HOPE = 10.0
#: Vectors that L-BFGS keeps: more pay, since a vector is cheaper than an evaluation.
MEMORY = 20

SETTLED, INTERRUPTED = "the bound has settled", "interrupted"
#: Why SciPy ended, by its status. It has no tolerance of its own here, so that any other is a stop of ours.
REASONS = {1: "the iteration limit was reached", 2: "no step gains any more"}


class SweptObjective(Protocol):
    """An objective that can also be raised by coordinate steps."""

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient."""

    def sweep(self, vector: np.ndarray) -> np.ndarray:
        """Parameters of at least the same value."""


class Run:
    """One maximisation: the bound after each iteration, whether it converged and why it stopped.

    :param max_iterations: of L-BFGS.
    :param tolerance: a gain in nats, over ten iterations or a sweep, that counts as none.
    :param bar: a tqdm progress bar.
    """

    def __init__(self, max_iterations: int, tolerance: float, bar: Any) -> None:
        self._max_iterations, self._tolerance, self._bar = max_iterations, tolerance, bar
        self._best, self._beat = np.zeros(0), -np.inf
        self.trace: list[float] = []
        self.converged, self.reason = False, REASONS[1]

    def fresh(self) -> Run:
        """Another one with the same limits and progress bar."""
        return Run(self._max_iterations, self._tolerance, self._bar)

    def warn_unless_converged(self, owner: str) -> None:
        """A warning of a public function to its caller, if it ended neither by itself nor by the user."""
        if not self.converged and self.reason != INTERRUPTED:
            message = f"{owner} has not converged: {self.reason}. Raise `max_iterations` or `tolerance`."
            checks.warn(message)

    def settle(self, objective: SweptObjective, start: np.ndarray, beat: float = -np.inf) -> np.ndarray:
        """L-BFGS and coordinate sweeps in turn, until a sweep gains less than the tolerance.

        Given up, not converged, where the bound is not going to ``beat`` another one.
        """
        self._best, self._beat = start, beat
        share = EARLY
        while self.reason != INTERRUPTED:
            self.maximise(objective, self._best, share)
            if self.reason == INTERRUPTED or len(self.trace) > self._max_iterations:
                break
            if self._hopeless():
                self.converged, self.reason = False, "another start is better"
                break
            before = self.trace[-1]
            self.interruptible(lambda: self._note(objective, objective.sweep(self._best)))
            self.converged = self.reason != INTERRUPTED and self.trace[-1] - before < self._tolerance
            if self.converged and share == 0:
                self.reason = SETTLED
                break
            share = 0.0 if self.converged else EARLY
        return self._best

    def maximise(
        self, objective: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray, share: float = 0.0
    ) -> np.ndarray:
        """The parameters that L-BFGS reaches from a start.

        :param share: stop early, where ten iterations gain less than this share of what all did.
        """
        first = len(self.trace)

        def negative(vector: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = objective(vector)
            return -value, -gradient

        def after(intermediate_result: Any) -> None:
            self._record(intermediate_result.x.copy(), -float(intermediate_result.fun))
            least = max(self._tolerance, share * (self.trace[-1] - self.trace[first]))
            if len(self.trace) - first > WINDOW and (self._gained() < least or self._hopeless()):
                raise StopIteration

        def ascend() -> None:
            self._note(objective, start)
            limit = max(1, self._max_iterations - first)
            options = {"maxiter": limit, "maxfun": 100 * limit, "maxcor": MEMORY, "ftol": 0.0, "gtol": 0.0}
            end = minimize(negative, start, jac=True, method="L-BFGS-B", callback=after, options=options)
            self.converged, self.reason = end.status not in REASONS, REASONS.get(end.status, SETTLED)

        self.interruptible(ascend)
        return self._best

    def _gained(self) -> float:
        return self.trace[-1] - self.trace[-1 - WINDOW]

    def _hopeless(self) -> bool:
        return len(self.trace) > WINDOW and self.trace[-1] + HOPE * self._gained() < self._beat

    def interruptible(self, action: Callable[[], T]) -> T | None:
        """What an action returns, or nothing if it is interrupted after something has been reached."""
        try:
            return action()
        except KeyboardInterrupt:
            if not self.trace:
                raise
            self.converged, self.reason = False, INTERRUPTED
            return None

    def _note(self, objective: Callable[[np.ndarray], tuple[float, np.ndarray]], vector: np.ndarray) -> None:
        self._record(vector, objective(vector)[0])

    def _record(self, vector: np.ndarray, value: float) -> None:
        self.trace.append(value)
        self._best = vector
        self._bar.update()
        self._bar.set_postfix_str(f"{value:.4f}", refresh=False)
