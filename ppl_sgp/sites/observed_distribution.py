"""What the distributions over all rows at once share: their data, expansion, and guards against plates."""

from __future__ import annotations

import abc
import copy
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.primitives import _PYRO_STACK

from .._internal import checks


class ObservedDistribution(dist.Distribution):
    """Base of distributions of which one value stands for all rows, compressed or kept.

    Whatever a model observes by one of them, the posterior object, fits and diagnostics find, by
    :func:`~ppl_sgp.sites.tracing.observed_sites`. The batch ends in the outputs, if y has several columns.
    """

    reparametrized_params: list[str] = []

    #: Whether ``log_prob`` is ``log p(y | θ)``, the function integrated out.
    is_evidence: ClassVar[bool]
    #: What an evidence has beside ``log_prob`` of the data, for each member of the batch: more than none of bounds.
    beside_density: Any = 0.0
    #: Whether what is observed is a density of the data; a bound is none, and data cannot be drawn from it.
    is_density: bool = True
    noise_scale: jax.Array

    @property
    @abc.abstractmethod
    def data(self) -> Any:
        """What the distribution was made for: statistics, or rows."""

    @property
    @abc.abstractmethod
    def observed(self) -> Any:
        """The value that the data have, shape (event,) or (q, event)."""

    @property
    def batched_noise_scale(self) -> jax.Array:
        """The noise of every member of the batch."""
        return jnp.broadcast_to(self.noise_scale, self.batch_shape)

    def expand(self, batch_shape: tuple[int, ...]) -> dist.Distribution:
        """Expand as any distribution; but refuse a plate that would count the data again."""
        batch_shape = tuple(batch_shape)
        _refuse_plates(type(self).__name__, batch_shape, jnp.shape(self.observed)[:-1])
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
            f"{'with a subsampling scale' if subsampled else 'once for each of its elements'}. Move it outside the "
            "data plate: it needs none, and no subsampling. A plate over outputs must have the size of y's columns."
        )


def not_enumerated(batch_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The batch without the axes, left of all plates, along which NumPyro sums over values of discrete sites."""
    for handler in _PYRO_STACK:
        first = getattr(handler, "first_available_dim", None)
        if first is not None:
            return batch_shape[max(0, len(batch_shape) + first + 1) :]
    return batch_shape


def check_noise(owner: str, noise_scale: Any) -> None:
    """Refuse noise that is not positive, and distributions of it."""
    if isinstance(noise_scale, dist.Distribution):
        raise ValueError(
            f"{owner}: `noise_scale` is the standard deviation of Gaussian noise; got a {type(noise_scale).__name__} "
            "distribution. Sample it first: `numpyro.sample('noise_scale', ...)`. For another likelihood make the "
            "statistics by `sgp.compress_likelihood`, or keep the weights explicit, as `sgp.latent` does."
        )
    checks.positive("noise_scale", noise_scale, owner)
