"""Latent variables given which likelihoods are Gaussian in their predictors, drawn given the predictors.

``p(y | η) = ∫ c(ω, y) exp(κη − ½ωη²) p(ω) dω``: given ω a row is one of Gaussian noise of precision ω, with κ = ω times
the outcome it would have. Logistic likelihoods with total b and κ = y − b/2 have ``ω | η ~ PG(b, η)`` (Polson, Scott &
Windle 2013); scale mixtures of normals (Andrews & Mallows 1974) have a closed form each.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..likelihoods import AsymmetricLaplace, Bernoulli, Binomial, Likelihood, NegativeBinomial, StudentT
from .polya_gamma import polya_gamma


class RowGaussians(NamedTuple):
    """Rows as Gaussian functions ``exp(κη − ½ωη²)`` of their predictors.

    :ivar precision: ω, positive, shape (n,).
    :ivar information: κ, shape (n,).
    """

    precision: jax.Array
    information: jax.Array


@functools.singledispatch
def augmented(likelihood: Likelihood, key: jax.Array, eta: jax.Array, y: jax.Array, parameters: Any) -> RowGaussians:
    """Draw ω given predictors, and what rows are given ω.

    :param key: a JAX random key.
    :param eta: predictors, shape (n,).
    :param y: outcomes, as the likelihood has them.
    :param parameters: free parameters of the likelihood, on the real line.
    :raises ValueError: for a likelihood without such latent variables.
    """
    raise ValueError(
        f"augmented_rows: {type(likelihood).__name__} is no mixture of normals that is known here. Rows of any "
        "likelihood go into `sgp.latent_rows`, with a nugget; or compress the likelihood."
    )


@augmented.register
def _(likelihood: Bernoulli, key: jax.Array, eta: jax.Array, y: jax.Array, parameters: Any) -> RowGaussians:
    if likelihood.link != "logit":
        raise ValueError("augmented_rows: Bernoulli has latent variables here with `link='logit'` only.")
    return _logistic(key, eta, y, 1)


@augmented.register
def _(likelihood: Binomial, key: jax.Array, eta: jax.Array, y: jax.Array, parameters: Any) -> RowGaussians:
    return _logistic(key, eta, y[:, 0], y[:, 1])


@augmented.register
def _(likelihood: NegativeBinomial, key: jax.Array, eta: jax.Array, y: jax.Array, parameters: Any) -> RowGaussians:
    """Log odds are ``η − log r`` for a concentration r."""
    (log_r,) = likelihood.logarithms(parameters, eta.dtype)
    precision, information = _logistic(key, eta - log_r, y, y + jnp.exp(log_r))
    return RowGaussians(precision, information + precision * log_r)


def _logistic(key: jax.Array, log_odds: jax.Array, successes: jax.Array, total: Any) -> RowGaussians:
    """Of ``exp(yη)/(1 + exp(η))ᵇ``, in the log odds η."""
    return RowGaussians(polya_gamma(key, total, log_odds), successes - 0.5 * total)


@augmented.register
def _(likelihood: StudentT, key: jax.Array, eta: jax.Array, y: jax.Array, parameters: Any) -> RowGaussians:
    """Normal noise of variance ``scale²/g`` with ``g ~ Gamma(ν/2, ν/2)``."""
    log_scale, log_nu = likelihood.logarithms(parameters, eta.dtype)
    nu, z = jnp.exp(log_nu), (y - eta) * jnp.exp(-log_scale)
    shape = jnp.broadcast_to(0.5 * (nu + 1), eta.shape)
    precision = jax.random.gamma(key, shape) / (0.5 * (nu + z**2)) * jnp.exp(-2 * log_scale)
    return RowGaussians(precision, precision * y)


@augmented.register
def _(likelihood: AsymmetricLaplace, key: jax.Array, eta: jax.Array, y: jax.Array, parameters: Any) -> RowGaussians:
    """``y − η = s[(1 − 2q)v + (2q(1 − q)v)^½ε]/(q(1 − q))``, v ~ Exp(1), at a quantile q (Kozumi & Kobayashi 2011).

    The precision is ``1/(4s²)`` times an inverse Gaussian variable of mean ``2s/|y − η|`` and shape 1, whatever q.
    """
    (log_scale,) = likelihood.logarithms(parameters, eta.dtype)
    rate = 0.5 * jnp.exp(-log_scale)
    precision = inverse_gaussian(key, jnp.abs(y - eta) * rate) * rate**2
    return RowGaussians(precision, precision * y - (1 - 2 * likelihood.quantile) * rate)


def inverse_gaussian(key: jax.Array, inverse_mean: jax.Array) -> jax.Array:
    """Draws of the inverse Gaussian distribution of shape 1, of means that may be infinite.

    As Michael, Schucany & Haas (1976), with the smaller root in a form without cancellation.

    :param inverse_mean: 1/mean ≥ 0, any shape.
    """
    key_square, key_root = jax.random.split(key)
    a = inverse_mean
    square = jax.random.normal(key_square, a.shape, a.dtype) ** 2
    smaller = 2 / (2 * a + square + jnp.sqrt(square**2 + 4 * a * square))
    chosen = jax.random.uniform(key_root, a.shape, a.dtype) * (1 + a * smaller) <= 1
    return jnp.where(chosen, smaller, 1 / (jnp.where(chosen, 1, a**2 * smaller)))
