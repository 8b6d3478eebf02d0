"""What users write themselves goes through statistics, evidence, fits, chains' draws, predictions and files."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import multivariate_normal

import ppl_sgp as sgp
from tests.builders import by_lane
from tests.extension.own_classes import AutoregressivePrior, Band, Brownian, HatBasis

X = np.linspace(0.05, 0.95, 40)[:, None]
Y = np.sin(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0])
BASIS = HatBasis(np.linspace(0, 1, 9))


def lane(array):
    return jnp.asarray(array, jnp.result_type(float))


def dense(Phi, C, noise_scale):
    return multivariate_normal.logpdf(Y, np.zeros(len(Y)), Phi @ C @ Phi.T + noise_scale**2 * np.eye(len(Y)))


def test_a_basis_has_all_that_bases_have():
    features = BASIS.host_features(X)
    np.testing.assert_allclose(features.sum(axis=1), 1)
    np.testing.assert_allclose(features @ BASIS.knots, X[:, 0])
    np.testing.assert_allclose(jax.jit(BASIS.__call__)(lane(X)), features, atol=by_lane(1e-14, 1e-6))
    assert BASIS.feature_coords == {} and not BASIS.constant_features.any() and BASIS.unrotated is BASIS
    with pytest.raises(ValueError, match="outside the knots"):
        BASIS(np.array([[2.0]]))
    with pytest.raises(ValueError, match=r"HatBasis: `X` must have shape \(n, 1\)"):
        BASIS(np.ones((3, 2)))
    stacked = sgp.stack(BASIS, sgp.SelectedColumns(HatBasis(np.linspace(0, 1, 4), closed=True), [0], 1))
    assert stacked.num_features == 12 and stacked.approximates_kernel
    np.testing.assert_allclose(stacked.host_features(X)[:, :9], features)


def test_files_and_pickles_keep_it(tmp_path):
    stats = sgp.sufficient_statistics(HatBasis(np.linspace(0, 1, 5), closed=True), X, Y)
    stats.save(tmp_path / "stats")
    for copy in (sgp.SufficientStatistics.load(tmp_path / "stats"), pickle.loads(pickle.dumps(stats))):
        assert type(copy.basis) is HatBasis and copy.basis.closed
        np.testing.assert_array_equal(copy.basis.host_features(X), stats.basis.host_features(X))
    assert (stats + sgp.SufficientStatistics.load(tmp_path / "stats")).num_rows == 80
    nystrom = sgp.sufficient_statistics(sgp.NystromBasis(X[::8], Brownian()), X, Y)
    nystrom.save(tmp_path / "nystrom")
    assert type(sgp.SufficientStatistics.load(tmp_path / "nystrom").basis.kernel) is Brownian


@pytest.mark.slow
@pytest.mark.float64_only
@pytest.mark.relaxed_promotion
def test_from_rows_to_predictions():
    stats = sgp.sufficient_statistics(BASIS, X, Y)

    def model(stats):
        amplitude = numpyro.sample("amplitude", dist.HalfNormal(3.0))
        sgp.observe("y", stats, stats.basis.weight_prior(Brownian(amplitude)), 0.1)

    fit = sgp.fit_evidence(model, stats)
    amplitude = float(fit.values["amplitude"])
    knots = BASIS.knots[:, None]
    C, Phi = amplitude**2 * np.minimum(knots, knots.T), BASIS.host_features(X)
    evidence = dense(Phi, C, 0.1)
    np.testing.assert_allclose(sgp.log_evidence(stats, BASIS.weight_prior(Brownian(amplitude)), 0.1), evidence)
    assert all(dense(Phi, factor * C, 0.1) < evidence + 0.3 for factor in (0.5, 2.0))  # near the mode of its prior, too
    X_new = np.array([[0.1], [0.5], [0.77]])
    prediction = sgp.predict(model, {"amplitude": np.array([amplitude])}, stats, X_new)
    Phi_new = BASIS.host_features(X_new)
    gain = Phi_new @ C @ Phi.T @ np.linalg.inv(Phi @ C @ Phi.T + 0.01 * np.eye(40))
    np.testing.assert_allclose(prediction.mean, gain @ Y, rtol=1e-7)
    np.testing.assert_allclose(
        prediction.variance, np.diag(Phi_new @ C @ Phi_new.T - gain @ Phi @ C @ Phi_new.T), rtol=1e-6
    )


@pytest.mark.float64_only
def test_a_kernel_in_bases_that_take_any():
    grid = sgp.InterpolationBasis(np.linspace(0, 1, 6))
    np.testing.assert_allclose(
        grid.weight_prior(Brownian(2.0)).covariance, 4 * np.minimum(*np.meshgrid(*grid.grid * 2))
    )
    nystrom = sgp.NystromBasis(X[::8], Brownian(3.0))
    prior = nystrom.weight_prior(Brownian(2.0))  # the amplitude is free
    np.testing.assert_allclose(nystrom.residual_amplitude(prior), [4.0])
    Phi = nystrom.host_features(X)
    np.testing.assert_allclose(np.sum(Phi**2, axis=1) + nystrom.residual_variance(X)[0], X[:, 0], rtol=1e-9)
    mixed = (Brownian() + sgp.Matern32(0.2)) * Brownian()
    np.testing.assert_allclose(mixed(X), Brownian()(X) ** 2 + sgp.Matern32(0.2)(X) * Brownian()(X))
    with pytest.raises(ValueError, match="no spectral density for Brownian.*InterpolationBasis"):
        sgp.FourierBasis.sample(jax.random.key(0), mixed, 4, 1)
    with pytest.raises(ValueError, match="got Brownian.*NystromBasis"):
        sgp.GridEigenBasis.from_kernel(Brownian(), X, 4)


@pytest.mark.float64_only
def test_a_spectrum_gives_fourier_features():
    kernel = Band(width=2.0, amplitude=1.5)
    basis = sgp.FourierBasis.sample(jax.random.key(0), Band(3.0), 2000, 1, method="quasi_random")
    Phi, variance = basis.host_features(X), np.asarray(basis.weight_prior(kernel).variance)
    np.testing.assert_allclose((Phi * variance) @ Phi.T, kernel(X), atol=0.02)
    both = kernel + sgp.Matern32(1.0)
    np.testing.assert_allclose(
        both.spectral_density(np.array([[1.0]])), 2.25 / 4 + sgp.Matern32(1.0).spectral_density(np.array([[1.0]]))
    )


@pytest.mark.slow
@pytest.mark.float64_only
def test_a_prior_of_weights():
    stats = sgp.sufficient_statistics(BASIS, X, Y)
    prior = AutoregressivePrior(jnp.asarray(1.3), jnp.asarray(0.8), 9)
    C = 1.3**2 * 0.8 ** np.abs(np.subtract.outer(np.arange(9), np.arange(9)))
    np.testing.assert_allclose(prior.covariance, C)
    np.testing.assert_allclose(sgp.log_evidence(stats, prior, 0.1), dense(BASIS.host_features(X), C, 0.1), rtol=1e-9)
    w = np.sin(np.arange(9.0))
    np.testing.assert_allclose(prior.distribution().log_prob(w), multivariate_normal.logpdf(w, np.zeros(9), C))
    rotated = stats.rotate(prior)
    np.testing.assert_allclose(
        sgp.log_evidence(rotated, sgp.DiagonalPrior(2.0), 0.1), dense(BASIS.host_features(X), 4 * C, 0.1), rtol=1e-9
    )
    stacked = sgp.stack(prior, sgp.DiagonalPrior(jnp.ones(2)))
    assert stacked.num_weights == 11 and stacked.independent.tolist() == [False] * 9 + [True] * 2

    def evidence(correlation):
        return sgp.log_evidence(stats, AutoregressivePrior(jnp.asarray(1.3), correlation, 9), 0.1)

    difference = (evidence(0.8 + 1e-5) - evidence(0.8 - 1e-5)) / 2e-5
    np.testing.assert_allclose(jax.grad(evidence)(0.8), difference, rtol=1e-6)
    with numpyro.handlers.seed(rng_seed=0):
        assert sgp.latent("f", BASIS, prior)(X).shape == (40,)
