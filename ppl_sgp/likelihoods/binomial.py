"""Successes out of trials."""

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
class Binomial(Likelihood):
    """Successes out of trials, each with probability ``σ(η)``, the logistic function.

    ``y`` has two columns: successes and trials. :meth:`distribution` is of the successes, and needs the trials.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> float(sgp.likelihoods.Binomial().mean(0.0, y=np.array([0.0, 10.0])))
        5.0
    """

    num_columns = 2
    is_log_concave = True

    def log_prob(self, eta: Any, y: Any, parameters: Any = ()) -> jax.Array:
        """Log probability of the successes."""
        eta, (successes, trials) = self.aligned(eta, y)
        choices = gammaln(trials + 1) - gammaln(successes + 1) - gammaln(trials - successes + 1)
        return choices + successes * jax.nn.log_sigmoid(eta) + (trials - successes) * jax.nn.log_sigmoid(-eta)

    def derivatives(self, eta: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """In closed form, with all digits in both tails."""
        eta, (successes, trials) = self.aligned(eta, y)
        p, q = jax.nn.sigmoid(eta), jax.nn.sigmoid(-eta)
        return Derivatives(self.log_prob(eta, y), successes * q - (trials - successes) * p, trials * p * q)

    def distribution(self, eta: Any, parameters: Any = (), y: Any = None) -> dist.Distribution:
        """Binomial of the successes, of the trials in the second column of ``y``."""
        if y is None:
            raise ValueError("Binomial: new outcomes need their trials; pass `y` of two columns, successes and trials.")
        return dist.BinomialLogits(eta, total_count=jnp.asarray(y)[..., 1].astype(int))

    def mean(self, eta: Any, parameters: Any = (), y: Any = None) -> jax.Array:
        """Expected successes, or the probability of one if no trials are given."""
        p = jax.nn.sigmoid(jnp.asarray(eta))
        return p if y is None else p * jnp.asarray(y, p.dtype)[..., 1]

    def start(self, y: Any) -> jax.Array:
        """Logit of a share that is a little nearer to a half."""
        y = jnp.asarray(y)
        return jnp.log(y[..., 0] + 0.5) - jnp.log(y[..., 1] - y[..., 0] + 0.5)

    def check(self, y: Any, first_row: int = 0, owner: str = "compress_likelihood") -> np.ndarray:
        """Whole numbers, no more successes than trials."""
        y = checked_columns(self, y, owner)

        def good(block: np.ndarray) -> np.ndarray:
            whole = np.isfinite(block) & (block == np.floor(block)) & (block >= 0)
            return whole.all(axis=1) & (block[:, 0] <= block[:, 1]) & (block[:, 1] > 0)

        require_rows(good, y, first_row, "whole numbers (successes, trials), of at least one trial", owner)
        return y
