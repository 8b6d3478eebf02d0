"""Log densities of draws against hand-written ones."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats as scipy_stats

import ppl_sgp as sgp
from tests.builders import IdentityBasis, by_lane

pytestmark = pytest.mark.relaxed_promotion
M, N, DRAWS = 3, 25, 4
RTOL = by_lane(1e-10, 2e-5)


@pytest.fixture
def statistics(rng):
    X = rng.standard_normal((N, M))
    return X, (y := X @ np.ones(M) + 0.3 * rng.standard_normal(N)), sgp.sufficient_statistics(IdentityBasis(M), X, y)


def model(stats):
    """A prior that depends on another site, a vector by plate and one by event, an improper one, a scaled one."""
    spread = numpyro.sample("spread", dist.HalfNormal(2.0))
    with numpyro.plate("features", M):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, spread))
    numpyro.sample("shift", dist.Normal(1.0, 3.0).expand([2]).to_event(1))
    numpyro.sample("free", dist.ImproperUniform(dist.constraints.real, (), ()))
    with numpyro.handlers.scale(scale=0.5):
        noise = numpyro.sample("noise_scale", dist.Gamma(2.0, 4.0))
    numpyro.deterministic("twice", 2 * noise)
    sgp.observe("y", stats, sgp.DiagonalPrior(scale), noise)


def draws(rng):
    positive = {"spread": (), "scale": (M,), "noise_scale": ()}
    samples = {name: np.exp(0.3 * rng.standard_normal((DRAWS, *shape))) for name, shape in positive.items()}
    return samples | {"shift": rng.standard_normal((DRAWS, 2)), "free": rng.standard_normal(DRAWS)}


def test_log_prior_by_site(statistics, rng):
    samples = draws(rng)
    found = sgp.posterior(model, samples, statistics[2]).log_prior
    lognormal = scipy_stats.lognorm.logpdf(samples["scale"], samples["spread"][:, None])
    expected = {
        "spread": scipy_stats.halfnorm.logpdf(samples["spread"], scale=2.0),
        "scale": lognormal.sum(axis=1),
        "shift": scipy_stats.norm.logpdf(samples["shift"], 1.0, 3.0).sum(axis=1),
        "noise_scale": 0.5 * scipy_stats.gamma.logpdf(samples["noise_scale"], 2.0, scale=0.25),
    }
    assert set(found) == set(expected)  # neither the improper one, nor what is computed, nor the data
    for name, values in expected.items():
        assert found[name].shape == (DRAWS,) and found[name].dtype == np.float64
        np.testing.assert_allclose(found[name], values, rtol=RTOL, atol=RTOL)


@pytest.mark.parametrize("outputs", [None, 2])
def test_log_evidence_is_the_dense_density(outputs, rng):
    X = rng.standard_normal((N, M))
    y = rng.standard_normal((N, outputs) if outputs else N)
    samples = draws(rng)
    found = sgp.posterior(model, samples, sgp.sufficient_statistics(IdentityBasis(M), X, y)).log_evidence
    columns = y.reshape(N, -1).T
    for draw in range(DRAWS):
        cov = X * samples["scale"][draw] ** 2 @ X.T + samples["noise_scale"][draw] ** 2 * np.eye(N)
        dense = sum(scipy_stats.multivariate_normal.logpdf(column, np.zeros(N), cov) for column in columns)
        assert found[draw] == pytest.approx(dense, rel=by_lane(1e-9, 1e-4))


def test_weights_that_are_kept_are_given(statistics, rng):
    X, y, stats = statistics

    def explicit(stats):
        w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([M]).to_event(1))
        sgp.observe_weights("y", stats, w, numpyro.sample("noise_scale", dist.Exponential(1.0)))

    samples = {"w": rng.standard_normal((DRAWS, M)), "noise_scale": np.exp(rng.standard_normal(DRAWS))}
    expected = scipy_stats.norm.logpdf(y, samples["w"] @ X.T, samples["noise_scale"][:, None]).sum(axis=1)
    np.testing.assert_allclose(sgp.posterior(explicit, samples, stats).log_evidence, expected, rtol=by_lane(1e-9, 1e-4))
    prior = scipy_stats.norm.logpdf(samples["w"], 0, 2).sum(axis=1)
    np.testing.assert_allclose(sgp.posterior(explicit, samples, stats).log_prior["w"], prior, rtol=RTOL)


def test_refusals_and_several_sites(statistics, rng):
    _, _, stats = statistics
    with pytest.raises(ValueError, match=r"lack the latent sites \['scale'\]"):
        sgp.posterior(model, {name: v for name, v in draws(rng).items() if name != "scale"}, stats)
    with pytest.raises(ValueError, match="along their first axis, as many in each"):
        sgp.posterior(model, draws(rng) | {"free": np.zeros(2)}, stats)

    def two(stats):
        noise = numpyro.sample("noise_scale", dist.Exponential(1.0))
        for name in ("a", "b"):
            sgp.observe(name, stats, sgp.DiagonalPrior(jnp.ones(M)), noise * (1.0 if name == "a" else 2.0))

    samples = {"noise_scale": np.ones(1)}
    with pytest.raises(ValueError, match="Say which with `site=`"):
        sgp.posterior(two, samples, stats)
    value = sgp.log_evidence(stats, sgp.DiagonalPrior(jnp.ones(M)), 2.0)
    assert sgp.posterior(two, samples, stats, site="b").log_evidence[0] == pytest.approx(float(value), rel=1e-5)
