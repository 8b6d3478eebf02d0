"""A variational posterior of weights: predictions against dense ones, files, containers, reports."""

import pickle

import jax
import numpy as np
import pytest
from scipy.stats import norm

import ppl_sgp as sgp
from ppl_sgp.stochastic import VariationalWeights

# Classes of NumPyro compare Booleans and integers.
pytestmark = pytest.mark.relaxed_promotion

m, K = 6, 2


def weights(likelihood=None, L=None, num_columns=K, parameters=()):
    """A posterior of arbitrary numbers."""
    rng = np.random.default_rng(1)
    shape = (m,) if L is None else (L, m)
    columns = rng.normal(size=(*shape, num_columns)) * 0.3 * (np.arange(m)[:, None] > np.arange(num_columns))
    basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.5), m, 1)
    return VariationalWeights(
        basis=basis,
        loc=rng.normal(size=shape),
        diagonal=rng.uniform(0.2, 0.5, size=shape),
        columns=columns,
        prior=sgp.DiagonalPrior(np.ones(m)),
        noise_scale=0.4 if likelihood is None else None,
        likelihood=likelihood,
        parameters=np.asarray(parameters, np.float64),
        bound_trace=np.arange(5.0),
        held_out_trace=np.zeros((0, 2)),
        reason="made up",
    )


def dense(fit):
    """Mean (L, m) and factor C (L, m, m)."""
    loc, diagonal = (np.atleast_2d(part) for part in (fit.loc, fit.diagonal))
    C = np.stack([np.diag(d) for d in diagonal])
    C[..., : np.shape(fit.columns)[-1]] += np.asarray(fit.columns).reshape(*loc.shape, -1)
    return loc, C


X = np.linspace(-1, 1, 9)[:, None]


@pytest.mark.parametrize("num_columns", [0, K, m])
def test_gaussian_predictions_are_those_of_dense_weights(key, num_columns):
    fit = weights(num_columns=num_columns)
    (loc,), (C,) = dense(fit)
    Phi = fit.basis.host_features(X)
    prediction = fit.predict(X)
    covariance = Phi @ C @ C.T @ Phi.T
    np.testing.assert_allclose(prediction.mean, Phi @ loc, atol=1e-12)
    np.testing.assert_allclose(prediction.covariance(), covariance, atol=1e-12)
    np.testing.assert_allclose(prediction.variance, np.diag(covariance), atol=1e-12)
    np.testing.assert_allclose(fit.variance, np.diag(C @ C.T), atol=1e-12)
    y = np.cos(3 * X[:, 0])
    expected = norm.logpdf(y, Phi @ loc, np.sqrt(np.diag(covariance) + 0.16))
    np.testing.assert_allclose(prediction.log_density(y), expected, atol=1e-10)
    drawn = prediction.sample(key, 4000, noise=False)
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.1 * covariance.max())
    assert sgp.calibrate_regression(prediction, y)["crps"].shape == (9,)


def test_likelihoods_average_over_the_predictor(key):
    fit = weights(sgp.likelihoods.Bernoulli("probit"))
    (loc,), (C,) = dense(fit)
    Phi = fit.basis.host_features(X)
    s = np.sqrt(np.sum((Phi @ C) ** 2, axis=1))
    prediction = fit.predict(X)
    expected = norm.cdf(Phi @ loc / np.sqrt(1 + s**2))
    np.testing.assert_allclose(prediction.probabilities[:, 1], expected, atol=1e-6)
    drawn = prediction.sample(key, 2000)
    assert np.abs(drawn.mean(axis=0) - expected).max() < 5 * 0.5 / np.sqrt(2000)
    shifted = fit.predict(X, offset=np.full(9, 100.0))
    np.testing.assert_allclose(shifted.probabilities[:, 1], 1.0, atol=1e-6)


@pytest.mark.slow
def test_several_predictors_and_free_parameters(key):
    classes = weights(sgp.likelihoods.Categorical(3), L=sgp.likelihoods.Categorical(3).num_latents)
    np.testing.assert_allclose(classes.predict(X).probabilities.sum(axis=1), 1.0, atol=1e-6)
    tails = weights(sgp.likelihoods.AsymmetricLaplace(), parameters=[np.log(0.1)])
    (loc,), _ = dense(tails)
    np.testing.assert_allclose(tails.predict(X).mean, tails.basis.host_features(X) @ loc, atol=1e-3)
    assert tails.to_arviz(key, X, X[:, 0], num_draws=5)["posterior"]["scale"].values[0, 0] == pytest.approx(0.1)


@pytest.mark.parametrize("likelihood", [None, sgp.likelihoods.Bernoulli()])
def test_files_and_pickles_predict_the_same(tmp_path, likelihood):
    fit = weights(likelihood)
    fit.save(tmp_path / "fit.npz")
    for again in (sgp.load_posterior(tmp_path / "fit.npz"), pickle.loads(pickle.dumps(fit))):
        assert again.reason == "made up"
        np.testing.assert_array_equal(again.predict(X).mean, fit.predict(X).mean)
    assert jax.tree.map(lambda leaf: leaf, fit).num_weights == m
    assert "num_columns=2" in repr(fit)


def test_container(key):
    fit = weights()
    y = np.cos(3 * X[:, 0])
    data = fit.to_arviz(key, X, y, X[:4], num_draws=300)
    drawn = data["posterior"]["weights"]
    assert drawn.dims == ("chain", "draw", "feature") and drawn.shape == (1, 300, m)
    eta = drawn.values[0] @ fit.basis.host_features(X).T
    np.testing.assert_allclose(data["log_likelihood"]["y"].values[0], norm.logpdf(y, eta, 0.4), atol=1e-8)
    assert data["posterior_predictive"]["y"].shape == (1, 300, 9) and data["predictions"]["y"].shape == (1, 300, 4)
    outcomes = weights(sgp.likelihoods.Bernoulli()).to_arviz(key, X, y > 0, num_draws=3)
    assert set(np.unique(outcomes["posterior_predictive"]["y"])) <= {0, 1}
    with pytest.raises(ValueError, match="num_draws"):
        fit.to_arviz(key, X, y, num_draws=10**9)
    with pytest.raises(ValueError, match="both `X` and `y`"):
        fit.to_arviz(key, X)


def test_report_names_what_is_wrong(rng):
    fit = weights()
    loc, _ = dense(fit)
    inputs = rng.uniform(-1, 1, (400, 1))
    y = fit.basis.host_features(inputs) @ loc[0] + 2.0 * rng.normal(size=400)
    assert any("too narrow" in finding.symptom for finding in fit.report(inputs, y).findings)
    values = {**vars(fit), "bound_trace": np.arange(1000.0)}
    values.pop("chevron", None), values.pop("_amplitude", None)
    rising = VariationalWeights(**values)
    assert [finding.check for finding in rising.report().findings] == ["steps"]
    assert weights(num_columns=0).report().ok and "mean field" in str(weights(num_columns=0).report())


@pytest.mark.slow
def test_refusals():
    fit = weights()
    with pytest.raises(ValueError, match="`offset` and `given` are of likelihoods"):
        fit.predict(X, offset=np.zeros(9))
    with pytest.raises(ValueError, match="are of Gaussian noise"):
        weights(sgp.likelihoods.Bernoulli()).predict(X, row_weights=np.ones(9))
    with pytest.raises(ValueError, match="`X_new` must have shape"):
        fit.predict(np.zeros((3, 2)))
