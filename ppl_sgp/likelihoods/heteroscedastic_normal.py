"""Normal outcomes whose noise varies with the inputs, by a second predictor.

References
    1. Lázaro-Gredilla, M. & Titsias, M. K. (2011), Variational heteroscedastic Gaussian process regression.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from .likelihood import Derivatives, Likelihood, checked_columns, require_rows


@pytree_dataclass
class HeteroscedasticNormal(Likelihood):
    """Numbers ``y = unit · (η₁ + exp(η₂) ε)``, ε standard normal: two predictors a row, mean and log noise scale.

    Both are functions of the same basis with weights of their own, so a level, :class:`~ppl_sgp.ConstantBasis`, belongs
    in it. A prior of m weights holds for each of them; ``sgp.stack(prior_of_mean, prior_of_noise)``, of 2m, is one
    each.
    The expansion has exact gradients and, since the curvature of a row has no sign, that which is expected of it
    (Fisher's information, ``diag(exp(−2η₂), 2)``): good where rows are many for each weight of the noise, some tens.
    :func:`~ppl_sgp.importance_weights` certifies it.

    :param unit: of y, such as its standard deviation, so that predictors are of order one; a number.
    :raises ValueError: if it is not positive.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> likelihood = sgp.likelihoods.HeteroscedasticNormal(unit=2.0)
        >>> y = likelihood.distribution(np.array([[1.0, 0.0]]))
        >>> float(y.mean[0]), float(y.variance[0])
        (2.0, 4.0)
    """

    unit: float = static(default=1.0)

    num_latents = 2

    def __post_init__(self) -> None:
        checks.positive("unit", self.unit, "HeteroscedasticNormal")
        object.__setattr__(self, "unit", float(self.unit))

    def log_prob(self, eta: Any, y: Any, parameters: Any = ()) -> jax.Array:
        """Log density of each outcome."""
        eta, (y,) = self.aligned(eta, y)
        squares = ((y / self.unit - eta[..., 0]) * jnp.exp(-eta[..., 1])) ** 2
        return self._of(eta[..., 1], squares)

    def derivatives(self, eta: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """In closed form, the curvature as it is expected."""
        return self.averaged(eta, jnp.zeros((2, 2), jnp.asarray(eta).dtype), y)

    def averaged(self, mean: Any, covariance: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """In closed form: ``exp(−2η₂)`` tilts the mean of η₁ by −2 of their covariance."""
        mean, (y,) = self.aligned(mean, y)
        covariance = jnp.asarray(covariance, mean.dtype)
        precision = jnp.exp(2 * (covariance[..., 1, 1] - mean[..., 1]))
        residual = y / self.unit - mean[..., 0] + 2 * covariance[..., 0, 1]
        squares = precision * (residual**2 + covariance[..., 0, 0])
        gradient = jnp.stack([precision * residual, squares - 1], axis=-1)
        nothing = jnp.zeros_like(precision)
        rows = [jnp.stack([precision, nothing], axis=-1), jnp.stack([nothing, nothing + 2], axis=-1)]
        return Derivatives(self._of(mean[..., 1], squares), gradient, jnp.stack(rows, axis=-2))

    def _of(self, log_scale: jax.Array, squares: jax.Array) -> jax.Array:
        """Log densities of squared residuals in units of the noise, perhaps averages."""
        return -0.5 * (math.log(2 * math.pi) + squares) - log_scale - math.log(self.unit)

    def distribution(self, eta: Any, parameters: Any = (), y: Any = None) -> dist.Distribution:
        """Normal of the outcome."""
        eta = jnp.asarray(eta)
        return dist.Normal(self.unit * eta[..., 0], self.unit * jnp.exp(eta[..., 1]))

    def check(self, y: Any, first_row: int = 0, owner: str = "compress_likelihood") -> np.ndarray:
        """Finite numbers."""
        y = checked_columns(self, y, owner)
        require_rows(np.isfinite, y, first_row, "finite", owner)
        return y
