"""Shares, strictly between zero and one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.nn import log_sigmoid
from jax.scipy.special import gammaln

from .._internal.pytree import pytree_dataclass, static
from .likelihood import checked_columns, require_rows
from .positive import PositiveParameters


@pytree_dataclass
class Beta(PositiveParameters):
    """Beta distributed shares of mean ``μ = σ(η)`` and variance ``μ(1 − μ)/(1 + concentration)``.

    :param concentration: a positive number to hold fixed, or ``dist.LogNormal``; by default free under a log-normal
        prior of median 10 and log sd 1.5.
    :raises ValueError: for anything else.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> float(sgp.likelihoods.Beta(2.0).mean(0.0))  # uniform
        0.5
    """

    concentration: Any = static(default=None)

    positive = ("concentration",)

    def default_priors(self, y: np.ndarray) -> dict[str, tuple[float, float]]:
        """Weakly informative."""
        return {"concentration": (np.log(10.0), 1.5)}

    def log_prob(self, eta: Any, y: Any, parameters: Any = ()) -> jax.Array:
        """Log density of each share.

        ``log Γ(a) = log Γ(1 + a) − log a`` and the logarithm of a is known, so that nothing overflows for small a.
        """
        eta, (y,) = self.aligned(eta, y)
        (log_phi,) = self.logarithms(parameters, eta.dtype)
        log_a, log_b = log_phi + log_sigmoid(eta), log_phi + log_sigmoid(-eta)
        a, b = jnp.exp(log_a), jnp.exp(log_b)
        normaliser = gammaln(1 + jnp.exp(log_phi)) - log_phi - gammaln(1 + a) + log_a - gammaln(1 + b) + log_b
        return normaliser + (a - 1) * jnp.log(y) + (b - 1) * jnp.log1p(-y)

    def distribution(self, eta: Any, parameters: Any = (), y: Any = None) -> dist.Distribution:
        """Beta of the share."""
        eta = jnp.asarray(eta)
        (log_phi,) = self.logarithms(parameters, eta.dtype)
        return dist.BetaProportion(jax.nn.sigmoid(eta), jnp.exp(log_phi))

    def mean(self, eta: Any, parameters: Any = (), y: Any = None) -> jax.Array:
        """The mean share."""
        return jax.nn.sigmoid(jnp.asarray(eta))

    def start(self, y: Any) -> jax.Array:
        """The logit of the share."""
        y = jnp.asarray(y)
        return jnp.log(y) - jnp.log1p(-y)

    def check(self, y: Any, first_row: int = 0, owner: str = "compress_likelihood") -> np.ndarray:
        """Numbers strictly between zero and one."""
        y = checked_columns(self, y, owner)
        require_rows(lambda block: (block > 0) & (block < 1), y, first_row, "strictly between 0 and 1", owner)
        return y
