"""Hyperparameters of one kernel and of a likelihood as coordinates on the real line, with their priors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal.pytree import pytree_dataclass, static
from ..kernels import Constant, Kernel
from ..kernels.hyperprior_scales import AMPLITUDE_SPREAD, lengthscale_prior
from ..likelihoods.likelihood import Likelihood


@pytree_dataclass
class Coordinates:
    """Logarithms of d lengthscales and of the amplitude, then the likelihood's coordinates: independent normal priors.

    The kernel is ``a²(1 + k(x, z))`` with k of unit amplitude: f has an unknown level.

    :ivar centre: prior means, (d + 1 + p,); coordinates count from them.
    :ivar spread: prior standard deviations, likewise.
    :ivar family: from lengthscales (d,) and an amplitude to a kernel.
    """

    centre: Any
    spread: Any
    family: Callable[..., Kernel] = static()
    input_dim: int = static()

    @classmethod
    def of_data(
        cls, family: Callable[..., Kernel], X: np.ndarray, y: np.ndarray, likelihood: Likelihood
    ) -> Coordinates:
        """The priors that all ready models have by default, for the scales of some of the rows."""
        with jax.enable_x64(True):
            median, spread = lengthscale_prior(np.where(np.ptp(X, axis=0) > 0, X.std(axis=0), 0.0))
        free = likelihood.free_parameters(y)
        amplitude = np.log(likelihood.predictor_scale(y))
        centre = [*np.log(np.asarray(median)), amplitude, *(each.loc for each in free)]
        spreads = [*[spread] * len(median), AMPLITUDE_SPREAD, *(each.scale for each in free)]
        return cls(np.array(centre), np.array(spreads), family, len(median))

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return len(self.centre)

    def kernel(self, z: Any) -> Kernel:
        """The kernel at coordinates (d + 1 + p,)."""
        theta = jnp.exp(self._absolute(z)[: self.input_dim + 1])
        return self.family(theta[:-1], theta[-1]) + Constant(theta[-1])

    def unit_kernel(self, z: Any) -> Kernel:
        """That without the level."""
        return self.kernel(z).terms[0]

    def parameters(self, z: Any) -> jax.Array:
        """The coordinates of the likelihood, (p,)."""
        return self._absolute(z)[self.input_dim + 1 :]

    def log_prior(self, z: Any) -> jax.Array:
        """Log density of coordinates, with all constants."""
        spread = jnp.asarray(self.spread, z.dtype)
        return -0.5 * jnp.sum((z / spread) ** 2) - jnp.sum(jnp.log(spread)) - 0.5 * self.size * np.log(2 * np.pi)

    def by_name(self, z: np.ndarray, likelihood: Likelihood) -> dict[str, np.ndarray]:
        """In their own units, of draws (S, d + 1 + p), in float64."""
        absolute = np.asarray(z, dtype=np.float64) + self.centre
        d = self.input_dim
        named = {"lengthscale": np.exp(absolute[:, :d]), "amplitude": np.exp(absolute[:, d])}
        own = likelihood.constrained(absolute[:, d + 1 :])
        return named | {name: np.asarray(values, dtype=np.float64) for name, values in own.items()}

    def _absolute(self, z: Any) -> jax.Array:
        z = jnp.asarray(z)
        return z + jnp.asarray(self.centre, z.dtype)
