"""Gibbs moves of weights on finite grids: blocks of a few weights, drawn jointly by enumerating their levels."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from .._internal.batching import full_precision
from ..sites.discrete_relaxation import DiscreteRelaxation

#: Joint levels of a block: as many weights are drawn together as have at most so many.
CONFIGURATIONS = 1024
#: The share of its squared correlations with all others that a weight has with each of them besides: so that unlike
#: weights are drawn together now and then.
CHANCE = 0.1


def block_size(num_levels: int, num_weights: int) -> int:
    """How many weights of m̄ levels are drawn jointly: 10 for two levels, 6 for three, 2 for 15, and 1 above 32."""
    return max(1, min(num_weights, int(np.log(CONFIGURATIONS + 0.5) / np.log(num_levels))))


@dataclasses.dataclass(frozen=True)
class LevelSampler:
    """Draws from ``p(w) exp(β(rᵀw − ½ wᵀAw))``, up to a constant, over weights on levels.

    :param gram: A, shape (b, b).
    :param projection: r, shape (b,).
    :param precision: β, of the noise.
    :param prior: of batch shape (b,).
    """

    gram: jax.Array
    projection: jax.Array
    precision: jax.Array
    prior: DiscreteRelaxation

    def sweep(self, key: jax.Array, weights: jax.Array, joint: bool = True) -> jax.Array:
        """Each weight given all others, in turn; then, with ``joint``, blocks of correlated ones given the rest.

        A block holds a weight and others drawn without replacement, with probabilities that grow with their squared
        correlation over the rows; blocks are as many as hold b weights. They do not depend on the weights' values, so
        that every move leaves the posterior as it is. O(b²) for all, and O(b m̄ᵏ) for blocks of k.

        :param key: a JAX random key.
        :param weights: current values, shape (b,).
        :param joint: whether to draw blocks: not worth it for orthogonal features.
        """
        key_single, key_blocks, key_joint = jax.random.split(key, 3)
        b, size = len(weights), block_size(self.prior.num_levels, len(weights))
        weights = self._redrawn(key_single, weights, jnp.arange(b)[:, None])
        if not joint or size == 1:
            return weights
        return self._redrawn(key_joint, weights, self._blocks(key_blocks, size))

    def _blocks(self, key: jax.Array, size: int) -> jax.Array:
        """Positions of weights, shape (⌈b/k⌉, k): one in turn, in random order, and k − 1 that correlate with it."""
        key_first, key_others = jax.random.split(key)
        norms = jnp.sqrt(jnp.diagonal(self.gram))
        b = len(norms)
        firsts = jax.random.permutation(key_first, b)[: -(-b // size)]
        square = (self.gram[firsts] / jnp.maximum(norms[firsts, None] * norms, jnp.finfo(norms.dtype).tiny)) ** 2
        logits = jnp.log(square + CHANCE * square.mean(axis=1, keepdims=True))
        # The k largest of perturbed logits are k draws without replacement; the first of a block is always among them.
        logits = logits + jax.random.gumbel(key_others, square.shape, norms.dtype)
        logits = logits.at[jnp.arange(len(firsts)), firsts].set(jnp.inf)
        return jax.lax.top_k(logits, size)[1]

    def _redrawn(self, key: jax.Array, weights: jax.Array, blocks: jax.Array) -> jax.Array:
        """After each block of k weights, one after the other, is drawn given all other weights."""
        dtype, size = weights.dtype, blocks.shape[1]
        codes = np.indices((self.prior.num_levels,) * size).reshape(size, -1).T
        levels, logits = self.prior.levels.astype(dtype), self.prior.logits.astype(dtype)

        def redraw(carry, row):
            weights, fitted = carry
            key, block = row
            rows, own = self.gram[block], weights[block]
            within = rows[:, block]
            cavity = self.projection[block] - fitted[block] + within @ own
            values = levels[block][np.arange(size), codes]
            gain = values @ cavity - 0.5 * jnp.sum(values @ within * values, axis=1)
            joint = logits[block][np.arange(size), codes].sum(axis=1) + self.precision * gain
            drawn = values[jax.random.categorical(key, joint)]
            return (weights.at[block].set(drawn), fitted + (drawn - own) @ rows), None

        with full_precision():
            keys = jax.random.split(key, len(blocks))
            return jax.lax.scan(redraw, (weights, self.gram @ weights), (keys, blocks))[0][0]
