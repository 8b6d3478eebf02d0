"""Independent priors side by side: the weights of a stacked basis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal.pytree import pytree_dataclass
from .prior import WeightPrior


@pytree_dataclass
class BlockPrior(WeightPrior):
    """Blocks of weights, independent of each other, each with a prior of its own.

    Made by :func:`~ppl_sgp.stack` of priors, in the order of the stacked bases (which makes a
    :class:`~ppl_sgp.DiagonalPrior` instead where all blocks are diagonal). An evidence costs O(m³).

    :param blocks: single priors of known size, one a block.
    :raises ValueError: for something that is not a prior, a batch of priors, or a prior of unknown size.
    """

    blocks: tuple[WeightPrior, ...]

    def __init__(self, blocks: Sequence[WeightPrior]) -> None:
        blocks = tuple(blocks)
        for index, block in enumerate(blocks):
            if not isinstance(block, WeightPrior) or block.num_weights is None or block.batch_shape:
                raise ValueError(
                    f"BlockPrior: `blocks[{index}]` must be a single prior with one entry a weight, such as "
                    f"`basis.weight_prior(kernel)` or `DiagonalPrior(jnp.full(m, scale))`; got {block!r}."
                )
        object.__setattr__(self, "blocks", blocks)

    @property
    def num_weights(self) -> int:
        """The number of weights m, over all blocks."""
        return sum(self._sizes)

    @property
    def _sizes(self) -> list[int]:
        return [int(block.num_weights or 0) for block in self.blocks]

    @property
    def mean(self) -> jax.Array | None:  # type: ignore[override]
        """Prior means, shape (m,); ``None`` if zero in all blocks."""
        if all(block.mean is None for block in self.blocks):
            return None
        means = [
            jnp.zeros(size) if b.mean is None else b.mean for b, size in zip(self.blocks, self._sizes, strict=True)
        ]
        return jnp.concatenate(means)

    @property
    def independent(self) -> np.ndarray:
        """Whether each weight is independent of all others, whatever the numbers: shape (m,), Boolean."""
        parts = zip(self.blocks, self._sizes, strict=True)
        return np.concatenate([np.broadcast_to(block.independent, (size,)) for block, size in parts])

    @property
    def variance(self) -> jax.Array:
        """Prior variances of the weights, shape (m,)."""
        return self._joined([block.variance for block in self.blocks])

    @property
    def log_variance(self) -> jax.Array:
        """Logarithms of the prior variances, shape (m,)."""
        return self._joined([block.log_variance for block in self.blocks])

    def _joined(self, of_blocks: list[jax.Array]) -> jax.Array:
        parts = zip(of_blocks, self._sizes, strict=True)
        return jnp.concatenate([jnp.broadcast_to(values, (size,)) for values, size in parts])

    def apply(self, vectors: Any) -> jax.Array:
        """``Cv`` for each column of ``vectors`` (m, k), block by block."""
        return jnp.concatenate([b.apply(part) for b, part in self._parts(vectors)])

    def apply_root(self, vectors: Any) -> jax.Array:
        """``Fv`` for each column of ``vectors`` (m, k), block by block."""
        return jnp.concatenate([b.apply_root(part) for b, part in self._parts(vectors)])

    def _parts(self, vectors: Any) -> list[tuple[WeightPrior, Any]]:
        edges = [sum(self._sizes[:i]) for i in range(1, len(self.blocks))]
        return list(zip(self.blocks, jnp.split(vectors, edges), strict=True))
