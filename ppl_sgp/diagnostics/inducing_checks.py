"""Whether inducing points are enough for the rows, at hyperparameters in the middle of a posterior."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from ..evidence import inducing
from ..posteriors.site_draws import InducingParameters
from ..statistics.kept_rows import ChunkedRows, Rows
from .finding import Finding
from .kernel_checks import MOST_NATS, MOST_NATS_A_ROW


def point_findings(rows: Rows | ChunkedRows, parameters: InducingParameters) -> Iterator[Finding]:
    """Whether the evidence of the exact GP is known well enough at the medians of parameters stacked over draws.

    It lies between the bound of Titsias and that from above: what it may exceed the former by is what the points may
    lose. O(n m²), once.
    """
    middle = jax.tree.map(lambda leaf: jnp.median(leaf, axis=0), parameters)
    bounds = _bounds(rows, middle)
    gap = float(bounds[1] - bounds[0])
    if not gap > MOST_NATS + MOST_NATS_A_ROW * rows.num_rows:
        return
    yield Finding(
        "too few inducing points",
        f"At the medians of the draws the {len(middle.Z)} points lose up to {gap:.0f} nats against an exact GP "
        f"(the bound from above less that from below, of {rows.num_rows} rows): what they cannot follow counts as "
        "noise, or as long lengthscales.",
        "Take more points, placed for these hyperparameters: `sgp.fit_inducing(key, rows, kernel, num_points)`, or "
        "`sgp.select_inducing_points` with their kernel. Up to a few thousand rows an exact GP "
        "(`sgp.models.exact_gp`) loses nothing.",
    )


@jax.jit
def _bounds(rows: Rows | ChunkedRows, parameters: InducingParameters) -> tuple[jax.Array, jax.Array]:
    parts = inducing.parts_with(rows, len(parameters.Z), None)
    arguments = (parts, parameters.kernel, parameters.Z, jnp.asarray(parameters.noise_scale).reshape(()))
    values = jnp.asarray(rows.values).reshape(-1)
    lower, upper = (inducing.evaluate(method, *arguments, values) for method in ("vfe", "upper"))
    return lower, upper
