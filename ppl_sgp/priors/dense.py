"""A dense prior covariance: a kernel on inducing points, or a free positive-definite matrix."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .._internal.pytree import pytree_dataclass
from .prior import WeightPrior, checked_covariance, checked_mean, symmetric_root


@pytree_dataclass
class DensePrior(WeightPrior):
    """Jointly Gaussian weights, ``w ~ N(mean, C)`` with a dense covariance C.

    Give either the covariance, which may be singular (a smooth kernel on a fine grid is, to rounding:
    nothing is added to its diagonal), or a triangular factor, for a free positive-definite matrix.
    An evidence costs O(m³) with its gradient (Evans 2022, section 5.3.3; the gradient in C is
    ``½(αᾱᵀ − RᵀM⁻¹R)``). Evidence needs float64.

    :param covariance: C, shape (m, m): symmetric, positive semi-definite.
    :param scale_tril: lower triangular L with ``C = LLᵀ``, shape (m, m), instead of ``covariance``.
    :param mean: prior means, shape (m,); ``None`` means zero.
    :raises ValueError: unless exactly one of the two is given, and is a matrix of that kind.

    .. doctest::

        >>> prior = DensePrior([[2.0, 1.0], [1.0, 2.0]])
        >>> prior.num_weights, prior.variance.tolist()
        (2, [2.0, 2.0])
    """

    matrix: Any
    mean: Any

    def __init__(self, covariance: Any = None, *, scale_tril: Any = None, mean: Any = None) -> None:
        if (covariance is None) == (scale_tril is None):
            raise ValueError("DensePrior: pass exactly one of `covariance` and `scale_tril`.")
        if scale_tril is not None:
            factor = jnp.tril(jnp.asarray(scale_tril))
            if factor.ndim != 2 or factor.shape[0] != factor.shape[1]:
                raise ValueError(f"DensePrior: `scale_tril` must have shape (m, m); got {factor.shape}.")
            covariance = factor @ factor.T
        matrix = checked_covariance("covariance", covariance, "DensePrior")
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "mean", checked_mean(mean, len(matrix), "DensePrior"))

    @property
    def num_weights(self) -> int:
        """The number of weights m."""
        return self.matrix.shape[-1]

    @property
    def variance(self) -> jax.Array:
        """Prior variances of the weights, shape (m,)."""
        return jnp.diagonal(self.matrix)

    def apply(self, vectors: Any) -> jax.Array:
        """``Cv`` for each column of ``vectors`` (m, k). O(m²k)."""
        return self.matrix @ vectors

    def apply_root(self, vectors: Any) -> jax.Array:
        """``C^½v`` for each column of ``vectors`` (m, k). O(m³)."""
        return symmetric_root(self.matrix) @ vectors
