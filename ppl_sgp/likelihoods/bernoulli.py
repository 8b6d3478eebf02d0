"""Two classes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import erfcx, log_ndtr, ndtr

from .._internal.pytree import pytree_dataclass, static
from .likelihood import Derivatives, Likelihood, checked_columns, require_rows

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
        return jax.nn.log_sigmoid(towards) if self.link == "logit" else log_ndtr(towards)

    def derivatives(self, eta: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """In closed form, with all digits in both tails."""
        eta, (y,) = self.aligned(eta, y)
        sign = 2 * y - 1
        towards = sign * eta
        if self.link == "logit":
            missing = jax.nn.sigmoid(-towards)
            return Derivatives(jax.nn.log_sigmoid(towards), sign * missing, missing * jax.nn.sigmoid(towards))
        return Derivatives(log_ndtr(towards), *_of_probit(sign, towards))

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


def _of_probit(sign: jax.Array, towards: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gradient ``±h`` and curvature ``h(h + z)`` with ``h = φ(z)/Φ(z)``, z being η towards the class."""
    h = jnp.sqrt(2 / jnp.pi).astype(towards.dtype) / erfcx(-towards * 2**-0.5)
    # Far on the wrong side h is −z + 1/|z|: its sum with z, which cancels, is a continued fraction.
    far = towards < -6
    t = jnp.where(far, -towards, 6)
    above = t
    for k in range(30, 1, -1):
        above = t + k / above
    return sign * h, jnp.where(far, h / above, h * (h + towards))
