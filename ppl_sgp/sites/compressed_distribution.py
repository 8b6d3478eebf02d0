"""What the distributions over compressed data share: their support, residual draws and guards against plates."""

from __future__ import annotations

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.primitives import _PYRO_STACK

from .._internal import checks
from .._internal.batching import full_precision
from ..statistics.statistics import SufficientStatistics


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


class CompressedDistribution(dist.Distribution):
    """Base of distributions whose value is ``statistics.projection``: c and rss joined.

    ``log_prob`` of subclasses is the density of the n rows behind the compression: with respect to
    ``dc · π^(ν/2)/Γ(ν/2) rss^(ν/2−1) d rss``, ν = n − rank, the image of Lebesgue measure on rows.
    """

    support = compressed_data
    reparametrized_params: list[str] = []

    statistics: SufficientStatistics
    noise_scale: jax.Array

    @property
    def batched_noise_scale(self) -> jax.Array:
        """The noise of every member of the batch."""
        return jnp.broadcast_to(self.noise_scale, self.batch_shape)

    def joined_moments(self, c: jax.Array, multiple: Any) -> jax.Array:
        """Moments of c, shape batch + (rank,), joined with ``multiple·σ²·(n − rank)`` for rss."""
        dof = jnp.asarray(self.statistics.moments.num_rows - self.statistics.compressed.rank, c.dtype)
        return jnp.concatenate([c, (multiple * self.batched_noise_scale**2 * dof)[..., None]], axis=-1)

    def expand(self, batch_shape: tuple[int, ...]) -> dist.Distribution:
        """Expand as any distribution; but refuse a plate that would count the data again."""
        batch_shape = tuple(batch_shape)
        _refuse_plates(type(self).__name__, batch_shape, jnp.shape(self.statistics.projection)[:-1])
        # Of the same class, so that a plate around an expanded site asks here again.
        expanded = copy.copy(self)
        expanded.noise_scale = jnp.broadcast_to(self.noise_scale, batch_shape)
        expanded._batch_shape = batch_shape
        return expanded


def _refuse_plates(owner: str, batch_shape: tuple[int, ...], own_shape: tuple[int, ...]) -> None:
    """``own_shape`` is that of the outputs: the one batch which does not repeat the data."""
    # NumPyro's plates, and those that stand in for them while it enumerates discrete sites.
    plates = [handler for handler in _PYRO_STACK if hasattr(handler, "subsample_size")]
    subsampled = [p for p in plates if p.subsample_size != p.size]
    repeated = bool(plates) and int(np.prod(not_enumerated(batch_shape))) != int(np.prod(own_shape))
    if subsampled or repeated:
        name = (subsampled or plates)[-1].name
        raise ValueError(
            f"{owner} stands for all rows at once, but is inside the plate {name!r}, which would count the data "
            f"{'with a subsampling scale' if subsampled else 'once for each of its elements'}. Move "
            "`sgp.observe` outside the data plate: no plate or subsampling is needed, since its cost does not "
            "depend on the number of rows. A plate over outputs must have the size of y's columns."
        )


def not_enumerated(batch_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The batch without the axes, left of all plates, along which NumPyro sums over values of discrete sites."""
    for handler in _PYRO_STACK:
        first = getattr(handler, "first_available_dim", None)
        if first is not None:
            return batch_shape[max(0, len(batch_shape) + first + 1) :]
    return batch_shape


def check_arguments(owner: str, statistics: Any, noise_scale: Any) -> None:
    """Refuse wrong types, noise that is not positive, and float32 where it cannot keep its promise."""
    if not isinstance(statistics, SufficientStatistics):
        raise ValueError(
            f"{owner}: `statistics` must come from sgp.sufficient_statistics(basis, X, y); got "
            f"{type(statistics).__name__}. Rows are compressed once, outside the model."
        )
    statistics.require_one_group(owner)
    if isinstance(noise_scale, dist.Distribution):
        raise ValueError(
            f"{owner}: `noise_scale` is the standard deviation of Gaussian noise; got a {type(noise_scale).__name__} "
            "distribution. Sample it first: `numpyro.sample('noise_scale', ...)`. For another likelihood keep the "
            "weights explicit and use any distribution of `basis(X) @ w`."
        )
    checks.positive("noise_scale", noise_scale, owner)


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
