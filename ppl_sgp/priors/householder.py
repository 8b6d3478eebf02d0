"""A prior whose principal axes are free: a diagonal one, reflected."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass
from .diagonal import DiagonalPrior
from .prior import DiagonalAxes, WeightPrior, checked_mean


@pytree_dataclass
class HouseholderPrior(WeightPrior):
    """Weights ``w ~ N(mean, U diag(scale²) Uᵀ)``, U a product of k Householder reflections.

    ``U = H₁ … H_k`` with ``H = I − 2vvᵀ/vᵀv``. On orthonormal features
    (``stats.rotate(orthonormal=True)``) an evidence costs O(k·m) with all gradients: O(m²) for any
    rotation (k = m), O(m) for a few reflections. On other statistics it is evaluated as a dense
    prior, in O(m³). (Evans 2022, section 5.2.2, eq 5.8; derivatives in U are left to the reader there.)
    Prior precision ``S̃ = U D Uᵀ`` of the thesis has ``D = diag(scale⁻²)``.

    :param scale: prior standard deviations along the principal axes, shape (m,).
    :param vectors: the v of each reflection, shape (k, r) with r ≤ m, none of them zero. They act on the
        first r weights; the axes of the others stay where they are.
    :param mean: prior means, shape (m,); ``None`` means zero.
    :raises ValueError: for scales that are not positive, or vectors that are zero or of the wrong shape.

    .. doctest::

        >>> prior = HouseholderPrior([2.0, 1.0], vectors=[[1.0, -1.0]])  # a reflection that swaps the axes
        >>> prior.variance.round(6).tolist()
        [1.0, 4.0]
    """

    log_scale: Any
    vectors: Any
    mean: Any

    def __init__(self, scale: Any, vectors: Any, mean: Any = None) -> None:
        diagonal = DiagonalPrior(scale)
        vectors = jnp.asarray(checks.real_numbers("vectors", vectors, "HouseholderPrior"))
        m = diagonal.num_weights
        if m is None or diagonal.batch_shape:
            raise ValueError(
                f"HouseholderPrior: `scale` must have shape (m,), one entry a weight; got {jnp.shape(scale)}."
            )
        if vectors.ndim != 2 or not 0 < vectors.shape[1] <= m:
            raise ValueError(
                f"HouseholderPrior: `vectors` must have shape (k, r) with 1 <= r <= {m}, one row a reflection; got "
                f"{vectors.shape}."
            )
        read = np.asarray(vectors) if checks.is_concrete(vectors) else np.ones((1, 1))
        if not (np.isfinite(read).all() and (read != 0).any(axis=1).all()):
            raise ValueError("HouseholderPrior: each row of `vectors` must be finite and not zero: it is a direction.")
        dtype = checks.common_dtype(diagonal.log_scale, vectors)
        object.__setattr__(self, "log_scale", diagonal.log_scale.astype(dtype))
        object.__setattr__(self, "vectors", vectors.astype(dtype))
        object.__setattr__(self, "mean", checked_mean(mean, m, "HouseholderPrior"))

    @property
    def num_weights(self) -> int:
        """The number of weights m."""
        return self.log_scale.shape[-1]

    @property
    def scale(self) -> jax.Array:
        """Prior standard deviations along the principal axes, shape (m,)."""
        return jnp.exp(self.log_scale)

    @property
    def variance(self) -> jax.Array:
        """Prior variances of the weights, shape (m,). O(k·m²)."""
        return jnp.sum(self.apply_root(jnp.eye(self.num_weights, dtype=self.log_scale.dtype)) ** 2, axis=1)

    def diagonal_along(self, num_orthonormal: int) -> DiagonalAxes | None:
        """The prior along its principal axes, if all reflections are of the first ``num_orthonormal`` weights."""
        if self.vectors.shape[1] > num_orthonormal:
            return None
        mean = None if self.mean is None else self.to_axes(self.mean[:, None])[:, 0]
        return DiagonalAxes(DiagonalPrior.from_log_scale(self.log_scale, mean), self.to_axes, "O(k·m)")

    def apply(self, vectors: Any) -> jax.Array:
        """``Cv`` for each column of ``vectors`` (m, p). O(k·m·p)."""
        return self.apply_root(self.scale[:, None] * self.to_axes(vectors))

    def apply_root(self, vectors: Any) -> jax.Array:
        """``U diag(scale) v`` for each column of ``vectors`` (m, p). O(k·m·p)."""
        return self._reflect(self.scale[:, None] * vectors, reverse=True)

    def to_axes(self, vectors: Any) -> jax.Array:
        """``Uᵀv`` for each column of ``vectors`` (r or more, p): coordinates along the principal axes."""
        return self._reflect(vectors, reverse=False)

    def _reflect(self, vectors: jax.Array, reverse: bool) -> jax.Array:
        """Apply H₁, …, H_k in turn, or in reverse order."""
        size = self.vectors.shape[1]

        def reflect(x, v):
            return x - jnp.outer(v, (2 / jnp.sum(v**2)) * (v @ x)), None

        moved, _ = jax.lax.scan(reflect, vectors[:size], self.vectors, reverse=reverse)
        return jnp.concatenate([moved, vectors[size:]])
