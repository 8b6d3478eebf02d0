"""What the distributions over compressed data share: their support and residual draws."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import constraints

from .._internal.batching import full_precision
from ..statistics.kept_rows import Rows
from ..statistics.statistics import SufficientStatistics
from .observed_distribution import ObservedDistribution, check_noise


class _CompressedData(constraints.Constraint):
    """Vectors whose last entry, a residual sum of squares, is not negative."""

    event_dim = 1

    def __call__(self, x: Any) -> jax.Array:
        return jnp.asarray(x)[..., -1] >= 0

    def feasible_like(self, prototype: Any) -> jax.Array:
        return jnp.ones_like(prototype)

    def tree_flatten(self):
        return (), ((), {})


compressed_data = _CompressedData()


class CompressedDistribution(ObservedDistribution):
    """Base of distributions whose value is ``statistics.projection``: c and rss joined.

    ``log_prob`` of subclasses is the density of the n rows behind the compression: with respect to
    ``dc · π^(ν/2)/Γ(ν/2) rss^(ν/2−1) d rss``, ν = n − rank, the image of Lebesgue measure on rows.
    """

    support = compressed_data

    statistics: SufficientStatistics

    @property
    def data(self) -> SufficientStatistics:
        """The statistics."""
        return self.statistics

    @property
    def observed(self) -> Any:
        """The compressed data."""
        return self.statistics.projection

    def joined_moments(self, c: jax.Array, multiple: Any) -> jax.Array:
        """Moments of c, shape batch + (rank,), joined with ``multiple·σ²·(n − rank)`` for rss."""
        dof = jnp.asarray(self.statistics.moments.num_rows - self.statistics.compressed.rank, c.dtype)
        return jnp.concatenate([c, (multiple * self.batched_noise_scale**2 * dof)[..., None]], axis=-1)


def checked_noise(owner: str, statistics: Any, noise_scale: Any) -> Any:
    """The noise scale; wrong types are refused, and noise that is not positive, or not of these statistics."""
    if not isinstance(statistics, SufficientStatistics):
        kept = " An exact GP observes rows as they are: `sgp.observe_exact`." if isinstance(statistics, Rows) else ""
        raise ValueError(
            f"{owner}: `statistics` must come from sgp.sufficient_statistics(basis, X, y); got "
            f"{type(statistics).__name__}. Rows are compressed once, outside the model.{kept}"
        )
    statistics.require_one_group(owner)
    noise_scale = statistics.noise_scale_of(owner, noise_scale)
    check_noise(owner, noise_scale)
    return noise_scale


def sample_residual(key: jax.Array, statistics: SufficientStatistics, noise_scale: jax.Array) -> jax.Array:
    """Draw rss ~ σ²χ² with n − rank degrees of freedom (zero if there are none), in the shape of ``noise_scale``."""
    dof = jnp.asarray(statistics.moments.num_rows - statistics.compressed.rank, noise_scale.dtype)
    half = jnp.maximum(dof / 2, 0.5)
    return jnp.where(dof > 0, 2 * noise_scale**2 * jax.random.gamma(key, half, noise_scale.shape, noise_scale.dtype), 0)


def project(statistics: SufficientStatistics, weights: jax.Array) -> jax.Array:
    """``Rw`` for weights of shape batch + (m,)."""
    factor = jnp.asarray(statistics.compressed.factor, weights.dtype)
    with full_precision():
        return weights * jnp.broadcast_to(factor, weights.shape) if factor.ndim == 1 else weights @ factor.T


def sample_projection(
    key: jax.Array, statistics: SufficientStatistics, weights: jax.Array, noise_scale: jax.Array
) -> jax.Array:
    """Draw compressed data given weights of shape batch + (m,) and noise of shape batch. O(m·rank) each."""
    key_c, key_rss = jax.random.split(key)
    mean = project(statistics, weights)
    noise = noise_scale[..., None] * jax.random.normal(key_c, mean.shape, mean.dtype)
    c = mean + jnp.where(null_directions(statistics, mean.shape), 0, noise)
    return jnp.concatenate([c, sample_residual(key_rss, statistics, noise_scale)[..., None]], axis=-1)


def null_directions(statistics: SufficientStatistics, shape: tuple[int, ...]) -> jax.Array:
    """Which entries of c carry no data: null directions of a diagonal Gram matrix, and rows beyond the rank."""
    factor = jnp.asarray(statistics.compressed.factor)
    empty = factor == 0 if factor.ndim == 1 else jnp.all(factor == 0, axis=1)
    return jnp.broadcast_to(empty, shape)
