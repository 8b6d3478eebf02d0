"""Shrinkage over inverse lengthscales: the density of the prior, what it finds, and what it is refused for."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.handlers import seed, trace
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_density
from scipy import stats as scipy_stats

import ppl_sgp as sgp

MODEL = sgp.models.exact_gp(lengthscale=sgp.models.SparseAxes(), amplitude=1.0, noise_scale=0.05)


def truth(X):
    return np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + X[:, 0] * X[:, 2]


def rows_of(n, d):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, d))
    return X, truth(X) + 0.05 * rng.standard_normal(n)


@pytest.mark.slow
def test_the_prior_is_half_cauchy_in_squared_inverse_ranges(x64):
    X, y = rows_of(30, 4)
    X[:, 3] = 2.0  # never varies: the unit of the others
    stats = sgp.sufficient_statistics(sgp.FourierBasis.from_data(jax.random.key(0), X, 10), X, y)
    model = sgp.models.fourier_gp(lengthscale=sgp.models.SparseAxes(0.3), amplitude=1.0, noise_scale=0.1)
    values = {"lengthscale": jnp.array([0.4, 1.0, 30.0, 2.0]), "global_scale": jnp.array(0.7)}
    prior = trace(seed(model, jax.random.key(0))).get_trace(stats)["lengthscale"]["fn"]
    assert prior.support(values["lengthscale"])
    alone = (
        log_density(model, (stats,), {}, values)[0]
        - log_density(
            sgp.models.fourier_gp(lengthscale=values["lengthscale"], amplitude=1.0, noise_scale=0.1), (stats,), {}, {}
        )[0]
    )
    scale = X.std(axis=0)
    scale[3] = np.exp(np.log(scale[:3]).mean())
    ell, tau, unit = np.asarray(values["lengthscale"]), 0.7, np.sqrt(12) * scale
    rho = (unit / ell) ** 2
    expected = scipy_stats.halfcauchy.logpdf(tau)
    expected += np.sum(scipy_stats.halfcauchy.logpdf(rho, scale=0.3 * tau) + np.log(2 * rho / ell))
    np.testing.assert_allclose(alone, expected, rtol=1e-6 if x64 else 2e-3)


@pytest.mark.slow
@pytest.mark.float64_only
def test_three_of_ten_inputs_are_found():
    X, y = rows_of(70, 10)
    X_new = np.random.default_rng(1).uniform(-1, 1, (200, 10))
    rows = sgp.rows(X, y - y.mean())
    model = sgp.models.exact_gp(lengthscale=sgp.models.SparseAxes())
    posterior = sgp.posterior(model, sgp.fit_evidence(model, rows), rows)
    error = posterior.predict(X_new).mean + y.mean() - truth(X_new)
    assert np.sqrt(np.mean(error**2)) < 0.15 * truth(X_new).std()
    found = sgp.input_relevance(posterior)
    spans = found["inverse_lengthscale"].sel(quantile=0.5).values
    assert spans[:3].min() > 5 * spans[3:].max()
    slopes = found["slope"].sel(quantile=0.5).values
    expected = np.abs(np.stack([3 * np.cos(3 * X[:, 0]) + X[:, 2], 2 * X[:, 1], X[:, 0]])).T
    expected = np.sqrt(np.mean(expected**2, axis=0)) * X.std(axis=0)[:3]
    np.testing.assert_allclose(slopes[:3], expected, rtol=0.15)
    assert slopes[3:].max() < 0.1 * slopes[:3].min()


@pytest.mark.slow
@pytest.mark.float64_only
def test_the_model_pickles_and_knows_its_kernel():
    X, y = rows_of(20, 3)
    model = pickle.loads(pickle.dumps(MODEL))
    draws = {"lengthscale": np.array([[0.5, 2.0, 8.0]]), "global_scale": np.ones(1)}
    assert model.kernel_at({name: each[0] for name, each in draws.items()}).lengthscale.tolist() == [0.5, 2.0, 8.0]
    rows = sgp.rows(X, y)
    posterior = sgp.posterior(model, draws, rows)
    expected = sgp.ExactGP(rows, sgp.SquaredExponential(draws["lengthscale"][0]), 0.05).log_prob(y)
    np.testing.assert_allclose(posterior.log_evidence, [expected], rtol=1e-12)
    found = sgp.input_relevance(posterior, X[:5], names=["a", "b", "c"])
    spans = np.broadcast_to(X.std(axis=0) / [0.5, 2.0, 8.0], (3, 3))  # three quantiles of one draw
    np.testing.assert_allclose(found["inverse_lengthscale"], spans)
    gradient = sgp.predict_gradient(posterior, X[:5])
    squares = np.mean(gradient.mean**2 + gradient.variance, axis=0)
    np.testing.assert_allclose(found["slope"][0], np.sqrt(squares) * X.std(axis=0))
    with pytest.raises(ValueError, match="names"):
        sgp.input_relevance(posterior, names=["a"])


def test_what_has_no_lengthscale_an_input_is_refused():
    X, y = rows_of(20, 3)
    basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.5), 10, 3)
    stats = sgp.sufficient_statistics(basis, X, y)
    model = sgp.models.fourier_gp(lengthscale=sgp.models.SparseAxes())
    with pytest.raises(ValueError, match="a lengthscale an input"):
        sgp.fit_evidence(model, stats)
    with pytest.raises(ValueError, match="global_scale"):
        sgp.models.SparseAxes(0.0)
    isotropic = sgp.posterior(sgp.models.fourier_gp(amplitude=1.0, noise_scale=0.1), {"lengthscale": np.ones(2)}, stats)
    with pytest.raises(ValueError, match="one an input"):
        sgp.input_relevance(isotropic)


@pytest.mark.end_to_end
@pytest.mark.float64_only
@pytest.mark.relaxed_promotion
def test_nuts_finds_the_inputs_that_matter():
    X, y = rows_of(80, 10)
    rows = sgp.rows(X, y - y.mean())
    fit = sgp.fit_evidence(MODEL, rows)
    mcmc = MCMC(
        NUTS(MODEL, init_strategy=fit.init_strategy(), max_tree_depth=6),
        num_warmup=150,
        num_samples=150,
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), rows)
    slope = sgp.input_relevance(sgp.posterior(MODEL, mcmc, rows))["slope"].values
    assert slope[0, :3].min() > slope[2, 3:].max()
