"""NUTS on free variances and on explicit weights, from the model to its draws, against posteriors by quadrature."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp
from ppl_sgp.kernels.hyperprior_scales import log_normal_by_mode
from tests.reference import check_moments

pytestmark = pytest.mark.end_to_end

NOISE_SCALE = 0.3


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(4)
    X = rng.uniform(size=(40, 1))
    return X, np.sin(6 * X[:, 0]) + NOISE_SCALE * rng.standard_normal(40)


def draw(model, *arguments):
    mcmc = MCMC(
        NUTS(model),
        num_warmup=300,
        num_samples=500,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), *arguments)
    return {name: np.asarray(value, np.float64) for name, value in mcmc.get_samples(group_by_chain=True).items()}


def weighted_moments(weights, *points):
    weights = weights / weights.sum()
    means = [np.sum(weights * p) for p in points]
    return means, [np.sqrt(np.sum(weights * (p - m) ** 2)) for p, m in zip(points, means, strict=True)]


@pytest.mark.float64_only  # nothing here depends on the precision, and compiling takes long
@pytest.mark.relaxed_promotion
def test_free_variances_of_principal_directions(data):
    """Given the noise, rotated directions are independent: each posterior is an integral over one number."""
    X, y = data
    basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), 6, 1)
    stats = sgp.sufficient_statistics(basis, X, y).rotate()
    draws = np.log(draw(sgp.models.reweighted_basis(noise_scale=NOISE_SCALE), stats)["scale"])
    Phi = stats.basis.host_features(X)
    lengths = np.sum(Phi**2, axis=0)
    unit = np.sqrt(np.mean(y**2) * len(y) / lengths.sum())
    hyper = log_normal_by_mode(1.0, 100.0, unit)
    grid = np.linspace(-8, 8, 4001) * float(hyper.scale) + float(hyper.loc)
    prior = scipy.stats.norm.pdf(grid, float(hyper.loc), float(hyper.scale))
    moments = []
    for length, product in zip(lengths, Phi.T @ y, strict=True):
        sd = np.sqrt(NOISE_SCALE**2 + np.exp(2 * grid) * length)
        likelihood = scipy.stats.norm.pdf(product / np.sqrt(length), 0, sd)
        moments.append(weighted_moments(prior * likelihood, grid))
    means, sds = np.squeeze(moments, axis=-1).T
    for j, (mean, sd) in enumerate(zip(means, sds, strict=True)):
        check_moments(draws[..., j], mean, sd)
    # The data say something, about some directions at least: not the prior alone is compared.
    assert np.abs(means - float(hyper.loc)).max() > 0.5 * float(hyper.scale)


@pytest.mark.float64_only  # nothing here depends on the precision, and compiling takes long
@pytest.mark.relaxed_promotion
def test_counts_with_explicit_weights(data):
    X, _ = data
    y = np.random.default_rng(5).poisson(np.exp(1 + np.sin(6 * X[:, 0])))
    kernel = sgp.SquaredExponential(0.3)
    basis = sgp.NystromBasis(np.array([[0.3], [0.7]]), kernel)

    def model(X, y):
        f = sgp.latent("f", basis, sgp.DiagonalPrior(jnp.array([1.5, 0.7])))
        numpyro.sample("y", dist.Poisson(jnp.exp(f(X))), obs=y)

    draws = draw(model, jnp.asarray(X), jnp.asarray(y))
    grid = np.linspace(-6, 6, 301)
    z = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    f = (z * [1.5, 0.7]) @ basis.host_features(X).T
    log_density = scipy.stats.poisson.logpmf(y, np.exp(f)).sum(axis=1) + scipy.stats.norm.logpdf(z).sum(axis=1)
    mean, sd = weighted_moments(np.exp(log_density - log_density.max()), *z.T)
    for j in range(2):
        check_moments(draws["f_whitened"][..., j], mean[j], sd[j])
