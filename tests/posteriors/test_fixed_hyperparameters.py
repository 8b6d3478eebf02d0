"""Models without latent sites: all hyperparameters are known, and the posterior is that of one draw of nothing."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.stats

import ppl_sgp as sgp
from ppl_sgp.posteriors.arviz_compat import groups
from tests.builders import by_lane
from tests.posteriors.tiny_likelihoods import tiny

RTOL = by_lane(1e-8, 1e-3)
X = np.random.default_rng(0).uniform(0, 1, (40, 1))
Y = np.sin(6 * X[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=40)
X_NEW = np.linspace(0, 1, 5)[:, None]
BASIS = sgp.LaplaceBasis.from_data(X, 12)
MODEL = sgp.models.basis_gp(sgp.SquaredExponential, lengthscale=0.3, amplitude=1.5, noise_scale=0.1)


@pytest.fixture(scope="module")
def posterior():
    return sgp.posterior(MODEL, {}, sgp.sufficient_statistics(BASIS, X, Y))


@pytest.fixture(scope="module")
def dense():
    """Covariances of the prior at training rows and between these and new ones, by features."""
    scale = np.asarray(BASIS.weight_prior(sgp.SquaredExponential(0.3, 1.5)).scale, dtype=np.float64)
    train, new = BASIS.host_features(X) * scale, BASIS.host_features(X_NEW) * scale
    return train @ train.T + 0.1**2 * np.eye(len(X)), new @ train.T, np.sum(new**2, axis=1)


def test_it_predicts_and_leaves_out_as_the_dense_process(posterior, dense):
    A, cross, prior = dense
    prediction = posterior.predict(X_NEW)
    np.testing.assert_allclose(prediction.mean, cross @ np.linalg.solve(A, Y), rtol=RTOL, atol=RTOL)
    variance = prior - np.sum(cross * np.linalg.solve(A, cross.T).T, axis=1)
    np.testing.assert_allclose(prediction.variance, variance, rtol=10 * RTOL, atol=RTOL)
    inverse = np.linalg.inv(A)
    sd = 1 / np.sqrt(np.diag(inverse))
    left_out = scipy.stats.norm(Y - sd**2 * (inverse @ Y), sd).logpdf(Y)
    np.testing.assert_allclose(posterior.leave_one_out(X, Y)[0], left_out, rtol=RTOL, atol=10 * RTOL)


def test_its_evidence_is_that_of_the_dense_process_and_nothing_has_a_prior(posterior, dense):
    evidence = scipy.stats.multivariate_normal(np.zeros(len(X)), dense[0]).logpdf(Y)
    np.testing.assert_allclose(posterior.log_evidence, [evidence], rtol=RTOL)
    assert posterior.log_prior == {} and posterior.num_draws == 1


def test_containers_and_files_have_no_posterior_but_all_else(posterior, tmp_path):
    container = posterior.to_arviz(X, Y, X_new=X_NEW, log_likelihood="evidence")
    assert {"posterior_predictive", "predictions", "log_likelihood", "observed_data"} <= set(groups(container))
    posterior.save(tmp_path / "fixed.ppl")
    again = sgp.load_posterior(tmp_path / "fixed.ppl", MODEL)
    np.testing.assert_array_equal(again.predict(X_NEW).mean, posterior.predict(X_NEW).mean)
    assert posterior.predict(X_NEW).sample(jax.random.key(0), 3).shape == (3, 5)


def test_a_report_judges_no_chains(posterior):
    checks = {finding.check for finding in sgp.report(posterior, X=X, y=Y).findings}
    assert not checks & {"one chain", "R-hat", "effective sample size"}


@pytest.mark.relaxed_promotion
def test_other_likelihoods_predict_too():
    rows = tiny("poisson")

    def fixed(statistics):
        sgp.observe("y", statistics, sgp.DiagonalPrior(np.ones(statistics.num_features)))

    assert np.isfinite(sgp.predict(fixed, {}, rows.stats, rows.X).mean).all()


@pytest.mark.float64_only
def test_exact_processes_predict_too():
    model = sgp.models.exact_gp(sgp.SquaredExponential, lengthscale=0.3, amplitude=1.5, noise_scale=0.1)
    K = np.asarray(sgp.SquaredExponential(0.3, 1.5)(X)) + 0.1**2 * np.eye(len(X))
    expected = np.asarray(sgp.SquaredExponential(0.3, 1.5)(X_NEW, X)) @ np.linalg.solve(K, Y)
    np.testing.assert_allclose(sgp.predict(model, {}, sgp.rows(X, Y), X_NEW).mean, expected, rtol=1e-8)


def test_models_with_latent_sites_need_draws_of_them():
    statistics = sgp.sufficient_statistics(BASIS, X, Y)
    with pytest.raises(ValueError, match="draws lack the latent sites"):
        sgp.posterior(sgp.models.basis_gp(), {}, statistics)
    with pytest.raises(ValueError, match="there are none.*posterior"):
        sgp.fit_evidence(MODEL, statistics)
