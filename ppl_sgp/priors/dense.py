"""A dense prior covariance: a kernel on inducing points, or a free positive-definite matrix."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .._internal import checks
from .._internal.pytree import pytree_dataclass
from .prior import WeightPrior, checked_covariance, checked_mean
from .roots import symmetric_root


@pytree_dataclass
class DensePrior(WeightPrior):
    """Jointly Gaussian weights, ``w ~ N(mean, C)`` with a dense covariance C.

    Give either the covariance, which may be singular (a smooth kernel on a fine grid is, to rounding:
    nothing is added to its diagonal), or a triangular factor, for a free positive-definite matrix.
    An evidence costs O(m³) with its gradient (Evans 2022, section 5.3.3; the gradient in C is
    ``½(αᾱᵀ − RᵀM⁻¹R)``). Evidence needs float64.

    :param covariance: C, shape (m, m): symmetric, positive semi-definite.
    :param scale_tril: lower triangular L with ``C = LLᵀ``, shape (m, m), instead of ``covariance``; what is above its
        diagonal is ignored.
    :param mean: prior means, shape (m,); ``None`` means zero.
    :raises ValueError: unless exactly one of the two is given, and is a matrix of that kind.

    .. doctest::

        >>> prior = DensePrior([[2.0, 1.0], [1.0, 2.0]])
        >>> prior.num_weights, prior.variance.tolist()
        (2, [2.0, 2.0])
    """

    matrix: Any
    scale_tril: Any
    mean: Any

    def __init__(self, covariance: Any = None, *, scale_tril: Any = None, mean: Any = None) -> None:
        if (covariance is None) == (scale_tril is None):
            raise ValueError("DensePrior: pass exactly one of `covariance` and `scale_tril`.")
        if scale_tril is None:
            given = covariance = checked_covariance("covariance", covariance, "DensePrior")
        else:
            given = scale_tril = _checked_factor(scale_tril)
        object.__setattr__(self, "matrix", covariance)
        object.__setattr__(self, "scale_tril", scale_tril)
        object.__setattr__(self, "mean", checked_mean(mean, len(given), "DensePrior"))

    @property
    def num_weights(self) -> int:
        """The number of weights m."""
        return (self.matrix if self.scale_tril is None else self.scale_tril).shape[-1]

    @property
    def variance(self) -> jax.Array:
        """Prior variances of the weights, shape (m,)."""
        return jnp.diagonal(self.matrix) if self.scale_tril is None else jnp.sum(self.scale_tril**2, axis=1)

    def apply(self, vectors: Any) -> jax.Array:
        """``Cv`` for each column of ``vectors`` (m, k). O(m²k)."""
        return self.matrix @ vectors if self.scale_tril is None else self.scale_tril @ (self.scale_tril.T @ vectors)

    def apply_root(self, vectors: Any) -> jax.Array:
        """``Fv`` for each column of ``vectors`` (m, k): with L if it was given, O(m²k), else with ``C^½``, O(m³)."""
        return (symmetric_root(self.matrix) if self.scale_tril is None else self.scale_tril) @ vectors

    def distribution(self) -> dist.Distribution:
        """The prior as a NumPyro distribution over w, for models that keep their weights.

        :raises ValueError: if the covariance is singular (to rounding), so that w has no density, and can be read.
        """
        if self.scale_tril is None:
            return super().distribution()
        # C has one factor with a positive diagonal; signs of columns are free.
        return self._with_factor(self.scale_tril * jnp.where(jnp.diagonal(self.scale_tril) < 0, -1, 1)[None, :])


def _checked_factor(scale_tril: Any) -> jax.Array:
    factor = jnp.asarray(checks.real_numbers("scale_tril", scale_tril, "DensePrior"))
    if factor.ndim != 2 or factor.shape[0] != factor.shape[1]:
        raise ValueError(f"DensePrior: `scale_tril` must have shape (m, m); got {factor.shape}.")
    if checks.is_concrete(factor) and not np.isfinite(np.asarray(factor)).all():
        raise ValueError("DensePrior: `scale_tril` must be finite.")
    return jnp.tril(factor.astype(checks.common_dtype(factor)))
