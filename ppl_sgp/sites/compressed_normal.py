"""The same data given the weights: any prior on them, O(m·rank) a gradient, independent of n."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample
from numpyro.util import is_prng_key

from .. import evidence
from .._internal import checks
from .._internal.batching import vectorize
from ..statistics.statistics import SufficientStatistics
from .compressed_distribution import (
    CompressedDistribution,
    checked_noise,
    null_directions,
    project,
    sample_projection,
)


class CompressedNormal(CompressedDistribution):
    """The compressed data of ``y ~ N(Φw, σ²)``: ``c ~ N(Rw, σ²I)`` and ``rss ~ σ²χ²``, independent.

    ``log_prob`` is ``log p(y | w, σ)`` of the n rows with all constants. No factorisation is needed,
    and w may have any prior: horseshoe, Laplace, spike and slab, discrete.

    :param statistics: from :func:`~ppl_sgp.sufficient_statistics`.
    :param weights: w, shape batch + (m,). With q outputs, batch ends in q (one w an output) or in 1.
    :param noise_scale: standard deviation of the noise. Left out for compressed likelihoods.
    :raises ValueError: for arguments that do not fit, or if float32 cannot resolve these data.

    .. doctest::

        >>> import jax, jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), 10, 1)
        >>> stats = sgp.sufficient_statistics(basis, X, np.zeros(30))
        >>> data = sgp.CompressedNormal(stats, jnp.zeros(10), noise_scale=1.0)
        >>> round(float(data.log_prob(stats.projection)), 3)  # -15 log 2π
        -27.568
    """

    arg_constraints = {"weights": constraints.real_vector, "noise_scale": constraints.positive}
    is_evidence = False
    pytree_data_fields = ("statistics", "weights", "noise_scale")

    def __init__(
        self,
        statistics: SufficientStatistics,
        weights: Any,
        noise_scale: Any = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        noise_scale = checked_noise("CompressedNormal", statistics, noise_scale)
        if jnp.shape(weights)[-1:] != (statistics.num_weights,):
            raise ValueError(
                f"CompressedNormal: `weights` must have shape batch + ({statistics.num_weights},), one a "
                f"feature (and latent); got {jnp.shape(weights)}."
            )
        dtype = checks.common_dtype(weights, noise_scale)
        evidence.require_precision("CompressedNormal", statistics, dtype)
        self.statistics = statistics
        self.weights, self.noise_scale = jnp.asarray(weights, dtype), jnp.asarray(noise_scale, dtype)
        batch = {"noise_scale": self.noise_scale, "weights": self.weights[..., 0]}
        batch_shape = evidence.joint_batch("CompressedNormal", statistics, **batch)
        super().__init__(batch_shape, jnp.shape(statistics.projection)[-1:], validate_args=validate_args)

    @validate_sample
    def log_prob(self, value: Any) -> jax.Array:
        """``log p(y | w, σ)`` of the rows that compress to ``value``; −∞ where it cannot be represented."""
        dtype, compressed = self.noise_scale.dtype, self.statistics.compressed

        def one(value, fitted, noise_scale, constant, reference_scale):
            misfit = (jnp.sum((value[:-1] - fitted) ** 2) + value[-1]) / noise_scale**2
            # As in the evidence, only departures from the reference are multiplied by n.
            log_variance = 2 * jnp.log(noise_scale / reference_scale)
            return constant - 0.5 * (n * log_variance + misfit)

        n = jnp.asarray(self.statistics.moments.num_rows, dtype)
        arguments = (value, project(self.statistics, self.weights), self.noise_scale)
        constants = (compressed.log_constant, compressed.reference_variance**0.5)
        result = vectorize(one, "(p),(k),(),(),()->()", arguments + constants, dtype)
        return jnp.where(jnp.isnan(result), -jnp.inf, result)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw compressed data given the weights. O(m·rank) a draw."""
        assert is_prng_key(key)
        shape = sample_shape + self.batch_shape
        weights = jnp.broadcast_to(self.weights, (*shape, self.statistics.num_weights))
        return sample_projection(key, self.statistics, weights, jnp.broadcast_to(self.noise_scale, shape))

    @property
    def mean(self) -> jax.Array:
        """Mean of c and rss."""
        return self.joined_moments(project(self.statistics, self._batched_weights()), 1.0)

    @property
    def variance(self) -> jax.Array:
        """Variance of c and rss."""
        noise_variance = self.batched_noise_scale**2
        shape = (*self.batch_shape, self.event_shape[0] - 1)
        empty = null_directions(self.statistics, shape)
        c = jnp.where(empty, 0, jnp.broadcast_to(noise_variance[..., None], shape))
        return self.joined_moments(c, 2 * noise_variance)

    def _batched_weights(self) -> jax.Array:
        return jnp.broadcast_to(self.weights, (*self.batch_shape, self.statistics.num_weights))

    @staticmethod
    def infer_shapes(statistics: Any, weights: Any, noise_scale: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Batch and event shapes without evaluating anything."""
        shape = jnp.shape(statistics.projection)
        return jnp.broadcast_shapes(tuple(noise_scale), tuple(weights)[:-1], shape[:-1]), shape[-1:]
