"""Bridge sampling against quadrature over the hyperparameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp
from tests.builders import IdentityBasis

pytestmark = [pytest.mark.float64_only, pytest.mark.relaxed_promotion]


def model(stats):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    noise_scale = numpyro.sample("noise_scale", dist.LogNormal(-1.0, 1.0))
    sgp.observe("y", stats, sgp.DiagonalPrior(scale * jnp.ones(stats.num_features)), noise_scale)


@pytest.fixture(scope="module")
def problem():
    """Statistics, log p(y) by quadrature on a fine grid, and independent posterior draws from that grid."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((25, 3))
    stats = sgp.sufficient_statistics(IdentityBasis(3), X, X @ [1.0, -0.5, 0.0] + 0.4 * rng.standard_normal(25))
    u, v = np.linspace(-4, 5, 301), np.linspace(-2.5, 1.0, 301)
    U, V = np.meshgrid(u, v, indexing="ij")
    prior = sgp.DiagonalPrior.from_log_scale(jnp.asarray(np.repeat(U.ravel()[:, None], 3, axis=1)))
    logs = np.asarray(sgp.log_evidence(stats, prior, jnp.exp(jnp.asarray(V.ravel()))))
    logs += dist.Normal(0.0, 1.0).log_prob(U.ravel()) + dist.Normal(-1.0, 1.0).log_prob(V.ravel())
    weights = np.exp(logs - logs.max())
    truth = logs.max() + np.log(weights.sum() * (u[1] - u[0]) * (v[1] - v[0]))
    chosen = rng.choice(len(logs), 4000, p=weights / weights.sum())
    spread = rng.uniform(-0.5, 0.5, (2, 4000)) * [[u[1] - u[0]], [v[1] - v[0]]]
    draws = np.stack([U.ravel(), V.ravel()])[:, chosen] + spread
    return stats, truth, {"scale": np.exp(draws[0]), "noise_scale": np.exp(draws[1])}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_estimates_are_within_their_error_of_quadrature(problem, seed):
    stats, truth, samples = problem
    estimate = sgp.log_marginal_likelihood(model, samples, stats, jax.random.key(seed))
    assert 0 < estimate.standard_error < 0.03
    assert abs(estimate.log_evidence - truth) < 4 * estimate.standard_error


def test_sticky_draws_have_a_larger_error(problem):
    stats, truth, samples = problem
    sticky = {name: np.repeat(values[:400], 10) for name, values in samples.items()}
    estimate = sgp.log_marginal_likelihood(model, sticky, stats, jax.random.key(0))
    independent = sgp.log_marginal_likelihood(model, samples, stats, jax.random.key(0))
    assert estimate.standard_error > 1.5 * independent.standard_error
    assert abs(estimate.log_evidence - truth) < 4 * estimate.standard_error


def test_what_is_refused(problem):
    stats, _, samples = problem
    with pytest.raises(ValueError, match="10 draws are too few for 2 parameters; give 40"):
        sgp.log_marginal_likelihood(model, {k: v[:10] for k, v in samples.items()}, stats, jax.random.key(0))
    with pytest.raises(ValueError, match="lack the latent sites"):
        sgp.log_marginal_likelihood(model, {"scale": samples["scale"]}, stats, jax.random.key(0))
    wild = {**samples, "noise_scale": 1e-200 * samples["noise_scale"]}
    with pytest.raises(ValueError, match="not finite at 2000 posterior draws"):
        sgp.log_marginal_likelihood(model, wild, stats, jax.random.key(0))
    still = {**samples, "scale": np.ones(4000)}
    with pytest.raises(ValueError, match="draws of a parameter do not vary"):
        sgp.log_marginal_likelihood(model, still, stats, jax.random.key(0))
