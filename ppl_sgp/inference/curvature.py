"""Draws around a type-II point, from the curvature of the log density there: Laplace's approximation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import log_density

from .._internal.compiled import Compiled
from ..sites.tracing import constrained, unconstrained

#: Standard deviations along directions that the density says little of, on the unconstrained scale, are cut to this.
WIDEST = 1.5


def laplace_draws(
    model: Callable[..., Any], data: Any, values: dict[str, Any], rng: np.random.Generator, count: int
) -> dict[str, np.ndarray]:
    """Draws of the latent sites around a maximum of their density, normal on the unconstrained scale.

    Costs as many Hessian-vector products as there are hyperparameters, one after the other.

    :param model: a NumPyro model of one argument.
    :param data: its argument.
    :param values: the latent sites at the maximum, by name.
    :param rng: the generator of the draws.
    :param count: how many.
    :return: draws by site name, along the first axis.
    """
    z = unconstrained(model, data, values)
    flat, unravel = ravel_pytree(z)
    scales, directions = _axes(model, data, z)
    steps = (rng.standard_normal((count, len(flat))) * scales) @ directions.T
    points = jax.vmap(unravel)(flat[None, :] + jnp.asarray(steps, flat.dtype))
    return {name: np.asarray(each) for name, each in Compiled(_sites, model)(data, points).items()}


def laplace_deviations(model: Callable[..., Any], data: Any, values: dict[str, Any]) -> dict[str, np.ndarray]:
    """Standard deviations of the latent sites, in their own units, of the same approximation.

    To first order in the steps from the maximum, where it is Laplace's approximation in the sites' own units.

    :param model: a NumPyro model of one argument.
    :param data: its argument.
    :param values: the latent sites at the maximum, by name.
    """
    z = unconstrained(model, data, values)
    scales, directions = _axes(model, data, z)
    changes = Compiled(_changes, model)(data, z, (directions * scales).T)
    return {name: np.sqrt(np.sum(np.asarray(each, np.float64) ** 2, axis=0)) for name, each in changes.items()}


def laplace_covariance(model: Callable[..., Any], data: Any, values: dict[str, Any]) -> np.ndarray:
    """The covariance of the same approximation on the unconstrained scale, sites in order of their names, (D, D)."""
    scales, directions = _axes(model, data, unconstrained(model, data, values))
    return (directions * scales**2) @ directions.T


def _axes(model: Callable[..., Any], data: Any, z: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviations along the principal axes on the unconstrained scale, and these, a column each."""
    curvature = -np.asarray(Compiled(_hessian, model)(data, z), dtype=np.float64)
    precisions, directions = np.linalg.eigh(0.5 * (curvature + curvature.T))
    return np.maximum(precisions, WIDEST**-2) ** -0.5, directions


def _changes(model: Callable[..., Any], data: Any, z: dict[str, Any], steps: Any) -> dict[str, Any]:
    """Derivatives of the sites along steps on the unconstrained scale, with the steps along the first axis."""
    flat, unravel = ravel_pytree(z)

    def sites(vector: jax.Array) -> dict[str, Any]:
        return _at(model, data, unravel(vector))

    return jax.lax.map(lambda step: jax.jvp(sites, (flat,), (jnp.asarray(step, flat.dtype),))[1], steps)


def _hessian(model: Callable[..., Any], data: Any, z: dict[str, Any]) -> jax.Array:
    """The Hessian of the log density in the sites' own units at unconstrained values, a column at a time."""
    flat, unravel = ravel_pytree(z)

    def density(vector: jax.Array) -> jax.Array:
        return log_density(constrained(model, unravel(vector)), (data,), {}, {})[0]

    def column(direction: jax.Array) -> jax.Array:
        return jax.jvp(jax.grad(density), (flat,), (direction,))[1]

    return jax.lax.map(column, jnp.eye(len(flat), dtype=flat.dtype))


def _sites(model: Callable[..., Any], data: Any, points: dict[str, Any]) -> dict[str, Any]:
    """The sites at several unconstrained points."""

    return jax.lax.map(lambda z: _at(model, data, z), points)


def _at(model: Callable[..., Any], data: Any, z: dict[str, Any]) -> dict[str, Any]:
    trace = log_density(constrained(model, z), (data,), {}, {})[1]
    return {name: trace[name]["value"] for name in z}
