"""Gaussian noise as a likelihood: elsewhere rows with it are compressed without loss, here they come in minibatches."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .._internal.pytree import pytree_dataclass, static
from ..kernels.hyperprior_scales import NOISE_SHARE, NOISE_SPREAD
from ..likelihoods.likelihood import Derivatives, checked_columns, require_rows
from ..likelihoods.positive import PositiveParameters


@pytree_dataclass
class GaussianNoise(PositiveParameters):
    """``y = η + noise_scale·z`` with z standard normal.

    :param noise_scale: a positive number to hold fixed, or ``dist.LogNormal``; by default free around 0.3 of the root
        mean square of y, log sd 1.5.
    """

    is_log_concave = True
    positive = ("noise_scale",)

    noise_scale: Any = static(default=None)

    def default_priors(self, y: np.ndarray) -> dict[str, tuple[float, float]]:
        """The scale relative to the size of y."""
        return {"noise_scale": (np.log(NOISE_SHARE * self.predictor_scale(y)), NOISE_SPREAD)}

    def predictor_scale(self, y: np.ndarray) -> float:
        """The root mean square of y; one where all are zero."""
        return float(np.sqrt(np.mean(np.asarray(y, dtype=np.float64) ** 2))) or 1.0

    def log_prob(self, eta: Any, y: Any, parameters: Any = ()) -> jax.Array:
        """Log density of each outcome."""
        return self.averaged(eta, jnp.zeros_like(jnp.asarray(eta)), y, parameters).log_prob

    def derivatives(self, eta: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """In closed form."""
        return self.averaged(eta, jnp.zeros_like(jnp.asarray(eta)), y, parameters)

    def averaged(self, mean: Any, covariance: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """In closed form: ``log N(y; mean, σ²) − variance/2σ²``."""
        mean, (y,) = self.aligned(mean, y)
        (log_scale,) = self.logarithms(parameters, mean.dtype)
        precision, residual = jnp.exp(-2 * log_scale), y - mean
        squares = residual**2 + jnp.asarray(covariance, mean.dtype)
        value = -0.5 * np.log(2 * np.pi) - log_scale - 0.5 * squares * precision
        return Derivatives(value, residual * precision, jnp.broadcast_to(precision, mean.shape))

    def distribution(self, eta: Any, parameters: Any = (), y: Any = None) -> dist.Distribution:
        """Normal around the predictor."""
        eta = jnp.asarray(eta)
        (log_scale,) = self.logarithms(parameters, eta.dtype)
        return dist.Normal(eta, jnp.exp(log_scale))

    def start(self, y: Any) -> jax.Array:
        """The outcome."""
        return jnp.asarray(y)

    def check(self, y: Any, first_row: int = 0, owner: str = "svgp") -> np.ndarray:
        """Finite numbers."""
        y = checked_columns(self, y, owner)
        require_rows(np.isfinite, y, first_row, "finite", owner)
        return y
