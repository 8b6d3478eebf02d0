"""The priors of a batch, one by one."""

from __future__ import annotations

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
