"""The evidence site: compressed data with the weights marginalised."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample
from numpyro.util import is_prng_key

from .. import evidence
from .._internal import checks
from ..evidence import joint
from ..priors import WeightPrior
from ..statistics.statistics import SufficientStatistics
from .compressed_distribution import (
    CompressedDistribution,
    checked_noise,
    null_directions,
    project,
    sample_projection,
)


class SparseGP(CompressedDistribution):
    """The compressed data of a sparse GP regression, with its weights marginalised.

    Given hyperparameters, ``c ~ N(Rμ, RS⁻¹Rᵀ + σ²I)`` and ``rss ~ σ²χ²``, independent. ``log_prob``
    is ``log p(y | θ)`` of the n rows with all constants (see :func:`~ppl_sgp.log_evidence` for
    formulas, costs and sources); ``sample`` draws compressed data at a cost independent of n, so
    prior predictive, ``condition``, ``scale``, ``mask`` and simulation-based calibration all work.

    Batch shape: that of prior and noise, with outputs (if y has several columns) as the last axis.
    Event shape: that of one output's ``statistics.projection``.

    :param statistics: from :func:`~ppl_sgp.sufficient_statistics`.
    :param prior: prior of the weights.
    :param noise_scale: standard deviation of the noise. Left out for compressed likelihoods.
    :raises ValueError: for arguments that do not fit, or if float32 cannot resolve these data.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), 10, 1)
        >>> stats = sgp.sufficient_statistics(basis, X, np.cos(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0]))
        >>> site = sgp.SparseGP(stats, basis.weight_prior(sgp.Matern32(0.3)), noise_scale=0.1)
        >>> site.event_shape == stats.projection.shape, site.sample(jax.random.key(1), (3,)).shape[0]
        (True, 3)
    """

    arg_constraints = {"noise_scale": constraints.positive}
    is_evidence = True
    pytree_data_fields = ("statistics", "prior", "noise_scale")

    def __init__(
        self,
        statistics: SufficientStatistics,
        prior: WeightPrior,
        noise_scale: Any = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        noise_scale = checked_noise("SparseGP", statistics, noise_scale)
        prior = evidence.checked_prior(statistics, prior)
        dtype = checks.common_dtype(*jax.tree.leaves(prior), noise_scale)
        evidence.require_precision("SparseGP", statistics, dtype)
        self.statistics, self.prior = statistics, prior
        self.noise_scale = jnp.asarray(noise_scale, dtype)
        batch_shape = evidence.joint_batch("SparseGP", statistics, noise_scale=noise_scale, prior=prior)
        super().__init__(batch_shape, jnp.shape(statistics.projection)[-1:], validate_args=validate_args)

    @validate_sample
    def log_prob(self, value: Any) -> jax.Array:
        """``log p(y | θ)`` of the rows that compress to ``value``; −∞ where it cannot be represented."""
        return _log_prob(self.statistics, self.prior, self.noise_scale, value)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw compressed data: weights from the prior, then data given weights. O(m·rank) a draw."""
        assert is_prng_key(key)
        key_w, key_data = jax.random.split(key)
        shape = sample_shape + self.batch_shape
        z = jax.random.normal(key_w, (*shape, self.statistics.num_weights), self.noise_scale.dtype)
        weights = jnp.broadcast_to(self._broadcast(self._prior_mean()), z.shape) + self._root_times(z)
        return sample_projection(key_data, self.statistics, weights, jnp.broadcast_to(self.noise_scale, shape))

    @property
    def mean(self) -> jax.Array:
        """Prior mean of c and rss."""
        return self.joined_moments(project(self.statistics, self._broadcast(self._prior_mean())), 1.0)

    @property
    def variance(self) -> jax.Array:
        """Prior variance of c and rss."""
        explained, noise_variance = self._explained_variance(), self.batched_noise_scale**2
        empty = null_directions(self.statistics, explained.shape)
        return self.joined_moments(explained + jnp.where(empty, 0, noise_variance[..., None]), 2 * noise_variance)

    def _explained_variance(self) -> jax.Array:
        """The diagonal of ``RS⁻¹Rᵀ``, shape batch + (rank,)."""
        factor = jnp.asarray(self.statistics.compressed.factor, self.noise_scale.dtype)
        if self.prior.diagonal_along(0) is None:
            R = joint.dense_factor(self.statistics, self.noise_scale.dtype)
            explained = jnp.sum(R * self.prior.apply(R.T).T, axis=1)
            return jnp.broadcast_to(explained, (*self.batch_shape, len(R)))
        variance = self._broadcast(self.prior.variance)
        return (
            variance * jnp.broadcast_to(factor, variance.shape) ** 2 if factor.ndim == 1 else variance @ (factor**2).T
        )

    def _root_times(self, z: jax.Array) -> jax.Array:
        """Draws of the weights about their mean, from standard normals of shape (…, m)."""
        axes = self.prior.diagonal_along(0)
        if axes is not None:  # perhaps a batch
            return z * jnp.broadcast_to(axes.prior.scale, z.shape)
        return self.prior.apply_root(z.reshape(-1, z.shape[-1]).T).T.reshape(z.shape)

    def _prior_mean(self) -> jax.Array:
        return jnp.zeros((), self.noise_scale.dtype) if self.prior.mean is None else self.prior.mean

    def _broadcast(self, weights: jax.Array) -> jax.Array:
        """To shape batch + (m,)."""
        return jnp.broadcast_to(weights, (*self.batch_shape, self.statistics.num_weights))

    @staticmethod
    def infer_shapes(statistics: Any, prior: Any, noise_scale: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Batch and event shapes without evaluating anything."""
        shape = jnp.shape(statistics.projection)
        return jnp.broadcast_shapes(tuple(noise_scale), prior.batch_shape, shape[:-1]), shape[-1:]


@jax.jit
def _log_prob(statistics: SufficientStatistics, prior: WeightPrior, noise_scale: Any, value: Any) -> jax.Array:
    result = evidence.evaluate(statistics, prior, noise_scale, value)
    return jnp.where(jnp.isnan(result), -jnp.inf, result)
