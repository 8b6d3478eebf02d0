"""Models that a type-II fit refuses, in words."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp
from tests.contract.cases import data


def no_latent_sites(stats):
    sgp.observe("y", stats, sgp.DiagonalPrior(1.0), 0.4)


def discrete_site(stats):
    rough = numpyro.sample("rough", dist.Bernoulli(0.5))
    noise_scale = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
    sgp.observe("y", stats, sgp.DiagonalPrior(jnp.where(rough.astype(bool), 2.0, 1.0)), noise_scale)


def impossible(stats):
    noise_scale = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
    numpyro.factor("never", -jnp.inf)
    sgp.observe("y", stats, sgp.DiagonalPrior(1.0), noise_scale)


@pytest.mark.parametrize(
    "model, message",
    [
        (no_latent_sites, "needs continuous latent sites; there are none"),
        pytest.param(
            discrete_site,
            r"needs continuous latent sites; \['rough'\] are discrete",
            marks=pytest.mark.relaxed_promotion,
        ),
        (impossible, "not finite at any start"),
    ],
)
def test_refuses_models_it_cannot_fit(model, message):
    with pytest.raises(ValueError, match=message):
        sgp.fit_evidence(model, data("dense").statistics)
