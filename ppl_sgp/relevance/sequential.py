"""Evidence maximisation one feature at a time: Tipping & Faul (2003), from sums over rows alone.

With ``C₋ᵢ`` the covariance of y without feature i, ``sᵢ = φᵢᵀC₋ᵢ⁻¹φᵢ`` and ``qᵢ = φᵢᵀC₋ᵢ⁻¹y``, the evidence as a
function of αᵢ alone has its maximum at ``αᵢ = sᵢ²/(qᵢ² − sᵢ)``, or at infinity if qᵢ² ≤ sᵢ. Each iteration takes the
addition or deletion that gains most; a feature that gains less than the tolerance goes. Re-estimation is not an action
of its own: one at a time, precisions of correlated features creep (10,000 actions did not settle 691 rows of energy),
so every few actions those of all active features, and the noise, are maximised together. ``Sᵢ = φᵢᵀC⁻¹φᵢ`` and
``Qᵢ = φᵢᵀC⁻¹y`` are kept for all m features and updated by rank one: O(m·k) an iteration with k active features,
independent of n.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from .problem import NOISE_FLOOR, Outcome, Problem

#: Precisions and noise are settled together, and rounding of the updates removed, after as many iterations, or k/4 if
#: that is more, in as many steps.
REFRESH, STEPS = 20, 20
#: How far a logarithm may move in those steps.
REACH = 10.0
#: A feature of which less than this share (of its norm², or of its precision) is left outside the active ones is in
#: their span, to rounding.
RESOLVED = 1e-9
#: Correlation from which a feature is a copy of an active one (or that feature itself), which re-estimating replaces.
COPY = 1 - 1e-9
#: A noise variance that stays below the first number for so many settlements in turn will not rise again, and the
#: evidence grows without end.
NEAR_FLOOR, PATIENCE = 100 * NOISE_FLOOR, 5
INTERPOLATES = "the fit interpolates y: the noise is at its floor"
#: Features to start from, and their precision, of those with which together they explain y. Where the scheme ends is a
#: matter of chance otherwise; none of the starts like this was always best.
FIRST, WIDE = 5, 0.01


class _Active:
    """The active set with S and Q for all features."""

    def __init__(self, problem: Problem, indices: np.ndarray, precision: np.ndarray, noise_variance: float) -> None:
        self.problem, self.noise_variance = problem, noise_variance
        self.indices, self.precision = indices, precision
        self.refresh()

    def refresh(self) -> None:
        """Everything from the active set and its precisions. O(m k²)."""
        beta = 1 / self.noise_variance
        self.rows = self.problem.gram[self.indices]
        self.copies = np.sum(np.abs(self.rows) > COPY, axis=0)  # how many active features each one is a copy of
        rows = self.problem.active(self.indices)
        solved = rows.posterior(self.precision, self.noise_variance)
        self.mean, self.log_evidence = solved.mean, rows.log_evidence(solved, self.noise_variance)
        self.covariance = solved.inverse_factor @ solved.inverse_factor.T
        half = solved.inverse_factor.T @ self.rows
        self.S = beta * np.diag(self.problem.gram) - beta**2 * np.sum(half**2, axis=0)
        self.Q = beta * (self.problem.projection - self.mean @ self.rows)

    def add(self, i: int, precision: float) -> None:
        """Tipping & Faul (2003), appendix A.1."""
        beta = 1 / self.noise_variance
        variance = 1 / (precision + self.S[i])
        mean = variance * self.Q[i]
        spread = beta * self.covariance @ self.rows[:, i]
        e = beta * (self.problem.gram[i] - spread @ self.rows)
        self.S = self.S - variance * e**2
        self.Q = self.Q - mean * e
        corner = -variance * spread[:, None]
        self.covariance = np.block([[self.covariance - corner * spread, corner], [corner.T, np.array([[variance]])]])
        self.mean = np.append(self.mean - mean * spread, mean)
        self.rows = np.vstack([self.rows, self.problem.gram[i]])
        self.copies = self.copies + (np.abs(self.problem.gram[i]) > COPY)
        self.indices, self.precision = np.append(self.indices, i), np.append(self.precision, precision)

    def delete(self, j: int) -> None:
        """Drop the feature at position j: appendix A.3."""
        column = self.covariance[:, j] / self.covariance[j, j]
        e = (self.covariance[:, j] @ self.rows) / self.noise_variance
        self.S = self.S + e**2 / self.covariance[j, j]
        self.Q = self.Q + self.mean[j] / self.covariance[j, j] * e
        self.copies = self.copies - (np.abs(self.rows[j]) > COPY)
        kept = np.arange(len(self.indices)) != j
        self.mean = (self.mean - self.mean[j] * column)[kept]
        self.covariance = (self.covariance - np.outer(column, self.covariance[j]))[np.ix_(kept, kept)]
        self.rows, self.indices, self.precision = self.rows[kept], self.indices[kept], self.precision[kept]

    def best_action(self) -> tuple[float, int, float]:
        """(gain in nats, feature, its new precision), eqs 27-37; an infinite precision deletes an active feature."""
        new = (self.S > RESOLVED / self.noise_variance) & (self.copies == 0)
        candidates = np.flatnonzero(new & (self.Q**2 > self.S))
        addition, deletion = (-np.inf, -1, np.inf), self.cheapest_deletion()
        if len(candidates):
            s, square = self.S[candidates], self.Q[candidates] ** 2
            gain = 0.5 * (square / s - 1 - np.log(square / s))
            best = int(np.argmax(gain))
            precision = float(s[best] ** 2 / (square[best] - s[best]))
            addition = (float(gain[best]), int(candidates[best]), precision)
        return max(addition, deletion)

    def cheapest_deletion(self) -> tuple[float, int, float]:
        """(gain in nats, feature, infinity) of the deletion that loses least."""
        if not len(self.indices):
            return -np.inf, -1, np.inf
        variance = np.diag(self.covariance)
        s, q = np.maximum(1 / variance - self.precision, 0), self.mean / variance
        loss = 0.5 * (q**2 / (self.precision + s) - np.log1p(s / self.precision))
        j = int(np.argmin(loss))
        return -float(loss[j]), int(self.indices[j]), np.inf

    def apply(self, feature: int, precision: float) -> None:
        """Add or delete."""
        position = np.flatnonzero(self.indices == feature)
        if len(position):
            self.delete(int(position[0]))
        else:
            self.add(feature, precision)

    def settle(self) -> float:
        """Maximise over the precisions of the active features and the noise together; the gain in nats. O(k³) a step.

        One at a time they creep where features are correlated.
        """
        k, rows = len(self.indices), self.problem.active(self.indices)
        before = rows.posterior(self.precision, self.noise_variance)

        def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
            precision, noise_variance = np.exp(x[:k]), np.exp(x[k])
            solved = rows.posterior(precision, noise_variance)
            determined = 1 - precision * solved.variances
            slope = 0.5 * (determined - precision * solved.mean**2)
            of_noise = 0.5 * (solved.residual / noise_variance - self.problem.num_rows + determined.sum())
            return -solved.log_evidence, -np.append(slope, of_noise)

        start = np.log(np.append(self.precision, self.noise_variance))
        lower, upper = start - REACH, start + REACH
        lower[k] = max(lower[k], np.log(NOISE_FLOOR))
        options = {"maxiter": STEPS, "ftol": 0.0, "gtol": 0.0}
        bounds = list(zip(lower, upper, strict=True))
        end = minimize(negative, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        gain = -float(end.fun) - before.log_evidence
        if gain > 0:
            self.precision = np.exp(end.x[:k])
            at_floor = end.x[k] <= np.log(NOISE_FLOOR)
            self.noise_variance = NOISE_FLOOR if at_floor else float(np.exp(end.x[k]))
        self.refresh()
        return max(gain, 0.0)


def sequential(
    problem: Problem,
    max_iterations: int,
    tolerance: float,
    tick: Callable[[float, int], None],
    start: Outcome | None = None,
) -> Outcome:
    """Run until no action gains ``tolerance`` nats and the noise has settled."""
    state = (*_first(problem), 0.1) if start is None else start[:3]
    active, trace = _Active(problem, *state), [] if start is None else list(start.trace)
    since, reason, iterations, converged, floored = 0, "the iteration limit was reached", 0, False, 0
    try:
        while iterations < max_iterations:
            iterations += 1
            gain, feature, precision = active.best_action()
            if gain < tolerance:  # nor is a feature kept for less
                gain, feature, precision = active.cheapest_deletion()
            settled = gain < -tolerance
            if not settled:
                active.apply(feature, precision)
                since += 1
            if settled or since >= max(REFRESH, len(active.indices) // 4):
                gained, since = active.settle(), 0
                trace.append(active.log_evidence)
                tick(active.log_evidence, len(active.indices))
                floored = floored + 1 if active.noise_variance < NEAR_FLOOR else 0
                if floored >= PATIENCE:
                    reason = INTERPOLATES
                    break
                if settled and gained < tolerance:
                    reason, converged = "no action gains more than the tolerance", True
                    break
    except KeyboardInterrupt:
        reason = "interrupted"
    if not converged:
        active.refresh()
        trace.append(active.log_evidence)
    elif active.noise_variance <= NOISE_FLOOR:
        reason = INTERPOLATES
    return Outcome(active.indices, active.precision, active.noise_variance, trace, iterations, converged, reason)


def _first(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Features to start from, by forward selection with least squares, and small precisions for them. O(m).

    From none at all the scheme would end there if features are of use in pairs only: nearly constant ones, say.
    """
    size = np.diag(problem.gram)
    left, correlation = size.copy(), problem.projection.copy()
    factor = np.zeros((len(size), FIRST))
    chosen: list[int] = []
    for j in range(FIRST):
        gain = np.where(left > RESOLVED * size, correlation**2 / np.where(left > 0, left, 1), 0.0)
        gain[chosen] = 0.0
        i = int(np.argmax(gain))
        if not gain[i] > 0:
            break
        factor[:, j] = (problem.gram[:, i] - factor[:, :j] @ factor[i, :j]) / np.sqrt(left[i])
        correlation = correlation - factor[:, j] * correlation[i] / np.sqrt(left[i])
        left = left - factor[:, j] ** 2
        chosen.append(i)
    return np.array(chosen, dtype=int), np.full(len(chosen), WIDE * len(chosen) / problem.num_rows)
