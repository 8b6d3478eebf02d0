"""A prior covariance that is a Kronecker product: a product kernel on a Cartesian grid."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .._internal.pytree import pytree_dataclass
from .prior import WeightPrior, checked_covariance, checked_mean
from .roots import symmetric_root


@pytree_dataclass
class KroneckerPrior(WeightPrior):
    """Weights on a grid, ``w ~ N(mean, C₁ ⊗ … ⊗ C_d)``, in row-major (C) order of the grid.

    The covariance is never formed: products with it cost O(m Σmᵢ) a vector (Evans 2022, appendix A;
    its mat-vec is printed with a reshape where a transpose is needed). An evidence costs
    O(m·rank·(Σmᵢ + rank)), for any n. Evidence needs float64.

    :param covariances: C₁ … C_d, of shapes (mᵢ, mᵢ) with Π mᵢ = m: symmetric, positive semi-definite.
    :param mean: prior means, shape (m,); ``None`` means zero.
    :raises ValueError: for factors that are not covariances, or none at all.

    .. doctest::

        >>> prior = KroneckerPrior([[[2.0, 1.0], [1.0, 2.0]], [[3.0]]])
        >>> prior.covariance.tolist()
        [[6.0, 3.0], [3.0, 6.0]]
    """

    factors: tuple[Any, ...]
    mean: Any

    def __init__(self, covariances: Sequence[Any], mean: Any = None) -> None:
        if len(covariances) == 0:
            raise ValueError("KroneckerPrior: `covariances` must hold at least one matrix; got none.")
        factors = tuple(
            checked_covariance(f"covariances[{i}]", matrix, "KroneckerPrior") for i, matrix in enumerate(covariances)
        )
        object.__setattr__(self, "factors", factors)
        object.__setattr__(self, "mean", checked_mean(mean, self.num_weights, "KroneckerPrior"))

    @property
    def num_weights(self) -> int:
        """The number of weights m."""
        return math.prod(factor.shape[-1] for factor in self.factors)

    @property
    def variance(self) -> jax.Array:
        """Prior variances of the weights, shape (m,)."""
        return functools.reduce(jnp.kron, [jnp.diagonal(factor) for factor in self.factors])

    def apply(self, vectors: Any) -> jax.Array:
        """``Cv`` for each column of ``vectors`` (m, k). O(m k Σmᵢ)."""
        return self._along_axes(vectors, lambda factor: factor)

    def apply_root(self, vectors: Any) -> jax.Array:
        """``C^½v`` for each column of ``vectors`` (m, k). O(m k Σmᵢ + Σmᵢ³)."""
        return self._along_axes(vectors, symmetric_root)

    def _along_axes(self, vectors: Any, matrix_of: Callable[[jax.Array], jax.Array]) -> jax.Array:
        grid = vectors.reshape(*(factor.shape[-1] for factor in self.factors), -1)
        for axis, factor in enumerate(self.factors):
            grid = jnp.moveaxis(jnp.tensordot(matrix_of(factor), grid, axes=(1, axis)), 0, axis)
        return grid.reshape(vectors.shape)
