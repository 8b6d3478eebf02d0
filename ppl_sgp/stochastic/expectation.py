"""``E log p(y | f)`` of rows over normal predictors, with its derivatives from the likelihood's own averages.

With f ~ N(m, C) the derivative in m is the average of the gradient g, that in C is −½ of the averaged curvature V
(Opper & Archambeau 2009, eqs 12-13): both come with the value, in closed form or by quadrature, also where the log
density has a kink, which differentiated quadrature would miss.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..likelihoods.expected import average
from ..likelihoods.likelihood import Likelihood


def by_quadrature(likelihood: Likelihood, mean: Any, covariance: Any, y: Any, parameters: Any) -> jax.Array:
    """The same, differentiable in what a function that makes a distribution refers to as well, such as other sites."""
    return average(likelihood, mean, covariance, lambda eta: likelihood.log_prob(eta, y, parameters))


@jax.custom_jvp
def expected_log_prob(likelihood: Likelihood, mean: Any, covariance: Any, y: Any, parameters: Any) -> jax.Array:
    """The expectation for each row, shape (b,), differentiable in means, covariances and parameters.

    :param mean: (b,), or with K predictors a row (b, K).
    :param covariance: variances (b,), or covariances (b, K, K).
    :param y: outcomes, (b,) or (b, columns).
    :param parameters: coordinates of the likelihood's free parameters, (p,).
    """
    return likelihood.averaged(mean, covariance, y, parameters).log_prob


@expected_log_prob.defjvp
def _derivative(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    likelihood, mean, covariance, y, parameters = primals
    _, of_mean, of_covariance, _, of_parameters = tangents
    value, gradient, curvature = likelihood.averaged(mean, covariance, y, parameters)
    along = gradient * of_mean, -0.5 * curvature * of_covariance
    if likelihood.num_latents == 1:
        slope = along[0] + along[1]
    else:
        slope = jnp.sum(along[0], axis=-1) + jnp.sum(along[1], axis=(-2, -1))
    if jnp.size(parameters):
        # Of Gauss-Hermite sums the derivatives in parameters are those of the terms.
        slope += jax.jvp(
            lambda p: likelihood.averaged(mean, covariance, y, p).log_prob, (parameters,), (of_parameters,)
        )[1]
    return value, slope
