"""Counts that vary more than those of a Poisson distribution."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from .._internal.pytree import pytree_dataclass, static
from .counts import Counts
from .likelihood import Derivatives
from .positive import PositiveParameters


@pytree_dataclass
class NegativeBinomial(Counts, PositiveParameters):
    """Counts of mean ``μ = exp(η)`` and variance ``μ + μ²/concentration``. Exposure enters as an offset.

    :param concentration: a positive number to hold fixed, or ``dist.LogNormal``; by default free under a log-normal
        prior of median 3 and log sd 1.5.
    :raises ValueError: for anything else.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> sgp.likelihoods.NegativeBinomial().parameter_names, sgp.likelihoods.NegativeBinomial(2.0).parameter_names
        (('concentration',), ())
    """

    concentration: Any = static(default=None)

    positive = ("concentration",)

    def default_priors(self, y: np.ndarray) -> dict[str, tuple[float, float]]:
        """Weakly informative: the counts vary from little more to several times more than Poisson ones."""
        return {"concentration": (np.log(3.0), 1.5)}

    def log_prob(self, eta: Any, y: Any, parameters: Any = ()) -> jax.Array:
        """Log probability of each count."""
        eta, (y,) = self.aligned(eta, y)
        (log_r,) = self.logarithms(parameters, eta.dtype)
        r, t = jnp.exp(log_r), eta - log_r
        return gammaln(y + r) - gammaln(r) - gammaln(y + 1) + y * t - (y + r) * jax.nn.softplus(t)

    def derivatives(self, eta: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """In closed form."""
        eta, (y,) = self.aligned(eta, y)
        (log_r,) = self.logarithms(parameters, eta.dtype)
        r, t = jnp.exp(log_r), eta - log_r
        p, q = jax.nn.sigmoid(t), jax.nn.sigmoid(-t)
        return Derivatives(self.log_prob(eta, y, parameters), y * q - r * p, (y + r) * p * q)

    def distribution(self, eta: Any, parameters: Any = (), y: Any = None) -> dist.Distribution:
        """Negative binomial of the count."""
        eta = jnp.asarray(eta)
        (log_r,) = self.logarithms(parameters, eta.dtype)
        return dist.NegativeBinomial2(jnp.exp(eta), jnp.exp(log_r))

    def mean(self, eta: Any, parameters: Any = (), y: Any = None) -> jax.Array:
        """The rate."""
        return jnp.exp(jnp.asarray(eta))
