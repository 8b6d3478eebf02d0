"""Positive outcomes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from .._internal.pytree import pytree_dataclass, static
from .likelihood import Derivatives, checked_columns, require_rows
from .positive import PositiveParameters


@pytree_dataclass
class Gamma(PositiveParameters):
    """Gamma distributed outcomes of mean ``exp(η)`` and variance ``mean²/concentration``.

    :param concentration: a positive number to hold fixed, or ``dist.LogNormal``; by default free under a log-normal
        prior of median 3 and log sd 1.5. One makes exponential distributions.
    :raises ValueError: for anything else.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> float(sgp.likelihoods.Gamma(1.0).log_prob(0.0, 2.0))
        -2.0
    """

    concentration: Any = static(default=None)

    positive = ("concentration",)
    is_log_concave = True

    def default_priors(self, y: np.ndarray) -> dict[str, tuple[float, float]]:
        """Weakly informative."""
        return {"concentration": (np.log(3.0), 1.5)}

    def log_prob(self, eta: Any, y: Any, parameters: Any = ()) -> jax.Array:
        """Log density of each outcome."""
        eta, (y,) = self.aligned(eta, y)
        (log_k,) = self.logarithms(parameters, eta.dtype)
        return _log_density(jnp.exp(log_k), log_k, jnp.log(y) - eta, jnp.exp(jnp.log(y) - eta), y)

    def derivatives(self, eta: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """In closed form."""
        eta, (y,) = self.aligned(eta, y)
        (log_k,) = self.logarithms(parameters, eta.dtype)
        k, relative = jnp.exp(log_k), jnp.exp(jnp.log(y) - eta)
        return Derivatives(self.log_prob(eta, y, parameters), k * (relative - 1), k * relative)

    def averaged(self, mean: Any, covariance: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """In closed form: the average of ``exp(−η)`` is ``exp(−m + s²/2)``."""
        mean, (y,) = self.aligned(mean, y)
        (log_k,) = self.logarithms(parameters, mean.dtype)
        k, log_y = jnp.exp(log_k), jnp.log(y)
        relative = jnp.exp(log_y - mean + 0.5 * jnp.asarray(covariance, mean.dtype))
        log_prob = _log_density(k, log_k, log_y - mean, relative, y)
        return Derivatives(log_prob, k * (relative - 1), k * relative)

    def distribution(self, eta: Any, parameters: Any = (), y: Any = None) -> dist.Distribution:
        """Gamma of the outcome."""
        eta = jnp.asarray(eta)
        (log_k,) = self.logarithms(parameters, eta.dtype)
        return dist.Gamma(jnp.exp(log_k), jnp.exp(log_k - eta))

    def start(self, y: Any) -> jax.Array:
        """The logarithm of the outcome."""
        return jnp.log(jnp.asarray(y))

    def check(self, y: Any, first_row: int = 0, owner: str = "compress_likelihood") -> np.ndarray:
        """Positive numbers."""
        y = checked_columns(self, y, owner)
        require_rows(lambda block: (block > 0) & np.isfinite(block), y, first_row, "positive and finite", owner)
        return y


def _log_density(
    k: jax.Array, log_k: jax.Array, log_relative: jax.Array, relative: jax.Array, y: jax.Array
) -> jax.Array:
    """With ``relative`` the outcome over its mean, and its logarithm, both perhaps averages."""
    return k * log_k - gammaln(k) + k * (log_relative - relative) - jnp.log(y)
