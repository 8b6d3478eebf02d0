"""Rows given latent variables, against the likelihoods that they are a mixture for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.inference.augmentation import augmented, inverse_gaussian

L = sgp.likelihoods
NUM_DRAWS = 3000
#: Likelihood, outcome, parameters on the real line, and predictors: first those that latent variables are drawn at.
CASES = {
    "zero": (L.Bernoulli(), 0.0, (), (0.4, 1.0, -0.7)),
    "one": (L.Bernoulli(), 1.0, (), (-2.0, -1.2, -3.0)),
    "trials": (L.Binomial(), (3.0, 11.0), (), (0.2, -0.4, 0.5)),
    "count": (L.NegativeBinomial(), 4.0, (np.log(2.5),), (0.7, 1.2, 0.1)),
    "no count": (L.NegativeBinomial(0.6), 0.0, (), (0.5, -0.5, 1.3)),
    "t": (L.StudentT(degrees=3.0), 1.3, (np.log(0.6),), (0.4, 0.8, 0.1)),
    "outlier": (L.StudentT(), -4.0, (np.log(0.6), np.log(4.0)), (0.4, 0.0, 0.9)),
    "Laplace": (L.AsymmetricLaplace(), 1.0, (np.log(0.5),), (0.3, 0.0, 1.2)),
    "quantile": (L.AsymmetricLaplace(0.9, 0.3), -0.5, (), (0.1, -0.3, 0.4)),
}


@pytest.mark.parametrize("case", CASES)
def test_average_of_gaussians_is_the_likelihood(case):
    """``E exp(κ(η' − η) − ½ω(η'² − η²)) = p(y | η')/p(y | η)`` for ω drawn given η: within 4.5 standard errors."""
    likelihood, y, parameters, (eta, *others) = CASES[case]
    dtype = jnp.result_type(float)
    parameters = jnp.asarray(parameters, dtype)
    y = jnp.broadcast_to(jnp.asarray(y, dtype), (NUM_DRAWS, *np.shape(y)))
    at = jnp.full(NUM_DRAWS, eta, dtype)
    rows = jax.jit(lambda key: augmented(likelihood, key, at, y, parameters))(jax.random.key(0))
    precision, information = (np.asarray(part, np.float64) for part in rows)
    assert np.all(precision > 0)
    for other in others:
        ratios = np.exp(information * (other - eta) - 0.5 * precision * (other**2 - eta**2))
        there, here = (likelihood.log_prob(jnp.asarray(each, dtype), y[0], parameters) for each in (other, eta))
        assert abs(ratios.mean() - np.exp(float(there - here))) < 4.5 * ratios.std() / np.sqrt(NUM_DRAWS)


@pytest.mark.parametrize("inverse_mean", [0.5, 3.0])
def test_inverse_gaussian_moments(inverse_mean):
    """Mean μ and variance μ³; of the inverse 1/μ + 1 and 1/μ + 2."""
    draws = inverse_gaussian(jax.random.key(0), jnp.full(20_000, inverse_mean))
    draws = np.asarray(draws, np.float64)
    mu = 1 / inverse_mean
    for values, mean, variance in ((draws, mu, mu**3), (1 / draws, 1 / mu + 1, 1 / mu + 2)):
        assert abs(values.mean() - mean) < 4.5 * np.sqrt(variance / len(values))


def test_inverse_gaussian_of_infinite_mean_is_an_inverse_square():
    """1/x is then χ² with one degree of freedom."""
    inverse = 1 / np.asarray(inverse_gaussian(jax.random.key(1), jnp.zeros(20_000)), np.float64)
    assert abs(inverse.mean() - 1) < 4.5 * np.sqrt(2 / len(inverse))


@pytest.mark.parametrize("likelihood", [L.Poisson(), L.Bernoulli("probit")])
def test_other_likelihoods_are_refused_with_the_remedy(likelihood):
    with pytest.raises(ValueError, match=r"latent_rows|logit"):
        sgp.augmented_rows(sgp.LinearBasis(1), np.zeros((2, 1)), np.array([0.0, 1.0]), likelihood)
