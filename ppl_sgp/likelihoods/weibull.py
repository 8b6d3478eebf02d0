"""Times to an event, known exactly, or to lie beyond or between bounds."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .._internal.pytree import pytree_dataclass, static
from .censored import middle
from .likelihood import checked_columns, require_rows
from .normal_tails import log_one_minus_exp
from .positive import PositiveParameters


@pytree_dataclass
class Weibull(PositiveParameters):
    """Survival times, ``P(time > t) = exp(−(t/eᶯ)ᵏ)``, of which each row knows an interval: ``y = (lower, upper)``.

    η is the logarithm of the scale (accelerated failure time), k the concentration. Equal bounds are an exact time,
    ``(t, ∞)`` one censored at t, ``(0, t)`` an event before t. :meth:`distribution` is of the time itself.

    :param concentration: a positive number to hold fixed, or ``dist.LogNormal``; by default free under a log-normal
        prior of median 1 and log sd 1. One makes exponential distributions.
    :raises ValueError: for anything else.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> rows = np.array([[2.0, 2.0], [2.0, np.inf]])
        >>> sgp.likelihoods.Weibull(1.0).log_prob(np.zeros(2), rows).tolist()
        [-2.0, -2.0]
    """

    concentration: Any = static(default=None)

    positive = ("concentration",)
    num_columns = 2
    is_log_concave = True

    def default_priors(self, y: np.ndarray) -> dict[str, tuple[float, float]]:
        """From hazards that fall to hazards that rise."""
        return {"concentration": (0.0, 1.0)}

    def log_prob(self, eta: Any, y: Any, parameters: Any = ()) -> jax.Array:
        """Log density of exact rows, log probability of the interval of others."""
        eta, (lower, upper) = self.aligned(eta, y)
        (log_k,) = self.logarithms(parameters, eta.dtype)
        k, exact, from_zero, open_ = jnp.exp(log_k), lower == upper, lower == 0, jnp.isinf(upper)
        log_lower = jnp.log(jnp.where(from_zero, 1, lower))
        log_upper = jnp.log(jnp.where(open_, 1, upper))
        # Logarithms of the cumulative hazards; of their difference in an interval.
        at_lower, at_upper = k * (log_lower - eta), k * (log_upper - eta)
        survived = jnp.where(from_zero, 0, jnp.exp(at_lower))
        within = ~(exact | open_)
        inner = within & ~from_zero
        ratio = jnp.where(inner, k * (log_upper - log_lower), 1)
        hazard = jnp.where(within, at_upper + jnp.where(inner, log_one_minus_exp(ratio), 0), 0)
        density = log_k - log_lower + at_lower - survived
        return jnp.where(exact, density, -survived + jnp.where(within, _log_event(hazard), 0))

    def distribution(self, eta: Any, parameters: Any = (), y: Any = None) -> dist.Distribution:
        """Weibull of the time, without censoring."""
        eta = jnp.asarray(eta)
        (log_k,) = self.logarithms(parameters, eta.dtype)
        return dist.Weibull(jnp.exp(eta), jnp.exp(log_k))

    def start(self, y: Any) -> jax.Array:
        """The logarithm of the middle of the interval, or of its finite bound."""
        return jnp.log(middle(jnp.asarray(y)))

    def check(self, y: Any, first_row: int = 0, owner: str = "compress_likelihood") -> np.ndarray:
        """Intervals of positive times that say something."""
        y = checked_columns(self, y, owner)

        def good(block: np.ndarray) -> np.ndarray:
            lower, upper = block.T
            return (
                (lower >= 0) & (lower <= upper) & (upper > 0) & np.isfinite(lower) & ~((lower == 0) & np.isinf(upper))
            )

        wanted = "times (lower, upper), 0 ≤ lower ≤ upper, not (0, ∞)"
        require_rows(good, y, first_row, wanted, owner)
        return y


def _log_event(log_hazard: jax.Array) -> jax.Array:
    """``log(1 − exp(−H))`` from the logarithm of the cumulative hazard H, however small."""
    small = log_hazard < -20
    H = jnp.exp(jnp.where(small, -1.0, log_hazard))
    return jnp.where(small, log_hazard, log_one_minus_exp(H))
