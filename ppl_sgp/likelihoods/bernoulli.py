"""Two classes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import ndtr

from .._internal.pytree import pytree_dataclass, static
from .likelihood import Derivatives, Likelihood, checked_columns, require_rows
from .normal_tails import excess, hazard, log_cdf

LINKS = ("logit", "probit")


@pytree_dataclass
class Bernoulli(Likelihood):
    """``y ∈ {0, 1}`` with ``P(y = 1) = σ(η)``, the logistic function, or ``Φ(η)``, the normal distribution function.

    :param link: ``"logit"`` or ``"probit"``.
    :raises ValueError: for another link.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> sgp.likelihoods.Bernoulli().derivatives(0.0, 1.0)
        Derivatives(log_prob=Array(-0.693..., gradient=Array(0.5, ..., curvature=Array(0.25, ...
    """

    is_log_concave = True

    link: str = static(default="logit")

    def __post_init__(self) -> None:
        """Refuse unknown links."""
        if self.link not in LINKS:
            raise ValueError(f"Bernoulli: `link` must be one of {LINKS}; got {self.link!r}.")

    def log_prob(self, eta: Any, y: Any, parameters: Any = ()) -> jax.Array:
        """Log probability of each row's class."""
        eta, (y,) = self.aligned(eta, y)
        towards = (2 * y - 1) * eta
        return jax.nn.log_sigmoid(towards) if self.link == "logit" else log_cdf(towards)

    def derivatives(self, eta: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """In closed form, with all digits in both tails."""
        eta, (y,) = self.aligned(eta, y)
        sign = 2 * y - 1
        towards = sign * eta
        if self.link == "logit":
            missing = jax.nn.sigmoid(-towards)
            return Derivatives(jax.nn.log_sigmoid(towards), sign * missing, missing * jax.nn.sigmoid(towards))
        h = hazard(towards)
        return Derivatives(log_cdf(towards), sign * h, h * excess(towards))

    def distribution(self, eta: Any, parameters: Any = (), y: Any = None) -> dist.Distribution:
        """Bernoulli of the class."""
        return dist.BernoulliLogits(eta) if self.link == "logit" else dist.BernoulliProbs(ndtr(jnp.asarray(eta)))

    def mean(self, eta: Any, parameters: Any = (), y: Any = None) -> jax.Array:
        """Probability of class one."""
        return jax.nn.sigmoid(jnp.asarray(eta)) if self.link == "logit" else ndtr(jnp.asarray(eta))

    def check(self, y: Any, first_row: int = 0, owner: str = "compress_likelihood") -> np.ndarray:
        """Zeros and ones, or Booleans."""
        y = checked_columns(self, y, owner)
        require_rows(lambda block: (block == 0) | (block == 1), y, first_row, "0 or 1", owner)
        return y
