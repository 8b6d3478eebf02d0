"""Counts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from .._internal.pytree import pytree_dataclass
from .likelihood import Derivatives, Likelihood, checked_columns, require_rows


@pytree_dataclass
class Poisson(Likelihood):
    """Counts of rate ``exp(η)``. Exposure enters as an offset, its logarithm.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> float(sgp.likelihoods.Poisson().mean(0.0))
        1.0
    """

    is_log_concave = True
    takes_exposure = True

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

    def start(self, y: Any) -> jax.Array:
        """Log of a little more than the count."""
        return jnp.log(jnp.asarray(y) + 0.5)

    def check(self, y: Any, first_row: int = 0, owner: str = "compress_likelihood") -> np.ndarray:
        """Whole numbers of at least zero."""
        y = checked_columns(self, y, owner)
        wanted = "whole numbers of at least 0"
        require_rows(lambda b: (b >= 0) & np.isfinite(b) & (b == np.floor(b)), y, first_row, wanted, owner)
        return y
