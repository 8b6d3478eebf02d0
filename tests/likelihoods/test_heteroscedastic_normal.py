"""Normal outcomes with a predictor of their noise: closed forms against definitions and quadrature, and one fit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats

import ppl_sgp as sgp
from tests.reference import finite_difference

LIKELIHOOD = sgp.likelihoods.HeteroscedasticNormal(unit=2.5)
Y = np.array([0.3, -4.0, 2.0])
ETA = np.array([[0.1, -0.5], [-1.0, 0.3], [2.0, 1.0]])


def log_density(eta, y):
    return scipy.stats.norm.logpdf(y, 2.5 * eta[..., 0], 2.5 * np.exp(eta[..., 1]))


def test_derivatives_are_those_of_the_definition(x64):
    found = LIKELIHOOD.derivatives(ETA, Y)
    rtol = 1e-9 if x64 else 2e-5
    np.testing.assert_allclose(LIKELIHOOD.log_prob(ETA, Y), log_density(ETA, Y), rtol=rtol)
    np.testing.assert_allclose(found.log_prob, log_density(ETA, Y), rtol=rtol)
    for row in range(3):
        slope = finite_difference(lambda eta, row=row: log_density(eta, Y[row]), ETA[row])
        np.testing.assert_allclose(found.gradient[row], slope, rtol=1e-6 if x64 else 1e-4, atol=1e-6)
        # The curvature is the covariance of the gradient over outcomes, by quadrature.
        nodes, weights = np.polynomial.hermite_e.hermegauss(30)
        outcomes = 2.5 * (ETA[row, 0] + np.exp(ETA[row, 1]) * nodes)
        score = np.asarray(LIKELIHOOD.derivatives(np.broadcast_to(ETA[row], (30, 2)), outcomes).gradient)
        information = (weights / weights.sum() * score.T) @ score
        np.testing.assert_allclose(found.curvature[row], information, rtol=1e-4, atol=1e-4)


def test_averages_are_those_of_quadrature(x64):
    covariance = np.array([[0.3, 0.1], [0.1, 0.2]])
    found = LIKELIHOOD.averaged(ETA, np.broadcast_to(covariance, (3, 2, 2)), Y)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
    share = np.outer(weights, weights).ravel() / (2 * np.pi)
    for row in range(3):
        at = ETA[row] + grid @ np.linalg.cholesky(covariance).T
        each = LIKELIHOOD.derivatives(at, np.full(len(at), Y[row]))
        rtol = 1e-6 if x64 else 1e-3
        np.testing.assert_allclose(found.log_prob[row], share @ np.asarray(each.log_prob), rtol=rtol)
        np.testing.assert_allclose(found.gradient[row], share @ np.asarray(each.gradient), rtol=rtol, atol=1e-4)
        np.testing.assert_allclose(
            found.curvature[row], np.einsum("s,sij->ij", share, each.curvature), rtol=rtol, atol=1e-4
        )


def test_what_is_no_outcome_is_refused():
    with pytest.raises(ValueError, match="finite"):
        LIKELIHOOD.check(np.array([1.0, np.inf]))
    with pytest.raises(ValueError, match="unit"):
        sgp.likelihoods.HeteroscedasticNormal(0.0)


@pytest.mark.slow
@pytest.mark.float64_only
@pytest.mark.relaxed_promotion
def test_noise_follows_the_inputs():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (600, 1))
    noise = np.exp(-1.5 + 1.2 * np.sin(3 * X[:, 0]))
    y = 5 * (np.sin(4 * X[:, 0]) + noise * rng.standard_normal(600))
    basis = sgp.stack(sgp.LaplaceBasis.from_data(X, 8, 2.0), sgp.ConstantBasis(1))
    prior = basis.weight_prior((sgp.SquaredExponential(0.6), sgp.DiagonalPrior(2.0)))
    prior = sgp.stack(prior, prior)
    stats = sgp.compress_likelihood(basis, X, y, sgp.likelihoods.HeteroscedasticNormal(unit=5.0), prior)

    def model(stats):
        numpyro.sample("unused", dist.Normal())
        sgp.observe("y", stats, prior)

    posterior = sgp.posterior(model, {"unused": np.zeros(200)}, stats)
    assert posterior.importance_weights(X, y, key=jax.random.key(0)).reliable
    X_new = np.linspace(-0.9, 0.9, 7)[:, None]
    prediction = posterior.take(slice(0, 1)).predict(X_new)
    np.testing.assert_allclose(prediction.mean, 5 * np.sin(4 * X_new[:, 0]), atol=1.2)
    deviation = np.sqrt(np.asarray(prediction.variance))
    np.testing.assert_allclose(deviation, 5 * np.exp(-1.5 + 1.2 * np.sin(3 * X_new[:, 0])), rtol=0.35)
    # The mean of y given weights, and those of the posterior, over Monte Carlo draws of the weights.
    weights = np.asarray(sgp.weight_posterior(stats, prior).sample(jax.random.key(1), (20000,)))
    eta = np.einsum("nm,skm->snk", basis.host_features(X_new), weights.reshape(len(weights), 2, -1))
    total = 25 * (np.exp(2 * eta[..., 1]).mean(axis=0) + eta[..., 0].var(axis=0))
    np.testing.assert_allclose(prediction.variance, total, rtol=0.03)
    assert jnp.isfinite(prediction.log_density(np.zeros(7))).all()
