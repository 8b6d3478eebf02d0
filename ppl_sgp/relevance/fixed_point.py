"""Evidence maximisation over all features at once, pruning those whose precision diverges.

``γᵢ = 1 − αᵢΣᵢᵢ``, then ``αᵢ = γᵢ/μᵢ²`` (MacKay's fixed point; Tipping 2001, eqs 16-18). O(k³) a sweep for k
features that are left. Of features that are nearly alike the sweeps keep several, so the sequential scheme goes on
from their end: what is returned is a maximum in each feature too. Expectation-maximisation, ``αᵢ = 1/(μᵢ² + Σᵢᵢ)``,
has the same fixed points, takes ten times the sweeps, and prunes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .problem import NOISE_FLOOR, Outcome, Problem
from .sequential import sequential

#: A feature is pruned when its prior variance is below this share of the variance of its least-squares weight.
NEGLIGIBLE = 1e-8


def fixed_point(problem: Problem, max_iterations: int, tolerance: float, tick: Callable[[float, int], None]) -> Outcome:
    """Sweep until the evidence moves by less than ``tolerance`` nats and nothing is pruned, then feature by feature."""
    active = np.flatnonzero(np.diag(problem.gram) > 0)
    noise_variance = 0.1
    # Together the weights explain y.
    precision = np.full(len(active), len(active) / problem.num_rows)
    trace: list[float] = []
    reason, iterations, settled = "the iteration limit was reached", 0, False
    try:
        while not settled and iterations < max_iterations:
            iterations += 1
            rows = problem.active(active)
            solved = rows.posterior(precision, noise_variance)
            trace.append(rows.log_evidence(solved, noise_variance))
            tick(trace[-1], len(active))
            determined = 1 - precision * solved.variances
            square = np.maximum(solved.mean**2, np.finfo(np.float64).tiny)
            # A feature that the data say nothing about, to rounding, goes as well.
            precision = np.where(determined > 0, determined / square, np.inf)
            freedom = problem.num_rows - np.sum(determined)
            noise_variance = max(solved.residual / freedom, NOISE_FLOOR) if freedom > 0 else NOISE_FLOOR
            kept = precision * noise_variance < 1 / NEGLIGIBLE
            settled = len(trace) > 1 and abs(trace[-1] - trace[-2]) < tolerance and bool(kept.all())
            active, precision = active[kept], precision[kept]
    except KeyboardInterrupt:
        reason = "interrupted"
    end = Outcome(active, precision, noise_variance, trace, iterations, False, reason)
    if not settled:
        return end
    finished = sequential(problem, max_iterations, tolerance, tick, end)
    return finished._replace(iterations=iterations + finished.iterations)
