"""Whether inducing points are enough for the rows, at hyperparameters in the middle of a posterior.

What the bound of Titsias lacks of the exact evidence is at most

    ½ [ dᵀ(K − Q)d + tr Ω(K − Q)/σ² ],  d = (Q + σ²Ω⁻¹)⁻¹y,

since ``log|K + σ²Ω⁻¹| ≥ log|Q + σ²Ω⁻¹|`` and ``yᵀ(K + σ²Ω⁻¹)⁻¹y ≥ 2dᵀy − dᵀ(K + σ²Ω⁻¹)d`` for any d (Artemev, Burt and
van der Wilk 2021). Where little is lost that is tight, while the bound from above of O(n m²), which knows the trace of
K − Q alone, grows with n; where much is lost the latter may be less.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from ..evidence import inducing
from ..evidence.inducing_posterior import PointFactors, features, posterior_factors
from ..posteriors.mixture import row_blocks
from ..posteriors.observed_data import rows_in_memory
from ..posteriors.site_draws import InducingParameters
from ..statistics.kept_rows import ChunkedRows, Rows
from .finding import Finding
from .kernel_checks import MOST_NATS, MOST_NATS_A_ROW

#: Rows that are looked at, at most, and inputs of pairs of them at a time.
ROWS, PAIRS = 4000, 2**22


def point_findings(rows: Rows | ChunkedRows, parameters: InducingParameters) -> Iterator[Finding]:
    """Whether points lose much at the medians of parameters stacked over draws. O(n² + n m²), once, for some rows."""
    middle = jax.tree.map(lambda leaf: jnp.median(leaf, axis=0), parameters)
    some = _some(rows)
    lost = most_lost(some, middle)
    if not lost > MOST_NATS + MOST_NATS_A_ROW * some.num_rows:
        return
    yield Finding(
        "too few inducing points",
        f"At the medians of the draws the {len(middle.Z)} points lose up to {lost:.0f} nats against an exact GP of "
        f"{some.num_rows} of the rows: what they cannot follow counts as noise, or as long lengthscales.",
        "Take more points, placed for these hyperparameters: `sgp.fit_inducing(key, rows, kernel, num_points)`, or "
        "`sgp.select_inducing_points` with their kernel. Up to a few thousand rows an exact GP "
        "(`sgp.models.exact_gp`) loses nothing.",
    )


def _some(rows: Rows | ChunkedRows) -> Rows:
    """Random rows, if there are many."""
    if rows.num_rows <= ROWS:
        return rows_in_memory(rows)
    chosen = np.sort(np.random.default_rng(0).choice(rows.num_rows, ROWS, replace=False))
    X = rows.inputs.at(chosen) if isinstance(rows, ChunkedRows) else rows.X[chosen]
    return Rows(X, rows.y[chosen], None if rows.row_weights is None else rows.row_weights[chosen])


def most_lost(rows: Rows, parameters: InducingParameters) -> float:
    """A bound on what VFE lacks of the exact evidence of one output, in nats, at the parameters of one draw."""
    each = _factors(rows, parameters)
    y, weights = np.asarray(rows.values).reshape(-1), np.asarray(rows.weights)
    dual, trace, product = np.empty(len(y)), 0.0, 0.0
    blocks = list(row_blocks(len(y), max(1, PAIRS // (len(y) * rows.input_dim))))
    for block in blocks:
        dual[block], lacking = _dual(each, rows.X[block], y[block], weights[block])
        trace += float(np.sum(weights[block] * lacking))
    for block in blocks:
        product += float(_product(each, rows.X[block], rows.X, dual[block], dual))
    # Vd is the mean of the weights.
    quadratic = product - float(np.sum(np.asarray(each.loc) ** 2))
    by_dual = 0.5 * (max(quadratic, 0.0) + trace / float(each.noise_scale[0]) ** 2)
    return min(by_dual, float(_gap(rows, parameters)))


@jax.jit
def _factors(rows: Rows, parameters: InducingParameters) -> PointFactors:
    parts = inducing.parts_with(rows, len(parameters.Z), None)
    noise_scale = jnp.asarray(parameters.noise_scale).reshape(())
    return posterior_factors("dtc", parts, parameters.kernel, parameters.Z, noise_scale, rows.values)


@jax.jit
def _gap(rows: Rows, parameters: InducingParameters) -> jax.Array:
    """The bound of Titsias from above less that from below."""
    arguments = (inducing.parts_with(rows, len(parameters.Z), None), parameters.kernel, parameters.Z)
    values, noise_scale = jnp.asarray(rows.values).reshape(-1), jnp.asarray(parameters.noise_scale).reshape(())
    density, upper, trace_term = inducing.white_noise_terms(*arguments, noise_scale, values)
    return upper - density - trace_term


@jax.jit
def _dual(each: PointFactors, X: jax.Array, y: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """d at some rows, and the variances that the points lack there."""
    V, lacking = features(each.parameters, X)
    return weights * (y - each.loc[0] @ V) / each.noise_scale[0] ** 2, lacking


@jax.jit
def _product(each: PointFactors, X: jax.Array, all_X: jax.Array, dual: jax.Array, all_dual: jax.Array) -> jax.Array:
    return dual @ (each.parameters.kernel(X, all_X) @ all_dual)
