"""Two small models, one for each observed site, and what tests ask of them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

import ppl_sgp as sgp

N, M = 12, 6  # of the data called "dense"


def model(stats, noise_scale=0.4):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-0.5, 0.5))
    sgp.observe("y", stats, stats.basis.weight_prior(sgp.SquaredExponential(lengthscale)), noise_scale)


def weights_model(stats, noise_scale=0.4):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([stats.num_features]).to_event(1))
    sgp.observe_weights("y", stats, w, noise_scale)


POINTS = [(model, {"lengthscale": 0.6}), (weights_model, {"w": np.linspace(-1, 1, M)})]
both = pytest.mark.parametrize("model, point", POINTS, ids=["observe", "observe_weights"])


def joint(model, stats, point):
    point = {name: jnp.asarray(value, dtype=jnp.result_type(float)) for name, value in point.items()}
    return float(log_density(model, (stats,), {}, point)[0])


def trace_at(model, stats, point):
    substituted = handlers.substitute(model, {name: jnp.asarray(value, float) for name, value in point.items()})
    return handlers.trace(handlers.seed(substituted, jax.random.key(0))).get_trace(stats)


def site_log_prob(model, stats, point, name="y"):
    site = trace_at(model, stats, point)[name]
    return float(site["fn"].log_prob(site["value"]))
