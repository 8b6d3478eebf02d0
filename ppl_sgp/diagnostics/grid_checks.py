"""Whether the estimate of a grid's log-determinant bends the posterior that was sampled with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ..grids import evaluate
from ..grids.grid import Grid
from ..posteriors.posterior import Posterior
from ..posteriors.site_draws import GridParameters
from .finding import Finding

#: Draws at which the evidence is found again, with other probes.
DRAWS = 10
#: Standard deviation, between draws, of what other probes change, in nats: it stands for an error of the log density.
MOST_NATS = 0.5


def grid_findings(posterior: Posterior) -> Iterator[Finding]:
    """Whether other probes, at some of the draws, give another log density than a constant apart. Two evidences each.

    An error that all draws share changes nothing; one that differs between them is an error of their weights.
    """
    grid, parameters = posterior.data, posterior.spaced(DRAWS).parameters()
    assert isinstance(grid, Grid) and isinstance(parameters, GridParameters)
    solver = parameters.solver
    how = solver.plan(grid)[1]
    if how == "nystrom":
        yield Finding(
            "biased log-determinant",
            "The draws are of the Nyström form of the log-determinant, which is biased and no bound.",
            "Sample with `sgp.GridSolver(log_determinant='lanczos')`, which is unbiased, or up to some thousand gaps "
            "'exact'.",
        )
    if how != "lanczos" or posterior.num_draws < 2:
        return
    others = dataclasses.replace(solver, seed=solver.seed + 1)
    first, second = (_evidences(grid, parameters, each) for each in (solver, others))
    # Two estimates are √2 times as far from each other as one from the truth.
    spread = float(np.std(first - second, ddof=1)) / np.sqrt(2)
    if spread > MOST_NATS:
        yield Finding(
            "too few probes",
            f"The log-determinant is estimated, and with other probes the log densities of {len(first)} draws change "
            f"by {spread:.1f} nats more or less than on average (at most {MOST_NATS:g}): the posterior follows the "
            "probes.",
            f"Sample with `sgp.GridSolver(num_probes={4 * solver.num_probes})`, whose error is half as large; where "
            "gaps come in large holes also more `lanczos_steps`; up to some thousand gaps `log_determinant='exact'`.",
        )


def _evidences(grid: Grid, parameters: GridParameters, solver: Any) -> np.ndarray:
    def of_draw(each: GridParameters) -> jax.Array:
        scales = each.noise_scale, grid.values, each.feature_scale
        return evaluate.evaluate(grid, each.kernels, *scales, solver).value

    return np.asarray(jax.lax.map(of_draw, parameters))
