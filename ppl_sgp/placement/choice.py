"""Which of the bases that were tried is taken, and why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .candidates import GRID, Candidate, merit

#: What free lengthscales may cost: nats a row of what is predicted; of the evidence nats a row, and nats at least.
WORTH, WORTH_EVIDENCE, WORTH_NATS = 0.01, 0.002, 1.0
#: Variance that f lacks, over that of the noise, from which there is a remark.
REMARKABLE = 0.05


def choice(tried: Sequence[Candidate], num_learned: int) -> tuple[int, tuple[str, ...]]:
    """The number of the candidate that is taken, and the reasons in words.

    If there is one that costs next to nothing against those with frozen lengthscales, the smallest with free ones:
    uncertainty about them is then part of the posterior. Otherwise the best of what it predicts.

    :param num_learned: rows that the evidence is of.
    """
    possible = [index for index, each in enumerate(tried) if each.make is not None]
    frozen = max((index for index in possible if not tried[index].free), key=lambda index: _credit(tried[index]))
    free = [index for index in possible if tried[index].free and _worth(tried[index], tried[frozen], num_learned)]
    best = min(free, key=lambda index: tried[index].num_features) if free else frozen
    named = f"{tried[best].name} with {tried[best].num_features:,} features"
    reasons = [f"{named} is the best of these."]
    if free:
        loss = f"{merit(tried[frozen]) - merit(tried[best]):.2g} nats a row against {tried[frozen].name}"
        reasons = [f"{named} leaves lengthscales free, and costs {loss}."]
    chosen = tried[best]
    if not chosen.free:
        reasons.append("Its lengthscales are frozen at those that were found; amplitude and any noise are sampled.")
    if chosen.lost > REMARKABLE:
        reasons.append(
            f"What the features lack of the kernel has {chosen.lost:.2g} times the variance of the noise at new rows: "
            f"more of them would help (`num_features`, here {chosen.num_features:,})."
        )
    return best, tuple(reasons)


def _credit(candidate: Candidate) -> float:
    """Its merit; of a grid, beyond which features vanish, less what is not worth that."""
    return merit(candidate) - WORTH * (candidate.name == GRID)


def _worth(free: Candidate, best: Candidate, num_learned: int) -> bool:
    nats = max(WORTH_NATS, WORTH_EVIDENCE * num_learned)
    loss = merit(best) - merit(free)
    held_out = np.isfinite(best.score.log_density)
    return loss <= (WORTH if held_out else nats) and best.score.log_evidence - free.score.log_evidence <= nats
