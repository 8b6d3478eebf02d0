"""Where the points of SWSGP lie, and what their values begin at."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular

from .._internal import checks
from .._internal.clusters import cluster
from .._internal.random import host_generator
from ..placement.subset import distinct_rows
from .batches import Batch, RowBatches
from .gaussian import GaussianNoise
from .neighbour_terms import factor
from .neighbours import Neighbours
from .swsgp_step import NeighbourProblem

#: Points up to which they are centres of clusters; neighbours that deviations are given, and rows that means are of.
CLUSTERED, LOOKED_UP, AROUND = 2000, 16, 32


def first_points(
    key: jax.Array, batches: RowBatches, X: np.ndarray, points: Any, num_points: int, owner: str
) -> np.ndarray:
    """Points that were given, else centres of clusters, or where they are many, distinct rows at random, (m, d)."""
    if points is not None:
        points = checks.finite_inputs(points, None, owner, "points")
        if points.shape[1] != X.shape[1]:
            raise ValueError(
                f"{owner}: `points` must have shape (m, {X.shape[1]}), in the space of the inputs; got {points.shape}."
            )
        return points
    rng = host_generator(key, owner, 3)
    if num_points <= CLUSTERED:
        found = cluster(X, num_points, rng)[0]
    else:
        rows = np.asarray(batches.some(key, min(batches.num_rows, 4 * num_points)).X, np.float64)
        found = distinct_rows(rng, rows, num_points, len(rows))
    if len(found) < num_points:
        raise ValueError(
            f"{owner}: `num_points` is {num_points}, but only {len(found)} distinct rows were found to choose from. "
            "Take fewer, or pass `points`."
        )
    return found


def first_values(problem: NeighbourProblem, z: np.ndarray, rows: Batch, covariance: str) -> dict[str, jax.Array]:
    """Values in units of the amplitude: means predicted from the rows around, deviations given neighbours.

    Means are those of GPs of a few rows next to each point; what outcomes suggest for predictors has noise, that of
    Gaussian outcomes, else half of the amplitude. Deviations are those of ``u_j`` given the points next to it: with any
    more its divergence from the prior is large.
    """
    kernel, Z = problem.coordinates.unit_kernel(z), np.asarray(problem.points)
    m, K, dtype = len(Z), len(problem.level), jnp.result_type(float)
    with jax.enable_x64(True):
        start = np.asarray(problem.likelihood.start(np.asarray(rows.y, np.float64))).reshape(len(rows.y), K)
    noise = 0.5 * float(problem.unit)
    if isinstance(problem.likelihood, GaussianNoise):
        parameters = np.asarray(problem.coordinates.parameters(z))
        noise = float(np.exp(np.asarray(problem.likelihood.logarithms(parameters, dtype)[0])))
    towards, X = (start - problem.level).astype(dtype), np.asarray(rows.X, dtype)
    around = Neighbours(kernel, X, min(AROUND, len(X)), problem.nearest).of(Z)
    parts = np.array_split(np.arange(m), -(-m // 4096))
    found = [_predicted(problem, z, noise, Z[i].astype(dtype), X[around[i]], towards[around[i]]) for i in parts]
    loc = np.concatenate(found) / float(problem.unit)
    near = Neighbours(kernel, Z, min(LOOKED_UP, problem.num_neighbours), problem.nearest).of(Z)
    # The point itself first, also among equal ones.
    others = np.where(near == np.arange(m)[:, None], near[:, :1], near)
    near = np.concatenate([np.arange(m)[:, None], others[:, 1:]], axis=1)
    deviation = np.concatenate(
        [_deviations(problem, z, Z[part].astype(dtype)) for part in np.array_split(near, -(-m // 4096))]
    )
    scale = np.broadcast_to(deviation[:, None] / float(problem.unit), (m, K))
    if covariance == "diagonal":
        return {"loc": jnp.asarray(loc, dtype), "log_scale": jnp.asarray(np.log(scale), dtype)}
    return {"loc": jnp.asarray(loc, dtype), "triangle": jnp.asarray(scale[:, :, None] * np.eye(m)[:, None], dtype)}


@jax.jit
def _predicted(problem: NeighbourProblem, z: Any, noise: Any, Z: Any, X: Any, y: Any) -> jax.Array:
    """Means at points (k, d) of GPs of rows (k, r, d) with outcomes (k, r, K), (k, K)."""
    kernel = problem.coordinates.kernel(z)

    def one(point: jax.Array, X: jax.Array, y: jax.Array) -> jax.Array:
        covariance = kernel(X) + noise**2 * jnp.eye(len(X), dtype=X.dtype)
        return kernel(point[None], X)[0] @ cho_solve((jnp.linalg.cholesky(covariance), True), y)

    return jax.vmap(one)(jnp.asarray(Z), jnp.asarray(X), jnp.asarray(y))


@jax.jit
def _deviations(problem: NeighbourProblem, z: Any, Z: Any) -> jax.Array:
    """Standard deviations of the first of some points (k, r, d) given the others, (k,): of the first row of K⁻¹."""
    kernel = problem.coordinates.kernel(z)

    def one(Z: jax.Array) -> jax.Array:
        C = factor(kernel, Z, jnp.ones(len(Z), bool))
        first = solve_triangular(C, jnp.zeros(len(Z), Z.dtype).at[0].set(1), lower=True)
        return jax.lax.rsqrt(jnp.sum(first**2))

    return jax.vmap(one)(jnp.asarray(Z))
