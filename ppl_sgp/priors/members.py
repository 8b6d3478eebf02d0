"""The priors of a batch, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .diagonal import DiagonalPrior
from .prior import WeightPrior


def single_priors(prior: WeightPrior) -> list[WeightPrior]:
    """The priors of the outputs: those of a batch with one axis, or the one that all of them share."""
    if not isinstance(prior, DiagonalPrior) or not prior.batch_shape:
        return [prior]
    (count,) = prior.batch_shape

    def member(array: jax.Array, index: int) -> jax.Array:
        array = jnp.asarray(array)
        return array[index] if array.ndim > 1 else array

    return [jax.tree.map(lambda array: member(array, index), prior) for index in range(count)]  # noqa: B023


def of_each(function: Callable[..., Any], prior: WeightPrior) -> Any:
    """``function(prior)``; for a batch ``function(member, index)`` of each, stacked along a first axis."""
    if not prior.batch_shape:
        return function(prior)
    results = [function(member, index) for index, member in enumerate(single_priors(prior))]
    return jax.tree.map(lambda *values: jnp.stack(values), *results)
