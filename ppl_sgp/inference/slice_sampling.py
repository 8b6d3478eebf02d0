"""Elliptical slice sampling: a draw of a normal prior times any likelihood, without anything to tune."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

#: The bracket halves, on average, with every try: by then it is below rounding, and the current value is kept.
MOST_TRIES = 200


def elliptical_slice(
    key: jax.Array, value: jax.Array, mean: Any, scale: Any, log_likelihood: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """One step that leaves ``N(mean, scale²) × likelihood`` as it is (Murray, Adams & MacKay 2010).

    Of one number it is a slice sampler of width ``scale``: a few evaluations for each e-fold by which the likelihood is
    narrower than the prior. Where the likelihood is not a number it counts as zero.

    :param key: a JAX random key.
    :param value: the current value, any shape.
    :param mean: prior mean, of that shape or ().
    :param scale: prior standard deviation, likewise.
    :param log_likelihood: of a value, a scalar.
    :return: the next value.
    """
    key_level, key_prior, key_angle, key_tries = jax.random.split(key, 4)
    dtype = value.dtype
    centred = value - mean
    other = scale * jax.random.normal(key_prior, value.shape, dtype)
    level = log_likelihood(value) + jnp.log1p(-jax.random.uniform(key_level, (), dtype))
    angle = jax.random.uniform(key_angle, (), dtype, 0, 2 * jnp.pi)

    def at(angle: jax.Array) -> jax.Array:
        return mean + centred * jnp.cos(angle) + other * jnp.sin(angle)

    def rejected(state: Any) -> jax.Array:
        tries, angle, _, _ = state
        return (tries < MOST_TRIES) & ~(log_likelihood(at(angle)) >= level)

    def shrink(state: Any) -> Any:
        tries, angle, low, high = state
        low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
        angle = jax.random.uniform(jax.random.fold_in(key_tries, tries), (), dtype, low, high)
        return tries + 1, angle, low, high

    tries, angle, _, _ = jax.lax.while_loop(rejected, shrink, (0, angle, angle - 2 * jnp.pi, angle))
    return jnp.where(tries < MOST_TRIES, at(angle), value)


def each_in_turn(
    key: jax.Array, values: jax.Array, mean: Any, scale: Any, log_likelihood: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """The same for the entries of a short vector (p,), one given the others: their spreads may differ by any factor."""
    for i, own in enumerate(jax.random.split(key, len(values))):

        def one(entry: jax.Array, i: int = i, values: jax.Array = values) -> jax.Array:
            return log_likelihood(values.at[i].set(entry))

        values = values.at[i].set(elliptical_slice(own, values[i], mean[i], scale[i], one))
    return values
