"""Hyperparameters improved on all rows: a few steps of the bound of Titsias, through points that stay where they are.

Where the points lack much of the variance of f, the bound prefers lengthscales that are too long and too much noise,
further from those of the data than what some rows say (kin40k: 0.29 nats a row before, 0.10 after). So there it is left
out, and what it finds is kept only if held-out rows gain.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..evidence import inducing
from ..evidence.inducing_parts import Parts
from ..kernels import Kernel
from ..statistics.kept_rows import Rows
from .candidates import greedy_points, ratio_of, score_at_points
from .hyperparameters import Hyperparameters, density, maximum
from .prior import LogPrior
from .score import Sample

#: Iterations of L-BFGS, and the noise at which they start, whichever is best: the points leave more to it.
ITERATIONS, NOISIER = 12, np.log([1, 2, 4])
#: How far hyperparameters may move, in logarithms: further off, the bound is another one.
NEAR = np.log(5.0)
#: Variance that the points lack, over that of the noise, up to which the bound is near the evidence: half of it is what
#: the bound loses by it, in nats a row.
TIGHT = 0.1
#: Nats a row of held-out rows that are worth other hyperparameters.
WORTH = 1e-3


def refine(
    key: jax.Array, rows: Rows, hyper: Hyperparameters, prior: LogPrior, count: int, sample: Sample
) -> tuple[Hyperparameters, str]:
    """Hyperparameters after some steps on all rows if these are better, and in words what was done.

    O(n m²) a step, some twenty of them. Interrupted, what was there before, not complete.

    :param rows: all rows, with a y of mean about zero.
    :param hyper: what the exact GP found on some of them.
    :param count: m, the number of points, which are chosen greedily.
    """
    points = greedy_points(key, rows.X, hyper.unit_kernel(), count)
    through = f"by the bound through {len(points)} points"
    before, lost = score_at_points(hyper.unit_kernel(), points, sample, ratio_of(hyper))
    if not lost <= TIGHT:
        return hyper, f"Not refined on all rows: {len(points)} points lack {lost:.2g} times the variance of the noise."
    found = _steps(rows, hyper, prior, points)
    if found is None:
        return hyper, ""
    if not found.complete:
        return hyper._replace(complete=False), ""
    after, _ = score_at_points(found.unit_kernel(), points, sample, ratio_of(found))
    gain = after.log_density - before.log_density
    if not gain > WORTH:
        return hyper, f"Not refined on all rows: {through}, held-out rows would gain {gain:.2g} nats each."
    return found, f"Refined on all rows: {through}, held-out rows gain {gain:.2g} nats each."


def _steps(rows: Rows, hyper: Hyperparameters, prior: LogPrior, points: np.ndarray) -> Hyperparameters | None:
    """Where L-BFGS ends; ``None`` if the bound is not finite."""
    theta = np.concatenate([hyper.lengthscale, [hyper.amplitude, hyper.noise_scale]])
    start = np.log(theta) - prior.centre
    of_noise = np.arange(len(start)) == len(start) - 1
    starts = [start + step * of_noise for step in NOISIER]
    with jax.enable_x64(True):
        data = jax.device_put((inducing.parts_with(rows, len(points), None), points, rows.y))
        values = [float(density(_bound, hyper.family, data, prior.centre, prior.spread, each)[0]) for each in starts]
        if not np.isfinite(values).any():
            return None
        first = starts[int(np.nanargmax(values))]
        best = maximum(_bound, data, hyper.family, prior, [first], ITERATIONS, near=(start, NEAR))
    found = best.hyperparameters(hyper.family, prior, rows.num_rows)
    return found._replace(found_by=f"Bound through {len(points)} points")


def _bound(data: tuple[Parts, jax.Array, jax.Array], kernel: Kernel, noise_scale: Any) -> jax.Array:
    parts, points, y = data
    return inducing.evaluate("vfe", parts, kernel, points, noise_scale, y)
