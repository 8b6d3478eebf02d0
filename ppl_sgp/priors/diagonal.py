"""Independent weights."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .._internal import checks
from .._internal.pytree import pytree_dataclass, rebuild
from .prior import DiagonalAxes, WeightPrior


@pytree_dataclass
class DiagonalPrior(WeightPrior):
    """Independent Gaussian weights, ``w_j ~ N(mean_j, scale_j²)``.

    Kept in the log domain, because importance weights of Fourier features underflow long before
    their logarithms do.

    :param scale: prior standard deviations of the weights, shape ``batch + (m,)``; a scalar is
        shared by all features, whose number it does not know (:meth:`sized` gives it one). Positive and finite.
    :param mean: prior means, shape ``batch + (m,)``; ``None`` means zero. (Evans 2022, section 5.2.5.)
    :raises ValueError: if ``scale`` is not positive and finite, or ``mean`` not finite or of another size.

    .. doctest::

        >>> prior = DiagonalPrior([2.0, 2.0, 1.0])
        >>> prior.batch_shape, round(float(prior.effective_features), 2)
        ((), 2.45)
    """

    log_scale: Any
    mean: Any

    def __init__(self, scale: Any, mean: Any = None) -> None:
        checks.positive("scale", scale, "DiagonalPrior")
        scale = jnp.asarray(scale)
        self._store(jnp.log(scale.astype(checks.common_dtype(scale))), mean)

    def _store(self, log_scale: jax.Array, mean: Any) -> None:
        object.__setattr__(self, "log_scale", log_scale)
        if mean is not None:
            mean = jnp.asarray(checks.real_numbers("mean", mean, "DiagonalPrior"))
            if checks.is_concrete(mean) and not np.isfinite(np.asarray(mean)).all():
                raise ValueError("DiagonalPrior: `mean` must be finite; pass None for zero.")
            sizes = {shape[-1] for shape in (jnp.shape(log_scale), mean.shape) if shape} - {1}
            if len(sizes) > 1 or mean.ndim == 0:
                raise ValueError(
                    f"DiagonalPrior: `mean` must have one entry a weight, shape batch + (m,); got shape {mean.shape} "
                    f"for scales of shape {jnp.shape(log_scale)}."
                )
        object.__setattr__(self, "mean", mean)

    @classmethod
    def from_log_scale(cls, log_scale: Any, mean: Any = None) -> DiagonalPrior:
        """The prior with the given logarithms of standard deviations, which may be very negative.

        :param log_scale: natural logarithms of the standard deviations, shape ``batch + (m,)``.
        :param mean: prior means, shape ``batch + (m,)``, or ``None`` for zero.
        """
        prior = rebuild(cls, {})
        prior._store(jnp.asarray(log_scale), mean)
        return prior

    @property
    def num_weights(self) -> int | None:
        """The number of weights m; ``None`` if one scale is shared by all features, of any number."""
        arrays = [array for array in (self.log_scale, self.mean) if array is not None and jnp.ndim(array)]
        return max((jnp.shape(array)[-1] for array in arrays), default=None)

    @property
    def independent(self) -> np.ndarray:
        """Whether each weight is independent of all others: all are, shape (m,); (1,) if all share one scale."""
        return np.ones(self.num_weights or 1, dtype=bool)

    def sized(self, num_weights: int) -> DiagonalPrior:
        """The same prior with one entry for each of ``num_weights`` weights, from one shared by all too.

        :param num_weights: the number of weights m.
        :raises ValueError: for a prior of another number of weights.

        .. doctest::

            >>> DiagonalPrior(2.0).sized(3).variance.tolist()
            [4.0, 4.0, 4.0]
        """
        if self.num_weights not in (None, 1):
            super().sized(num_weights)
        shape = (*jnp.shape(self.log_scale)[:-1], num_weights)
        return DiagonalPrior.from_log_scale(jnp.broadcast_to(self.log_scale, shape), self.mean)

    @property
    def scale(self) -> jax.Array:
        """Prior standard deviations, shape ``batch + (m,)``; () if all weights share one."""
        return jnp.exp(self.log_scale)

    @property
    def variance(self) -> jax.Array:
        """Prior variances, shape ``batch + (m,)``; () if all weights share one."""
        return jnp.exp(2 * self.log_scale)

    @property
    def log_variance(self) -> jax.Array:
        """Logarithms of the prior variances, shape ``batch + (m,)``; (1,) if all weights share one."""
        return 2 * jnp.atleast_1d(self.log_scale)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of a batch of priors; ``()`` for one."""
        mean_shape = () if self.mean is None else jnp.shape(self.mean)[:-1]
        return jnp.broadcast_shapes(jnp.shape(self.log_scale)[:-1], mean_shape)

    def diagonal_along(self, num_orthonormal: int) -> DiagonalAxes:
        """Itself: its axes are those of the weights."""
        return DiagonalAxes(self, None, "O(m)")

    def apply(self, vectors: Any) -> jax.Array:
        """``Cv`` for each column of ``vectors`` (m, k), for a single prior."""
        return jnp.atleast_1d(self.variance)[:, None] * vectors

    def apply_root(self, vectors: Any) -> jax.Array:
        """``C^½v`` for each column of ``vectors`` (m, k), for a single prior."""
        return jnp.atleast_1d(self.scale)[:, None] * vectors

    @property
    def covariance(self) -> jax.Array:
        """The covariance C of the weights, shape (m, m), of a single prior. O(m²) memory.

        :raises ValueError: for one scale shared by an unknown number of weights, or a batch of priors.
        """
        m = self._known_size("covariance")
        if self.batch_shape:
            raise ValueError(
                f"DiagonalPrior.covariance is of a single prior; this is a batch of shape {self.batch_shape}. "
                "`variance` has the diagonals."
            )
        return jnp.diag(jnp.broadcast_to(self.variance, (m,)))

    def distribution(self) -> dist.Distribution:
        """The prior as a NumPyro distribution over w, for models that keep their weights.

        :raises ValueError: for one scale shared by an unknown number of weights.
        """
        m = self._known_size("distribution()")
        mean = jnp.zeros((m,), self.log_scale.dtype) if self.mean is None else self.mean
        scale = self.scale if self.scale.ndim else self.scale[None]
        shape = jnp.broadcast_shapes(mean.shape, scale.shape, (m,))
        return dist.Normal(jnp.broadcast_to(mean, shape), jnp.broadcast_to(scale, shape)).to_event(1)

    def _known_size(self, name: str) -> int:
        if self.num_weights is None:
            raise ValueError(
                f"DiagonalPrior.{name} needs the number of weights, which one scale shared by all does not say. Give "
                "it by `prior.sized(m)`, or pass one entry a weight, `DiagonalPrior(jnp.full(m, scale))`."
            )
        return self.num_weights
