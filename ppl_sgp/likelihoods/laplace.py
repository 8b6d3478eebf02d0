"""Quantiles, and outcomes with exponential tails."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import ndtr

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from ..kernels.hyperprior_scales import NOISE_SHARE, NOISE_SPREAD
from .likelihood import Derivatives, checked_columns, require_rows
from .positive import PositiveParameters
from .student_t import size_of


@pytree_dataclass
class AsymmetricLaplace(PositiveParameters):
    """Quantile regression: η is the quantile of y, and the density ``∝ exp(−ρ(y − η)/scale)``, with the pinball loss ρ.

    ``ρ(u) = u (quantile − [u < 0])``. At a quantile of 0.5 it is the Laplace distribution of scale ``2·scale``. The log
    density has a kink, and no curvature elsewhere: only averaged expansions have one, in closed form.

    :param quantile: between 0 and 1; a number, fixed.
    :param scale: a positive number to hold fixed, or ``dist.LogNormal``; by default free around 0.15 of the size of y,
        log sd 1.5.
    :raises ValueError: for anything else.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> sgp.likelihoods.AsymmetricLaplace(0.9).parameter_names
        ('scale',)
    """

    quantile: float = static(default=0.5)
    scale: Any = static(default=None)

    positive = ("scale",)
    is_smooth = False
    is_log_concave = True

    def __post_init__(self) -> None:
        """Refuse what is no quantile."""
        super().__post_init__()
        (quantile,) = checks.probabilities("quantile", [self.quantile], "AsymmetricLaplace")
        object.__setattr__(self, "quantile", float(quantile))

    def default_priors(self, y: np.ndarray) -> dict[str, tuple[float, float]]:
        """Relative to the size of y."""
        return {"scale": (np.log(0.5 * NOISE_SHARE * self.predictor_scale(y)), NOISE_SPREAD)}

    def predictor_scale(self, y: np.ndarray) -> float:
        """The size of y, from quantiles, which outliers do not move."""
        return size_of(y)

    def log_prob(self, eta: Any, y: Any, parameters: Any = ()) -> jax.Array:
        """Log density of each outcome."""
        eta, (y,) = self.aligned(eta, y)
        (log_scale,) = self.logarithms(parameters, eta.dtype)
        u = y - eta
        loss = self.quantile * u + jnp.maximum(-u, 0)
        return np.log(self.quantile * (1 - self.quantile)) - log_scale - loss * jnp.exp(-log_scale)

    def averaged(self, mean: Any, covariance: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """In closed form."""
        loss, slope, density, log_scale = self._averages(mean, covariance, y, parameters)
        precision = jnp.exp(-log_scale)
        constant = np.log(self.quantile * (1 - self.quantile)) - log_scale
        return Derivatives(constant - loss * precision, slope * precision, density * precision)

    def averaged_joint(self, mean: Any, covariance: Any, y: Any, parameters: Any) -> Derivatives:
        """In closed form, in η and the logarithm of the scale."""
        own = self.averaged(mean, covariance, y, parameters)
        loss, slope, _, log_scale = self._averages(mean, covariance, y, parameters)
        loss, slope = loss * jnp.exp(-log_scale), slope * jnp.exp(-log_scale)
        curvature = jnp.stack([jnp.stack([own.curvature, slope], -1), jnp.stack([slope, loss], -1)], -1)
        return Derivatives(own.log_prob, jnp.stack([own.gradient, loss - 1], -1), curvature)

    def _averages(self, mean: Any, covariance: Any, y: Any, parameters: Any) -> tuple[jax.Array, ...]:
        """Averages of the loss, of minus its slope, and of its second derivative; and the logarithm of the scale."""
        mean, (y,) = self.aligned(mean, y)
        (log_scale,) = self.logarithms(parameters, mean.dtype)
        u, s = y - mean, jnp.sqrt(jnp.maximum(jnp.asarray(covariance, mean.dtype), jnp.finfo(mean.dtype).tiny))
        z = u / s
        below, density = ndtr(-z), jnp.exp(-0.5 * z**2) * (2 * np.pi) ** -0.5
        return self.quantile * u - u * below + s * density, self.quantile - below, density / s, log_scale

    def distribution(self, eta: Any, parameters: Any = (), y: Any = None) -> dist.Distribution:
        """Asymmetric Laplace of the outcome."""
        eta = jnp.asarray(eta)
        (log_scale,) = self.logarithms(parameters, eta.dtype)
        return dist.AsymmetricLaplaceQuantile(eta, jnp.exp(log_scale), jnp.asarray(self.quantile, eta.dtype))

    def start(self, y: Any) -> jax.Array:
        """The outcome."""
        return jnp.asarray(y)

    def check(self, y: Any, first_row: int = 0, owner: str = "compress_likelihood") -> np.ndarray:
        """Finite numbers."""
        y = checked_columns(self, y, owner)
        require_rows(np.isfinite, y, first_row, "finite", owner)
        return y
