"""Sizes and a model that tests of expansions share."""

import numpyro
import numpyro.distributions as dist

import ppl_sgp as sgp

N = 240


def laplace(num_features):
    """Features that vanish at −1.5 and 1.5."""
    return sgp.LaplaceBasis(num_features, centre=[0.0], boundary=[1.5])


def one_kernel(stats):
    """A stack with a fixed effect."""
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-1.0, 0.5))
    prior = stats.basis.weight_prior((sgp.Matern52(lengthscale, 1.5), sgp.DiagonalPrior(3.0)))
    sgp.observe("y", stats, prior)
