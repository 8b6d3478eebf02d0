"""A prior of lengthscales for many inputs of which few matter.

References
    1. Eriksson, D. & Jankowiak, M. (2021), High-dimensional Bayesian optimization with sparse axis-aligned subspaces.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints, transforms

from .._internal import checks
from ..kernels.hyperprior_scales import lengthscale_prior

#: Range of evenly spread inputs, in standard deviations: the unit of lengthscales, as [1] has inputs on [0, 1].
RANGE = 12**0.5


@dataclasses.dataclass(frozen=True)
class SparseAxes:
    """Half-Cauchy inverse squared lengthscales with a common scale: most inputs do not matter, any may (SAAS of [1]).

    ``1/ℓⱼ² ~ C⁺(0, α τ)/rⱼ²`` and ``τ ~ C⁺(0, 1)``, with rⱼ the range of input j, √12 standard deviations. Given to a
    ready model in place of the prior of its lengthscales, ``exact_gp(lengthscale=SparseAxes())``; of
    :func:`inducing_gp`, :func:`basis_gp` and :func:`fourier_gp` as well. Sites: ``lengthscale`` (d,), in units of x,
    and ``global_scale`` for τ. :func:`~ppl_sgp.input_relevance` sums up what was found.

    Features of a frozen basis do not follow lengthscales: of 20 inputs, random features drawn from a prior see none
    well. Find what matters by :func:`exact_gp` on some hundred rows, by NUTS, and draw the basis from its posterior,
    ``FourierBasis.from_draws(key, X, mcmc.get_samples(), m)``; or take points that move, :func:`inducing_gp`.

    :param global_scale: α; small for fewer inputs that matter. 0.1 as in [1].
    :raises ValueError: if it is not positive; when sampled, for a model with one lengthscale for all inputs.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> sgp.models.exact_gp(sgp.Matern52, lengthscale=sgp.models.SparseAxes()).lengthscale
        SparseAxes(global_scale=0.1)
    """

    global_scale: float = 0.1

    def __post_init__(self) -> None:
        """Refuse what is not positive."""
        checks.positive("global_scale", self.global_scale, "SparseAxes")

    def sample(self, input_scale: Any) -> jax.Array:
        """Lengthscales, shape (d,).

        :param input_scale: standard deviation of each input, shape (d,).
        """
        median, _ = lengthscale_prior(input_scale)
        d = len(median)
        varies = jnp.sum(jnp.asarray(input_scale) > 0)
        # The medians are √d/2 standard deviations, and something for inputs that never vary.
        unit = RANGE * 2 * median / jnp.sqrt(jnp.maximum(varies, 1).astype(median.dtype))
        tau = numpyro.sample("global_scale", dist.HalfCauchy(jnp.ones((), unit.dtype)))
        # A site of the lengthscales themselves: in logarithms the prior of each has one shape, which τ shifts.
        relative = dist.HalfCauchy(jnp.broadcast_to(self.global_scale * tau, (d,)))
        inverse_root = transforms.PowerTransform(jnp.asarray(-0.5, unit.dtype))
        scaled = transforms.AffineTransform(jnp.zeros((), unit.dtype), unit, domain=constraints.positive)
        prior = dist.TransformedDistribution(relative, [inverse_root, scaled]).to_event(1)
        return numpyro.sample("lengthscale", prior, infer={"event_dims": ["input"]})
