"""Steps of SVGP: a natural gradient for the Gaussian of inducing values, Adam for hyperparameters and points."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.optim import Adam

from .._internal.batching import full_precision
from .._internal.pytree import pytree_dataclass
from ..likelihoods.likelihood import Likelihood
from .coordinates import Coordinates
from .natural import Natural, Sums, natural_step, row_sums
from .whitened import Features, inverse_root, point_features, rows_term

#: Share of the given steps that are made in full size; over the others sizes fall to the second number of it.
FULL, LAST = 0.5, 0.02
#: Share of the first steps in which the size of Adam's grows: q has to find f before anything else can be learned.
GROWING = 0.05


@pytree_dataclass
class PointProblem:
    """What does not change in a fit.

    :ivar likelihood: of y given the level and f.
    :ivar coordinates: of the hyperparameters.
    :ivar points: inducing points to start from, (m, d).
    :ivar unit: units of the inputs, (d,).
    :ivar level: what predictors have beside f, (K,).
    """

    likelihood: Likelihood
    coordinates: Coordinates
    points: Any
    unit: Any
    level: Any

    def hyperparameters(self, parameters: dict[str, Any], z: Any) -> jax.Array:
        """Coordinates for standard normal draws z, (P,); without a spread the point itself."""
        if "log_spread" not in parameters:
            return parameters["hyper"]
        return parameters["hyper"] + jnp.exp(parameters["log_spread"]) * z

    def points_at(self, parameters: dict[str, Any]) -> jax.Array:
        """Inducing points (m, d)."""
        if "moved" not in parameters:
            return jnp.asarray(self.points)
        return jnp.asarray(self.points) + parameters["moved"] * jnp.asarray(self.unit)

    def features(self, parameters: dict[str, Any], coordinates: Any, X: Any) -> Features:
        """Those of rows at coordinates of the hyperparameters."""
        return point_features(self.coordinates.kernel(coordinates), self.points_at(parameters), jnp.asarray(X))


class State(NamedTuple):
    """The posterior of whitened inducing values, and the optimiser's state, with all other parameters."""

    natural: Natural
    optimiser: Any


@functools.lru_cache(maxsize=32)
def optimiser(learning_rate: float, first: int, num_steps: int) -> Adam:
    """Adam, in full size for some of the given steps, then falling. Equal arguments give the same object."""

    def size(i: Any) -> Any:
        growing = jnp.minimum(i / max(1, int(GROWING * num_steps)), 1.0) if first == 0 else 1.0
        return learning_rate * growing * falling(i, first, num_steps)

    return Adam(size)


def falling(step: Any, first: int, num_steps: int) -> Any:
    """The size of a step as a share of the full one."""
    done = (step - first) / max(num_steps, 1)
    return jnp.clip(1 - (1 - LAST) * (done - FULL) / (1 - FULL), LAST, 1.0)


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def svgp_step(
    adam: Adam,
    schedule: tuple[int, int],
    natural_size: float,
    problem: PointProblem,
    state: State,
    key: Any,
    batch: Any,
) -> tuple[State, jax.Array]:
    """The next state, and an estimate of the bound at this one. O(m³ + m²b).

    :param schedule: the first of the given steps, and their number.
    :param batch: inputs (b, d), outcomes, and n/b.
    """
    X, y, scale = batch
    likelihood, coordinates = problem.likelihood, problem.coordinates
    q, parameters = state.natural.whitened(), adam.get_params(state.optimiser)
    z = jax.random.normal(key, parameters["hyper"].shape)

    def loss(parameters: dict[str, Any]) -> Any:
        at = problem.hyperparameters(parameters, z)
        features = problem.features(parameters, at, X)
        rows = scale * jnp.sum(rows_term(likelihood, q, features, problem.level, y, coordinates.parameters(at)))
        prior = coordinates.log_prior(at)
        entropy = entropy_of(parameters)
        return -(rows + prior + entropy), (rows, prior + entropy, at, features)

    with full_precision():
        (_, (rows, of_hyper, at, features)), gradient = jax.value_and_grad(loss, has_aux=True)(parameters)
        sums = row_sums(likelihood, q, features, problem.level, y, coordinates.parameters(at), scale)
        size = natural_size * falling(adam_count(state.optimiser), *schedule)
        natural = natural_step(likelihood, state.natural, q, sums, size)
    bound = rows - q.divergence() + (of_hyper if "log_spread" in parameters else 0.0)
    return State(natural, adam.update(gradient, state.optimiser)), bound


def adam_count(state: Any) -> jax.Array:
    """How many steps an optimiser's state has seen."""
    return state[0]


def entropy_of(parameters: dict[str, Any]) -> Any:
    """Of the hyperparameters' normal; zero for a point."""
    if "log_spread" not in parameters:
        return 0.0
    return jnp.sum(parameters["log_spread"]) + 0.5 * parameters["log_spread"].size * (1 + np.log(2 * np.pi))


@jax.jit
def pass_sums(
    problem: PointProblem, parameters: Any, draws: Any, natural: Natural, batch: Any
) -> tuple[Sums, jax.Array]:
    """What a block of rows says at some draws of the hyperparameters, on average, and its part of the bound.

    :param draws: coordinates, (S, P).
    :param batch: inputs (b, d), outcomes, and how often each row counts, (b,).
    """
    X, y, weights = batch
    q = natural.whitened()

    def at_draw(at: jax.Array) -> tuple[Sums, jax.Array]:
        features, own = problem.features(parameters, at, X), problem.coordinates.parameters(at)
        bound = jnp.sum(weights * rows_term(problem.likelihood, q, features, problem.level, y, own))
        return row_sums(problem.likelihood, q, features, problem.level, y, own, weights), bound

    with full_precision():
        found = jax.lax.map(at_draw, draws)
    return jax.tree.map(lambda each: jnp.mean(each, axis=0), found)


@jax.jit
def full_step(problem: PointProblem, natural: Natural, sums: Sums) -> Natural:
    """A natural step of size one, from sums over all rows."""
    with full_precision():
        return natural_step(problem.likelihood, natural, natural.whitened(), sums, 1.0)


@jax.jit
def divergence(natural: Natural) -> jax.Array:
    """From the prior."""
    return natural.whitened().divergence()


@jax.jit
def roots_at(problem: PointProblem, parameters: Any, draws: Any) -> tuple[Any, jax.Array]:
    """The kernels at draws of the hyperparameters (S, P), stacked, and ``L⁻¹`` of each, (S, m, m)."""

    def of_draw(at: jax.Array) -> tuple[Any, jax.Array]:
        kernel = problem.coordinates.kernel(at)
        return kernel, inverse_root(kernel, problem.points_at(parameters))

    with full_precision():
        return jax.lax.map(of_draw, draws)
