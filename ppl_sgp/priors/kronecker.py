"""A prior covariance that is a Kronecker product: a product kernel on a Cartesian grid, or of a product of bases."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal.pytree import pytree_dataclass
from .prior import WeightPrior, checked_covariance, checked_mean
from .roots import symmetric_root


@pytree_dataclass
class KroneckerPrior(WeightPrior):
    """Weights on a grid, ``w ~ N(mean, C₁ ⊗ … ⊗ C_d)``, in row-major (C) order of the grid.

    The covariance is never formed: products with it cost O(m Σmᵢ) a vector (Evans 2022, appendix A;
    its mat-vec is printed with a reshape where a transpose is needed). An evidence costs
    O(m·rank·(Σmᵢ + rank)), for any n. Evidence needs float64.

    :param covariances: C₁ … C_d, of shapes (mᵢ, mᵢ) with Π mᵢ = m: symmetric, positive semi-definite. A prior of mean
        zero stands for its covariance, which is not formed either.
    :param mean: prior means, shape (m,); ``None`` means zero.
    :raises ValueError: for factors that are not covariances, priors of unknown size or with a mean, or none at all.

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
        factors = tuple(_checked_factor(f"covariances[{i}]", factor) for i, factor in enumerate(covariances))
        object.__setattr__(self, "factors", factors)
        object.__setattr__(self, "mean", checked_mean(mean, self.num_weights, "KroneckerPrior"))

    @property
    def num_weights(self) -> int:
        """The number of weights m."""
        return math.prod(map(_size, self.factors))

    @property
    def independent(self) -> np.ndarray:
        """Whether each weight is independent of all others, whatever the numbers: shape (m,), Boolean."""
        each = [f.independent if isinstance(f, WeightPrior) else np.zeros(_size(f), dtype=bool) for f in self.factors]
        return functools.reduce(np.kron, each)

    @property
    def variance(self) -> jax.Array:
        """Prior variances of the weights, shape (m,)."""
        each = [f.variance if isinstance(f, WeightPrior) else jnp.diagonal(f) for f in self.factors]
        return functools.reduce(jnp.kron, each)

    def apply(self, vectors: Any) -> jax.Array:
        """``Cv`` for each column of ``vectors`` (m, k). O(m k Σmᵢ)."""
        return self._along_axes(vectors, "apply")

    def apply_root(self, vectors: Any) -> jax.Array:
        """``C^½v`` for each column of ``vectors`` (m, k). O(m k Σmᵢ + Σmᵢ³)."""
        return self._along_axes(vectors, "apply_root")

    def _along_axes(self, vectors: Any, method: str) -> jax.Array:
        grid = vectors.reshape(*map(_size, self.factors), -1)
        for axis, factor in enumerate(self.factors):
            first = jnp.moveaxis(grid, axis, 0)
            columns = first.reshape(len(first), -1)
            if isinstance(factor, WeightPrior):
                product = getattr(factor, method)(columns)
            else:
                product = (factor if method == "apply" else symmetric_root(factor)) @ columns
            grid = jnp.moveaxis(product.reshape(first.shape), 0, axis)
        return grid.reshape(vectors.shape)


def _size(factor: Any) -> int:
    return int(factor.num_weights or 0) if isinstance(factor, WeightPrior) else factor.shape[-1]


def _checked_factor(name: str, factor: Any) -> Any:
    if not isinstance(factor, WeightPrior):
        return checked_covariance(name, factor, "KroneckerPrior")
    if factor.num_weights is None or factor.batch_shape or factor.mean is not None:
        raise ValueError(
            f"KroneckerPrior: `{name}` must be a covariance, or a single prior of mean zero with one entry a weight, "
            f"such as `DiagonalPrior(jnp.full(m, scale))`; got {factor!r}. A mean of the whole is the argument `mean`."
        )
    return factor
