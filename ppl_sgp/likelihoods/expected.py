"""Averages of log densities and their derivatives over normal predictors.

With one predictor a row, ``η ~ N(m, s²)``, by Gauss-Hermite quadrature. With K, over evenly spread points that have the
mean and the covariance of the normal exactly, all of one weight, so that averaged curvatures are positive semi-definite
where curvatures are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm, qmc

#: Nodes for one predictor; points for several.
NODES, POINTS = 20, 64


def averaged(likelihood: Any, mean: Any, covariance: Any, y: Any, parameters: Any) -> Any:
    """Averages of :meth:`Likelihood.derivatives`, see :meth:`Likelihood.averaged`."""
    return average(likelihood, mean, covariance, lambda eta: likelihood.derivatives(eta, y, parameters))


def averaged_joint(likelihood: Any, mean: Any, covariance: Any, y: Any, parameters: Any) -> Any:
    """Averages of :meth:`Likelihood.joint_derivatives` over normal predictors, at one value of the parameters."""
    return average(likelihood, mean, covariance, lambda eta: likelihood.joint_derivatives(eta, y, parameters))


def average(likelihood: Any, mean: Any, covariance: Any, function: Callable[[jax.Array], Any]) -> Any:
    """The average of a tree of functions of the predictors.

    One node after the other: memory of the size of the rows, whatever the number of nodes.
    """
    mean = jnp.asarray(mean)
    covariance = jnp.asarray(covariance, mean.dtype)
    if likelihood.num_latents == 1:
        (nodes, weights), scale = gauss_hermite(), jnp.sqrt(covariance)

        def at(node: jax.Array) -> Any:
            return function(mean + scale * node)
    else:
        nodes, weights = spread_points(likelihood.num_latents)
        root = jnp.linalg.cholesky(covariance + _jitter(covariance))

        def at(node: jax.Array) -> Any:
            return function(mean + root @ node)

    points = jnp.asarray(nodes, mean.dtype), jnp.asarray(weights, mean.dtype)
    shapes = jax.eval_shape(at, points[0][0])
    nothing = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), shapes)

    def add(total: Any, point: Any) -> tuple[Any, None]:
        node, weight = point
        return jax.tree.map(lambda sum_, part: sum_ + weight * part, total, at(node)), None

    return jax.lax.scan(add, nothing, points)[0]


def _jitter(covariance: jax.Array) -> jax.Array:
    """A diagonal far below rounding of what matters, with which covariances of rank less than K have a factor."""
    K = covariance.shape[-1]
    size = jnp.trace(covariance, axis1=-2, axis2=-1) / K + jnp.finfo(covariance.dtype).tiny
    eye = jnp.broadcast_to(jnp.eye(K, dtype=covariance.dtype), covariance.shape)
    return 10 * K * jnp.finfo(covariance.dtype).eps * size[..., None, None] * eye


@functools.cache
def gauss_hermite(count: int = NODES) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights to average over a standard normal: exact for polynomials of degree 2·count − 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


@functools.cache
def spread_points(dimension: int, count: int = POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Points (count, dimension) of weight 1/count with mean zero, unit covariance and no odd moments."""
    half = norm.ppf(qmc.Sobol(dimension, rng=0).random(max(count, 4 * dimension) // 2))
    points = np.concatenate([half, -half])
    root = np.linalg.cholesky(points.T @ points / len(points))
    points = np.linalg.solve(root, points.T).T
    return points, np.full(len(points), 1 / len(points))
