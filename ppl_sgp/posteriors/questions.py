"""What is asked of the distribution of y at rows, in programs: densities, moments, probabilities.

A question is asked of a :class:`Conditional`, the distribution of y at rows given all that it depends on. Where only
the distribution of f is known, it is asked at each node of a quadrature over f, and says how answers are joined.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro.distributions import constraints
from numpyro.distributions.distribution import Independent


class Conditional(NamedTuple):
    """The distribution of y at rows, given all that it depends on.

    :ivar distribution: of new outcomes, with the rows as its batch.
    :ivar log_prob: log density of what was observed of each row, which may be more than a number.
    """

    distribution: dist.Distribution
    log_prob: Callable[[Any], jax.Array]

    @classmethod
    def of(cls, fn: dist.Distribution) -> Conditional:
        """Of a site of a model; where ``to_event`` has made an event of its rows, they are taken out of it."""
        while isinstance(fn, Independent):
            fn = fn.base_dist
        return cls(fn, lambda y: fn.log_prob(_spread(fn, y)))


@dataclasses.dataclass(frozen=True)
class Question:
    """A question of functions of a module: the same object at every call, so that programs are remembered.

    :ivar at: from a :class:`Conditional` and values to arrays over rows.
    :ivar join: from answers at nodes along a first axis, and log weights of the nodes, to an answer.
    :ivar by_row: whether values have one for each row; else all rows share them.
    """

    at: Callable[..., Any]
    join: Callable[[Any, jax.Array], Any]
    by_row: bool = False


def averages(answers: jax.Array, log_weights: jax.Array) -> jax.Array:
    """The weighted mean over nodes."""
    return jnp.tensordot(jnp.exp(log_weights), answers, axes=1)


def log_averages(answers: jax.Array, log_weights: jax.Array) -> jax.Array:
    """Its logarithm, of logarithms."""
    return logsumexp(answers + log_weights.reshape(-1, *[1] * (answers.ndim - 1)), axis=0)


def _joint_moments(answers: tuple[jax.Array, jax.Array], log_weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    mean = averages(answers[0], log_weights)
    return mean, averages(answers[1] + (answers[0] - mean[None]) ** 2, log_weights)


def _log_density(given: Conditional, y: Any) -> jax.Array:
    return given.log_prob(y)


def _moments(given: Conditional) -> tuple[jax.Array, jax.Array]:
    fn = given.distribution
    mean, variance = (jnp.broadcast_to(part, fn.batch_shape + fn.event_shape) for part in (fn.mean, fn.variance))
    return mean, variance


def _distribution_function(given: Conditional, y: Any) -> jax.Array:
    return given.distribution.cdf(_spread(given.distribution, y))


def _summed_probabilities(given: Conditional, y: Any) -> jax.Array:
    fn = given.distribution

    def added(value: jax.Array, total: jax.Array) -> jax.Array:
        return total + jnp.where(value <= y, jnp.exp(_log_probability(given, value)), 0.0)

    largest = jnp.max(y).astype(jnp.result_type(int))
    return jax.lax.fori_loop(0, largest + 1, added, jnp.zeros(fn.batch_shape, jnp.result_type(float)))


def _log_probabilities(given: Conditional, values: Any) -> jax.Array:
    return jnp.moveaxis(jax.lax.map(functools.partial(_log_probability, given), values), 0, -1)


def _log_probability(given: Conditional, value: Any) -> jax.Array:
    fn = given.distribution
    spread = _spread(fn, value)
    if not is_finite(fn):
        return fn.log_prob(spread)
    # Distributions do not check, and rows may have largest values of their own.
    largest = _largest_value(given).astype(spread.dtype)
    return jnp.where(spread <= largest, fn.log_prob(jnp.minimum(spread, largest)), -jnp.inf)


def _largest_value(given: Conditional) -> jax.Array:
    fn = given.distribution
    support = _elementwise(fn)
    largest = 1 if support is constraints.boolean else support.upper_bound
    return jnp.broadcast_to(jnp.asarray(largest), fn.batch_shape)


#: ``log p(y)`` of each row, of y in its shape.
LOG_DENSITY = Question(_log_density, log_averages, by_row=True)
#: Mean and variance of y at each row.
MOMENTS = Question(_moments, _joint_moments)
#: ``P(Y ≤ y)`` of each row, of distributions that :func:`has_distribution_function`.
DISTRIBUTION_FUNCTION = Question(_distribution_function, averages, by_row=True)
#: The same of counts by summing probabilities, one evaluation for each value up to the largest y.
SUMMED_PROBABILITIES = Question(_summed_probabilities, averages, by_row=True)
#: Log probabilities of values (v,) at each row, (…, v).
LOG_PROBABILITIES = Question(_log_probabilities, log_averages)
#: The largest value of each row, of distributions that are :func:`is_finite`.
LARGEST_VALUE = Question(_largest_value, lambda answers, log_weights: answers[0])


def has_distribution_function(fn: dist.Distribution) -> bool:
    """Whether ``P(Y ≤ y)`` is known."""
    return type(fn).cdf is not dist.Distribution.cdf


def is_discrete(fn: dist.Distribution) -> bool:
    """Whether y is an integer."""
    return bool(fn.support.is_discrete)


def is_finite(fn: dist.Distribution) -> bool:
    """Whether y is one of the integers from zero to a largest one."""
    support = _elementwise(fn)
    return fn.support.is_discrete and (support is constraints.boolean or hasattr(support, "upper_bound"))


def _elementwise(fn: dist.Distribution) -> Any:
    support = fn.support
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return support


def _spread(fn: dist.Distribution, y: Any) -> jax.Array:
    """Values of rows, as numbers of the support's kind."""
    dtype = jnp.result_type(int) if fn.support.is_discrete else jnp.result_type(float)
    return jnp.broadcast_to(jnp.asarray(y, dtype), fn.batch_shape + fn.event_shape)
