"""How many features, and how many rows for the exact GP, a budget affords."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from .._internal import checks

#: Features at most, and products of n·m² that a pass may take, by default: about a minute on two cores.
MOST_FEATURES, PASS_WORK = 4000, 1.2e12
#: Up to so many rows all are features, and all are looked at by the exact GP; of more rows this number.
ALL_ROWS, EXACT_ROWS = 2000, 1500
#: Points of the bound that hyperparameters are refined by on all rows: at most, at least, and products of n·m² that an
#: evaluation may take by default.
MOST_POINTS, LEAST_POINTS, BOUND_WORK = 500, 100, 4e9
#: Rows over those of the exact GP from which on refinement is worth its compilation: errors of three hyperparameters of
#: 1,500 rows cost 1e-3 nats a row.
MANY_MORE = 4
#: Fewest features and rows that are worth a start.
LEAST = 16
#: Seconds that compilation and the first starts take, whatever the rows.
OVERHEAD = 15.0
#: Floating-point operations: of an evidence of k rows with its gradient over k³, times the steps of a search; of a pass
#: over n·m²; of the decompositions over m³, which are slower.
SEARCH_WORK, ROW_WORK, DECOMPOSITIONS = 600.0, 4.0, 60.0
#: Those of a refinement over n·m², and the shares of the time: for the search, the refinement and the pass.
REFINE_WORK, SHARES = 240.0, (0.4, 0.2, 0.4)
#: Matrices of the size of the features, and of the rows of the exact GP, that are there at once.
ARRAYS = 10


class Budget(NamedTuple):
    """What may be used.

    :ivar num_features: features at most, the level not counted.
    :ivar exact_rows: rows of the exact GP.
    :ivar points: inducing points of the bound on all rows; 0 where it is not affordable, or there are not many more
        rows than in the exact GP.
    """

    num_features: int
    exact_rows: int
    points: int


def affordable(n: int, num_features: Any, seconds: Any, max_memory: Any, passes: int = 1) -> Budget:
    """The budget for n rows; one that cannot be met is refused.

    :param passes: what making statistics costs, in passes of Gaussian ones.
    """
    if num_features is not None and seconds is not None:
        raise ValueError("place: pass `num_features` or `seconds`, not both: each says how large the basis may be.")
    largest = int(MOST_FEATURES / passes ** (1 / 3))  # decompositions of the size of the features are repeated as well
    most = min(n, largest, max(LEAST, int((PASS_WORK / (passes * n)) ** 0.5)))
    rows, points = n if n <= ALL_ROWS else EXACT_ROWS, int((BOUND_WORK / n) ** 0.5)
    if num_features is not None:
        most = min(n, checks.whole_number("num_features", num_features, 3, "place") - 1)
    if seconds is not None:
        checks.positive("seconds", seconds, "place")
        most, rows, points = _within_seconds(n, float(seconds), most, rows, passes)
    if max_memory is not None:
        fits = int((checks.memory_cap(max_memory, "place") / (8 * ARRAYS)) ** 0.5)
        needed = most if num_features is not None else min(n, LEAST)
        if fits < needed:
            raise ValueError(
                f"place: `max_memory` of {max_memory:.3g} bytes holds {fits} features, but {needed} are wanted: pass "
                f"at least {8 * ARRAYS * needed**2:.2g}."
            )
        most, rows, points = min(most, fits), min(rows, fits), min(points, fits)
    points = min(points, MOST_POINTS, most)
    return Budget(most, rows, points if n > MANY_MORE * rows and points >= LEAST_POINTS else 0)


def _within_seconds(n: int, seconds: float, most: int, rows: int, passes: int) -> tuple[int, int, int]:
    """Features, rows of the exact GP and points of the bound that take about so long on this machine."""
    rate = _operations_a_second()
    search, refinement, passing = (share * (seconds - OVERHEAD) * rate for share in SHARES)
    few = min(n, LEAST)
    needed = OVERHEAD + max(passes * _pass_work(n, few), SEARCH_WORK * few**3) / (rate * SHARES[0])
    if seconds < needed:
        raise ValueError(
            f"place: `seconds={seconds:g}` cannot be met: compilation, a search on {few} rows and a pass of {few} "
            f"features take about {needed:.0f} s here. Pass more, or fewer rows."
        )
    rows = min(rows, max(few, int((search / SEARCH_WORK) ** (1 / 3))))
    sizes = np.arange(few, most + 1)
    points = int((refinement / (REFINE_WORK * n)) ** 0.5)
    return int(sizes[passes * _pass_work(n, sizes) <= passing].max(initial=few)), rows, points


def _pass_work(n: int, m: Any) -> Any:
    return ROW_WORK * n * np.asarray(m, dtype=np.float64) ** 2 + DECOMPOSITIONS * np.asarray(m, dtype=np.float64) ** 3


def _operations_a_second() -> float:
    """Of products of matrices, as measured now."""
    A = np.ones((1000, 1000))
    A @ A
    started = time.perf_counter()
    A @ A
    return 2e9 / max(time.perf_counter() - started, 1e-6)
