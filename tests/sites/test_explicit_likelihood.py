"""Explicit weights with the exact likelihood: densities against direct formulas, and chains against a grid."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_density
from scipy.stats import norm

import ppl_sgp as sgp
from ppl_sgp.sites.explicit_likelihood import explicit_weights
from tests.builders import by_lane
from tests.posteriors.test_likelihood_predictions import OVERDISPERSED, several
from tests.posteriors.tiny_likelihoods import SCALES, model, tiny

pytestmark = pytest.mark.relaxed_promotion
RTOL = by_lane(1e-8, 1e-4)


@pytest.fixture(scope="module")
def rows():
    return tiny("poisson")


def lane(values):
    return jnp.asarray(values, jnp.result_type(float))


@pytest.mark.parametrize("kind", ["dense", "rotated", pytest.param("correlated", marks=pytest.mark.float64_only)])
def test_coordinates_have_the_density_of_the_prior_with_their_volume(rows, kind):
    stats = rows.stats.rotate(sgp.DiagonalPrior(1.0)) if kind == "rotated" else rows.stats
    mean = lane([0.3, -0.2])
    prior = sgp.DiagonalPrior(lane([0.7, 1.4]), mean)
    if kind == "correlated":
        prior = sgp.DensePrior(lane([[1.0, 0.4], [0.4, 0.8]]), mean=mean)
    z = lane([0.4, -1.1])
    w, log_volume = explicit_weights(stats, prior, z)
    jacobian = jax.jacobian(lambda z: explicit_weights(stats, prior, z)[0])(z)
    covariance = np.asarray(prior.covariance, dtype=np.float64)
    from_prior = np.asarray(w - mean, dtype=np.float64)
    log_prior = -0.5 * from_prior @ np.linalg.solve(covariance, from_prior)
    log_prior -= 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    expected = log_prior + np.linalg.slogdet(np.asarray(jacobian, dtype=np.float64))[1] - norm.logpdf(z).sum()
    np.testing.assert_allclose(log_volume, expected, rtol=100 * RTOL)
    # They are those of the expansion's own posterior: at zero its mean, and their products its covariance.
    posterior = sgp.weight_posterior(stats, prior, 1.0)
    np.testing.assert_allclose(explicit_weights(stats, prior, 0 * z)[0], posterior.mean, rtol=RTOL, atol=RTOL)
    np.testing.assert_allclose(jacobian @ jacobian.T, posterior.covariance_matrix, rtol=100 * RTOL, atol=RTOL)


def test_the_joint_density_is_exact(rows):
    explicit, data = sgp.explicit_model(model), sgp.explicit_rows(rows.stats, rows.X, rows.y)
    z, scale = lane([0.5, -0.8]), lane(1.3)
    prior = sgp.DiagonalPrior(scale)
    w, log_volume = explicit_weights(rows.stats, prior, z)
    found = log_density(explicit, (data,), {}, {"scale": scale, "y_whitened": z})[0]
    expected = float(dist.LogNormal(0.0, 0.4).log_prob(scale)) + norm.logpdf(z).sum() + float(log_volume)
    expected += rows.rows_log_density(np.asarray(w, dtype=np.float64)[None]).sum()
    np.testing.assert_allclose(found, expected, rtol=10 * RTOL)


@pytest.mark.slow
def test_parameters_of_the_likelihood_join():
    X, y = several(OVERDISPERSED)
    stats = sgp.compress_likelihood(sgp.LinearBasis(1), X, y, OVERDISPERSED, sgp.DiagonalPrior(1.0))
    explicit, data = sgp.explicit_model(model), sgp.explicit_rows(stats, X, y)
    values = {"scale": lane(1.0), "y_whitened": lane([0.3, 0.4]), "y_parameters_whitened": lane([-0.7])}
    found, trace = log_density(explicit, (data,), {}, values)
    w, log_volume = explicit_weights(stats, sgp.DiagonalPrior(lane(1.0)), values["y_whitened"])
    coordinate = float(trace["log_concentration"]["value"])
    factor = float(stats.parameters.factor[0, 0])
    np.testing.assert_allclose(coordinate, stats.parameters.mean(np.asarray(w))[0] - 0.7 * factor, rtol=RTOL)
    eta = stats.basis.host_features(X) @ np.asarray(w, dtype=np.float64)
    logs = np.asarray(OVERDISPERSED.log_prob(lane(eta), y, lane([coordinate])), dtype=np.float64)
    expected = norm.logpdf(values["y_whitened"]).sum() + float(log_volume) + logs.sum()
    expected += norm.logpdf(coordinate) + np.log(factor) + float(dist.LogNormal(0.0, 0.4).log_prob(1.0))
    np.testing.assert_allclose(found, expected, rtol=10 * RTOL)


def test_offsets_and_row_weights_count(rows):
    offset, omega = 0.2 * np.cos(np.arange(40)), 1.0 + np.arange(40) % 3
    likelihood, prior = sgp.likelihoods.Poisson(), sgp.DiagonalPrior(1.0)
    stats = sgp.compress_likelihood(rows.basis, rows.X, rows.y, likelihood, prior, offset=offset, row_weights=omega)
    data = sgp.explicit_rows(stats, rows.X, rows.y, omega, offset)
    w = lane([0.4, 0.6])
    eta = rows.basis.host_features(rows.X) @ np.asarray(w) + offset
    expected = omega @ (rows.y * eta - np.exp(eta) - np.array([sum(np.log(range(1, int(k) + 1))) for k in rows.y]))
    site = sgp.ExplicitLikelihood(data, w, jnp.zeros(0, w.dtype))
    np.testing.assert_allclose(site.log_prob(data.y), expected, rtol=10 * RTOL)
    assert site.sample(jax.random.key(0)).shape == (40,)


def test_arguments_that_do_not_fit_are_refused(rows):
    with pytest.raises(ValueError, match="40 rows; got 39"):
        sgp.explicit_rows(rows.stats, rows.X[1:], rows.y[1:])
    with pytest.raises(ValueError, match="must come from `sgp.explicit_rows"):
        sgp.explicit_model(model)(rows.stats)


@pytest.mark.end_to_end
def test_chains_have_the_exact_posterior_where_weights_are_not_reliable():
    rare = tiny("rare", n=200)
    explicit, data = sgp.explicit_model(model), sgp.explicit_rows(rare.stats, rare.X, rare.y)
    with numpyro.validation_enabled(False):
        mcmc = MCMC(NUTS(explicit), num_warmup=500, num_samples=4000, progress_bar=False)
        mcmc.run(jax.random.key(0), data, extra_fields=("num_steps",))
    posterior = sgp.posterior(explicit, mcmc, data)
    w, probability = rare.posterior()
    of_weights = probability.sum(axis=0)
    exact = of_weights @ w
    sd = np.sqrt(of_weights @ (w - exact) ** 2)
    error = np.abs(posterior.samples["y_weights"].mean(axis=0) - exact) / sd
    of_scale = probability.sum(axis=1)
    print(error, np.mean(mcmc.get_extra_fields()["num_steps"]), of_scale @ np.log(SCALES))
    np.testing.assert_array_less(error, 0.15)
    prediction = posterior.predict(rare.X[:3])
    eta = w @ rare.basis.host_features(rare.X[:3]).T
    np.testing.assert_allclose(prediction.mean, of_weights @ (1 / (1 + np.exp(-eta))), rtol=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("free", [False, True], ids=["fixed", "parameters"])
def test_subsampled_rows_estimate_the_density_without_bias(free):
    """Blocks that cover all rows once: their mean is the density of all rows, up to a constant."""
    if free:
        X, y = several(OVERDISPERSED)
        stats = sgp.compress_likelihood(sgp.LinearBasis(1), X, y, OVERDISPERSED, sgp.DiagonalPrior(1.0))
    else:
        rows = tiny("poisson", n=60)
        X, y, stats = rows.X, rows.y, rows.stats
    data = sgp.explicit_rows(stats, X, y)
    some, full = sgp.explicit_model(model, subsample_size=15), sgp.explicit_model(model)

    def densities(values):
        blocks = [np.arange(60)[i::4] for i in range(4)]
        estimates = [
            log_density(handlers.substitute(some, {"y_rows": jnp.asarray(block)}), (data,), {}, values)[0]
            for block in blocks
        ]
        return np.array(estimates, dtype=np.float64), float(log_density(full, (data,), {}, values)[0])

    z = {"y_parameters_whitened": lane([0.6])} if free else {}
    here, there = (
        densities({"scale": lane(s), "y_whitened": lane(w), **z}) for s, w in ((1.0, [0, 0]), (1.4, [0.9, -1.2]))
    )
    # Parameters were expanded around a point that is known to the last step of the search only.
    atol = 0.01 if free else by_lane(1e-7, 1e-2)
    np.testing.assert_allclose(here[0].mean() - here[1], there[0].mean() - there[1], atol=atol)
    # What is scaled up is small: without the quadratic terms estimates differ by tens of nats.
    assert there[0].std() < 1.5
