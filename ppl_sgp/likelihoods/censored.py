"""Gaussian outcomes known exactly, or to lie beyond or between bounds."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .._internal.pytree import pytree_dataclass, static
from ..kernels.hyperprior_scales import NOISE_SHARE, NOISE_SPREAD
from .likelihood import checked_columns, require_rows
from .normal_tails import log_cdf, log_one_minus_exp
from .positive import PositiveParameters


@pytree_dataclass
class CensoredNormal(PositiveParameters):
    """``N(η, scale²)`` of which each row knows an interval: ``y = (lower, upper)``.

    Equal bounds are an exact outcome, ``(−∞, u)`` one censored on the left, ``(l, ∞)`` one on the right.
    :meth:`distribution` is of the outcome itself.

    :param scale: a positive number to hold fixed, or ``dist.LogNormal``; by default free around 0.3 of the size of the
        finite bounds, log sd 1.5.
    :raises ValueError: for anything else.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> rows = np.array([[0.0, 0.0], [-np.inf, 0.0], [0.0, np.inf]])
        >>> np.exp(sgp.likelihoods.CensoredNormal(1.0).log_prob(np.zeros(3), rows)).round(3).tolist()
        [0.399, 0.5, 0.5]
    """

    scale: Any = static(default=None)

    positive = ("scale",)
    num_columns = 2
    is_log_concave = True

    def default_priors(self, y: np.ndarray) -> dict[str, tuple[float, float]]:
        """Relative to the size of the bounds."""
        return {"scale": (np.log(NOISE_SHARE * self.predictor_scale(y)), NOISE_SPREAD)}

    def predictor_scale(self, y: np.ndarray) -> float:
        """Root mean square of the finite bounds, or one."""
        finite = np.isfinite(y)
        return float(np.sqrt(np.mean(y[finite] ** 2))) or 1.0 if finite.any() else 1.0

    def log_prob(self, eta: Any, y: Any, parameters: Any = ()) -> jax.Array:
        """Log density of exact rows, log probability of the interval of others."""
        eta, (lower, upper) = self.aligned(eta, y)
        (log_scale,) = self.logarithms(parameters, eta.dtype)
        exact, bounded_below, bounded_above = lower == upper, jnp.isfinite(lower), jnp.isfinite(upper)
        # What is not used gets values at which everything is finite, derivatives too.
        a = (jnp.where(bounded_below, lower, eta - 1) - eta) * jnp.exp(-log_scale)
        b = (jnp.where(bounded_above, upper, eta + 1) - eta) * jnp.exp(-log_scale)
        density = -0.5 * a**2 - 0.5 * np.log(2 * np.pi) - log_scale
        # An interval above η is looked at from above, where probabilities are small and not near one.
        flip = bounded_below & bounded_above & (a + b > 0)
        low, high = jnp.where(flip, -b, a), jnp.where(flip, -a, b)
        interval = bounded_below & bounded_above & ~exact
        high = jnp.where(interval, high, 1)
        low = jnp.where(interval, low, 0)
        between = log_cdf(high) + log_one_minus_exp(log_cdf(high) - log_cdf(low))
        one_sided = log_cdf(jnp.where(bounded_below, -a, b))
        return jnp.where(exact, density, jnp.where(interval, between, one_sided))

    def distribution(self, eta: Any, parameters: Any = (), y: Any = None) -> dist.Distribution:
        """Normal of the outcome, without censoring."""
        eta = jnp.asarray(eta)
        (log_scale,) = self.logarithms(parameters, eta.dtype)
        return dist.Normal(eta, jnp.exp(log_scale))

    def start(self, y: Any) -> jax.Array:
        """The middle of the interval, or its finite bound."""
        return middle(jnp.asarray(y))

    def check(self, y: Any, first_row: int = 0, owner: str = "compress_likelihood") -> np.ndarray:
        """Intervals with at least one finite bound."""
        y = checked_columns(self, y, owner)

        def good(block: np.ndarray) -> np.ndarray:
            lower, upper = block.T
            return (lower <= upper) & (np.isfinite(lower) | np.isfinite(upper))

        require_rows(good, y, first_row, "(lower, upper), lower no more than upper, one of them finite", owner)
        return y


def middle(y: jax.Array) -> jax.Array:
    """Middles of intervals (..., 2), or their finite bounds."""
    lower, upper = y[..., 0], y[..., 1]
    lower, upper = jnp.where(jnp.isfinite(lower), lower, upper), jnp.where(jnp.isfinite(upper), upper, lower)
    return 0.5 * (lower + upper)
