"""Counts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from .._internal.pytree import pytree_dataclass
from .counts import Counts
from .likelihood import Derivatives


@pytree_dataclass
class Poisson(Counts):
    """Counts of rate ``exp(η)``. Exposure enters as an offset, its logarithm.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> float(sgp.likelihoods.Poisson().mean(0.0))
        1.0
    """

    def log_prob(self, eta: Any, y: Any, parameters: Any = ()) -> jax.Array:
        """Log probability of each count."""
        eta, (y,) = self.aligned(eta, y)
        return y * eta - jnp.exp(eta) - gammaln(y + 1)

    def derivatives(self, eta: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """In closed form."""
        eta, (y,) = self.aligned(eta, y)
        rate = jnp.exp(eta)
        return Derivatives(y * eta - rate - gammaln(y + 1), y - rate, rate)

    def averaged(self, mean: Any, covariance: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """In closed form: the average rate is ``exp(m + s²/2)``."""
        mean, (y,) = self.aligned(mean, y)
        rate = jnp.exp(mean + 0.5 * jnp.asarray(covariance, mean.dtype))
        return Derivatives(y * mean - rate - gammaln(y + 1), y - rate, rate)

    def distribution(self, eta: Any, parameters: Any = (), y: Any = None) -> dist.Distribution:
        """Poisson of the count."""
        return dist.Poisson(jnp.exp(jnp.asarray(eta)))
