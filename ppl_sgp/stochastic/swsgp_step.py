"""Steps of SWSGP that touch the points of a minibatch only: O(b H³), whatever the number of points."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._internal.batching import full_precision
from .._internal.pytree import pytree_dataclass, static
from ..likelihoods.likelihood import Likelihood
from .coordinates import Coordinates
from .expectation import expected_log_prob
from .neighbour_terms import Terms, Values, neighbour_terms
from .svgp_step import falling
from .updates import FIRST, SECOND, put
from .whitened import for_likelihood


@pytree_dataclass
class NeighbourProblem:
    """What does not change in a fit.

    :ivar likelihood: of y given the level and f.
    :ivar coordinates: of the hyperparameters.
    :ivar points: inducing points, (m, d).
    :ivar level: what predictors have beside f, (K,).
    :ivar unit: of values at the points, as they are held: the amplitude at the start.
    :ivar num_neighbours: H.
    :ivar joint: whether all rows of a batch share the union of their points (SWSGP-U).
    :ivar num_active: points of a step, those of the union at most.
    :ivar nearest: how neighbours are chosen.
    :ivar fixed: whether hyperparameters stay where they are.
    """

    likelihood: Likelihood
    coordinates: Coordinates
    points: Any
    level: Any
    unit: Any
    num_neighbours: int = static()
    joint: bool = static()
    num_active: int = static()
    nearest: str = static()
    fixed: bool = static()


class PointState(NamedTuple):
    """Arrays with one entry a point, and Adam's running means of their gradients, each with its own count of steps.

    :ivar value: a tree of arrays (m, …): ``loc`` (m, K), and ``log_scale`` (m, K) or ``triangle`` (m, K, m).
    """

    value: dict[str, jax.Array]
    first: dict[str, jax.Array]
    second: dict[str, jax.Array]
    steps: jax.Array

    @classmethod
    def of(cls, value: dict[str, jax.Array]) -> PointState:
        """Before the first step."""
        dtype, size = value["loc"].dtype, len(value["loc"])
        zeros = jax.tree.map(jnp.zeros_like, value)
        return cls(value, zeros, jax.tree.map(jnp.zeros_like, value), jnp.zeros(size, dtype))

    def at(self, numbers: jax.Array) -> PointState:
        """Some points; numbers beyond them give anything."""
        return jax.tree.map(lambda leaf: leaf.at[numbers].get(mode="clip"), self)

    def moved(self, gradient: dict[str, jax.Array], rate: Any) -> PointState:
        """A step of Adam (Kingma & Ba 2015) downhill."""
        steps = self.steps + 1
        first = jax.tree.map(lambda mean, g: FIRST * mean + (1 - FIRST) * g, self.first, gradient)
        second = jax.tree.map(lambda mean, g: SECOND * mean + (1 - SECOND) * g**2, self.second, gradient)

        def move(value: jax.Array, mean: jax.Array, square: jax.Array) -> jax.Array:
            shape = (-1, *[1] * (value.ndim - 1))
            shrunk, spread = (1 - FIRST**steps).reshape(shape), (1 - SECOND**steps).reshape(shape)
            return value - rate * (mean / shrunk) / (jnp.sqrt(square / spread) + 1e-12)

        return PointState(jax.tree.map(move, self.value, first, second), first, second, steps)

    def with_points(self, numbers: jax.Array, some: PointState) -> PointState:
        """With points replaced; numbers beyond them are left out."""
        return jax.tree.map(lambda leaf, rows: put(leaf, numbers, rows), self, some)


class NeighbourState(NamedTuple):
    """What is known of each point, and the optimiser's state of the hyperparameters."""

    points: PointState
    optimiser: Any


def values_of(value: dict[str, jax.Array], scale: Any, numbers: jax.Array) -> Values:
    """q(u) at some points, in units of f.

    :param scale: the unit that values are held in.
    """
    loc = value["loc"] * scale
    if "log_scale" in value:
        return Values(loc, jnp.exp(value["log_scale"]) * scale)
    triangle = value["triangle"]
    below = jnp.arange(triangle.shape[-1], dtype=numbers.dtype)[None, :] <= numbers[:, None]
    return Values(loc, jnp.where(below[:, None, :], triangle, 0) * scale)


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def swsgp_step(
    adam: Any,
    rate: float,
    schedule: tuple[int, int],
    problem: NeighbourProblem,
    state: NeighbourState,
    batch: Any,
) -> tuple[NeighbourState, jax.Array]:
    """The next state, and an estimate of the objective at this one, which is no bound.

    :param rate: learning rate of the points' values, in their unit.
    :param schedule: the first of the given steps, and their number.
    :param batch: inputs (b, d), outcomes, n/b, points of the batch (u,), and the place of each row's in these, (b, H).
    """
    X, y, scale, numbers, places = batch
    some, hyper = state.points.at(numbers), adam.get_params(state.optimiser)
    Z = jnp.asarray(problem.points).at[numbers].get(mode="clip")
    there = numbers < len(problem.points)

    def loss(value: dict[str, jax.Array], hyper: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        found = objective(problem, value, hyper["hyper"], (X, y, scale), (Z, numbers, there, places))
        return -(found + problem.coordinates.log_prior(hyper["hyper"])), found

    with full_precision():
        if problem.fixed:
            (_, found), of_values = jax.value_and_grad(loss, has_aux=True)(some.value, hyper)
            gradients = of_values, jax.tree.map(jnp.zeros_like, hyper)  # with which Adam moves nothing
        else:
            (_, found), gradients = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(some.value, hyper)
    size = rate * falling(state.optimiser[0], *schedule)
    points = state.points.with_points(numbers, some.moved(gradients[0], size))
    return NeighbourState(points, adam.update(gradients[1], state.optimiser)), found


def objective(
    problem: NeighbourProblem, value: dict[str, jax.Array], z: jax.Array, rows: Any, neighbourhood: Any
) -> jax.Array:
    """``(n/b) Σ E log p(yᵢ | fᵢ) − (1/b) Σ KL(uᵢ)``, or less the divergence of one union: no bound of the evidence."""
    (X, y, scale), (Z, numbers, there, places) = rows, neighbourhood
    kernel = problem.coordinates.kernel(z)
    values = values_of(value, jnp.asarray(problem.unit), numbers)
    if problem.joint:
        terms = neighbour_terms(kernel, Z, there, values, X)
        mean, variance, divergence = terms
    else:
        mean, variance, divergence = of_each_row(kernel, Z, there, values, places, X)
        divergence = jnp.mean(divergence)
    mean = mean + jnp.asarray(problem.level, mean.dtype)[:, None]
    parameters = problem.coordinates.parameters(z)
    expected = expected_log_prob(problem.likelihood, *for_likelihood(problem.likelihood, mean, variance), y, parameters)
    return scale * jnp.sum(expected) - divergence


def of_each_row(kernel: Any, Z: jax.Array, there: jax.Array, values: Values, places: jax.Array, X: jax.Array) -> Terms:
    """Terms of rows (b, d) with their own H points each: (K, b), (K, b) and (b,)."""

    def one(x: jax.Array, own: jax.Array) -> Terms:
        return neighbour_terms(kernel, Z[own], there[own], Values(values.loc[own], values.root[own]), x[None])

    terms = jax.vmap(one)(X, places)
    return Terms(terms.mean[..., 0].T, terms.variance[..., 0].T, terms.divergence)
