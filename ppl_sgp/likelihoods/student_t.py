"""Outcomes with heavy tails."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from .._internal.pytree import pytree_dataclass, static
from ..kernels.hyperprior_scales import NOISE_SHARE, NOISE_SPREAD
from .likelihood import Derivatives, checked_columns, require_rows
from .positive import PositiveParameters


@pytree_dataclass
class StudentT(PositiveParameters):
    """Student's t around η: ``y = η + scale·t``, t with so many degrees of freedom. Not log-concave.

    :param scale: a positive number to hold fixed, or ``dist.LogNormal``; by default free around 0.3 of the size of y,
        log sd 1.5.
    :param degrees: degrees of freedom, likewise; by default free, log-normal of median 5 and log sd 0.8.
    :raises ValueError: for anything else.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> sgp.likelihoods.StudentT(degrees=4.0).parameter_names
        ('scale',)
    """

    scale: Any = static(default=None)
    degrees: Any = static(default=None)

    positive = ("scale", "degrees")

    def default_priors(self, y: np.ndarray) -> dict[str, tuple[float, float]]:
        """The scale relative to the size of y."""
        return {
            "scale": (np.log(NOISE_SHARE * self.predictor_scale(y)), NOISE_SPREAD),
            "degrees": (np.log(5.0), 0.8),
        }

    def predictor_scale(self, y: np.ndarray) -> float:
        """The size of y, from quantiles, which outliers do not move."""
        return size_of(y)

    def log_prob(self, eta: Any, y: Any, parameters: Any = ()) -> jax.Array:
        """Log density of each outcome."""
        eta, (y,) = self.aligned(eta, y)
        log_scale, log_nu = self.logarithms(parameters, eta.dtype)
        nu, z = jnp.exp(log_nu), (y - eta) * jnp.exp(-log_scale)
        constant = gammaln(0.5 * (nu + 1)) - gammaln(0.5 * nu) - 0.5 * (log_nu + np.log(np.pi)) - log_scale
        return constant - 0.5 * (nu + 1) * jnp.log1p(z**2 / nu)

    def derivatives(self, eta: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """In closed form; the curvature is negative beyond ``√degrees`` scales from η."""
        eta, (y,) = self.aligned(eta, y)
        log_scale, log_nu = self.logarithms(parameters, eta.dtype)
        nu, z = jnp.exp(log_nu), (y - eta) * jnp.exp(-log_scale)
        pull = (nu + 1) / (nu + z**2)
        curvature = pull * (nu - z**2) / (nu + z**2) * jnp.exp(-2 * log_scale)
        return Derivatives(self.log_prob(eta, y, parameters), pull * z * jnp.exp(-log_scale), curvature)

    def distribution(self, eta: Any, parameters: Any = (), y: Any = None) -> dist.Distribution:
        """Student's t of the outcome."""
        eta = jnp.asarray(eta)
        log_scale, log_nu = self.logarithms(parameters, eta.dtype)
        return dist.StudentT(jnp.exp(log_nu), eta, jnp.exp(log_scale))

    def start(self, y: Any) -> jax.Array:
        """The outcome."""
        return jnp.asarray(y)

    def check(self, y: Any, first_row: int = 0, owner: str = "compress_likelihood") -> np.ndarray:
        """Finite numbers."""
        y = checked_columns(self, y, owner)
        require_rows(np.isfinite, y, first_row, "finite", owner)
        return y


def size_of(y: np.ndarray) -> float:
    """Size of outcomes about zero: 1.48 times the median of absolute values, or their root mean square; else one."""
    y = np.asarray(y, dtype=np.float64)
    y = y[np.isfinite(y)]
    if not y.size:
        return 1.0
    size = float(1.4826 * np.median(np.abs(y))) or float(np.sqrt(np.mean(y**2)))
    return size or 1.0
