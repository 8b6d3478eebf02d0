"""The exact GP as a distribution: dense normals, draws, plates, and what it refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro import handlers
from numpyro.infer.util import log_density

import ppl_sgp as sgp
from ppl_sgp.evidence import exact

ROWS = sgp.rows(np.linspace(0, 2, 6)[:, None] ** 2, np.cos(np.arange(6.0)), np.linspace(0.5, 2, 6))
KERNEL = sgp.Matern32(0.7, 1.3) + sgp.Linear(0.5)


def dense_covariance(noise_scale=0.4):
    X = np.asarray(ROWS.X)
    distance = np.sqrt(3) * np.abs(X - X.T) / 0.7
    K = 1.3**2 * (1 + distance) * np.exp(-distance) + 0.25 * X @ X.T
    return K + noise_scale**2 * np.diag(1 / ROWS.weights)


@pytest.mark.float64_only
def test_density_mean_and_variance_are_those_of_the_dense_normal():
    site = sgp.ExactGP(ROWS, KERNEL, 0.4)
    dense = scipy.stats.multivariate_normal(np.zeros(6), dense_covariance())
    assert float(site.log_prob(ROWS.values)) == pytest.approx(dense.logpdf(ROWS.y), rel=1e-12)
    np.testing.assert_allclose(site.variance, np.diag(dense_covariance()), rtol=1e-12)
    assert not np.any(np.asarray(site.mean))


@pytest.mark.float64_only
def test_draws_have_the_covariance_of_the_dense_normal():
    """Whitened by the dense factor they are standard normal, each and in pairs."""
    for noise_scale in (0.4, 1.0):
        draws = np.asarray(sgp.ExactGP(ROWS, KERNEL, noise_scale).sample(jax.random.key(3), (20_000,)))
        white = np.linalg.solve(np.linalg.cholesky(dense_covariance(noise_scale)), draws.T)
        np.testing.assert_allclose(white @ white.T / 20_000, np.eye(6), atol=5 * np.sqrt(2 / 20_000))
        assert all(scipy.stats.kstest(row, "norm").pvalue > 1e-4 for row in white)


@pytest.mark.float64_only
def test_one_row_repeated_rows_and_constant_outputs():
    for rows in (
        sgp.rows([[1.0]], [2.0]),
        sgp.rows(np.ones((3, 1)), [1.0, 2.0, 3.0]),
        sgp.rows(np.arange(3.0)[:, None], np.full(3, 5.0)),
    ):
        site = sgp.ExactGP(rows, sgp.SquaredExponential(0.5, 2.0), 0.3)
        X = np.asarray(rows.X)
        K = 4 * np.exp(-0.5 * ((X - X.T) / 0.5) ** 2) + 0.09 * np.eye(len(X))
        expected = scipy.stats.multivariate_normal(np.zeros(len(X)), K).logpdf(rows.y)
        assert float(site.log_prob(rows.values)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.float64_only
def test_feature_kernels_are_those_of_features_and_their_weights(rng):
    basis, covariance = sgp.PolynomialBasis(1, 2), np.array([[2.0, 0.3, 0], [0.3, 1.0, 0.1], [0, 0.1, 0.5]])
    X, X2 = rng.normal(size=(4, 1)), rng.normal(size=(3, 1))
    Phi, Phi2 = basis.host_features(X), basis.host_features(X2)
    for prior, C in (
        (sgp.DensePrior(covariance), covariance),
        (sgp.DiagonalPrior(jnp.array([1.0, 2.0, 3.0])), np.diag([1.0, 4.0, 9.0])),
        (sgp.DiagonalPrior(2.0), 4 * np.eye(3)),
    ):
        kernel = sgp.FeatureKernel(basis, prior)
        np.testing.assert_allclose(kernel(X, X2), Phi @ C @ Phi2.T, rtol=1e-12)
        np.testing.assert_allclose(kernel.diag(X), np.diag(Phi @ C @ Phi.T), rtol=1e-12)


def test_feature_kernels_refuse_what_they_are_not():
    basis = sgp.LinearBasis(1)
    for arguments, message in (
        ((sgp.Linear(), sgp.DiagonalPrior(1.0)), "`basis` must be a Basis; got Linear"),
        ((basis, sgp.Linear()), "`prior` must be a WeightPrior; got Linear"),
        ((basis, sgp.DiagonalPrior(np.ones(3))), "2 weights of the basis; got 3 weights"),
        ((basis, sgp.DiagonalPrior(np.ones(2), mean=np.ones(2))), "mean zero.*Subtract"),
    ):
        with pytest.raises(ValueError, match=message):
            sgp.FeatureKernel(*arguments)


def model(rows):
    lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-0.5, 0.5))
    sgp.observe_exact("y", rows, sgp.Matern52(lengthscale), 0.4)


def density_at(statement, rows, point):
    return float(log_density(statement, (rows,), {}, point)[0])


@pytest.mark.float64_only
def test_a_model_observes_the_rows_once():
    point = {"lengthscale": jnp.asarray(0.6)}
    evidence = float(sgp.ExactGP(ROWS, sgp.Matern52(0.6), 0.4).log_prob(ROWS.values))
    expected = evidence + float(dist.LogNormal(-0.5, 0.5).log_prob(0.6))
    assert density_at(model, ROWS, point) == pytest.approx(expected, rel=1e-12)


@pytest.mark.float64_only
def test_data_plates_are_refused_and_plates_over_outputs_are_not(rng):
    two = sgp.rows(ROWS.X, rng.normal(size=(6, 2)))

    def inside(size):
        def statement(rows):
            with numpyro.plate("plate", size):
                sgp.observe_exact("y", rows, KERNEL, 0.4)

        return statement

    with pytest.raises(ValueError, match="inside the plate 'plate'.*outside the data plate"):
        handlers.seed(inside(6), jax.random.key(0))(ROWS)
    alone = np.sum(np.asarray(sgp.ExactGP(two, KERNEL, 0.4).log_prob(two.values)))
    assert density_at(inside(2), two, {}) == pytest.approx(alone, rel=1e-12)
    with pytest.raises(ValueError, match=r"batch of shape \(3,\).*row_weights"):
        sgp.observe_exact("y", ROWS, KERNEL, jnp.full(3, 0.4))


@pytest.mark.float64_only
def test_arguments_of_the_wrong_kind():
    stats = sgp.sufficient_statistics(sgp.LinearBasis(1), ROWS.X, ROWS.y)
    for rows, message in ((stats, "got SufficientStatistics.*sgp.observe"), (ROWS.X, "sgp.rows.*got ndarray")):
        with pytest.raises(ValueError, match=message):
            sgp.ExactGP(rows, KERNEL, 0.4)
    with pytest.raises(ValueError, match="got type|got Matern52"):
        sgp.ExactGP(ROWS, sgp.Matern52, 0.4)
    with pytest.raises(ValueError, match=r"got a HalfNormal distribution.*numpyro\.sample"):
        sgp.ExactGP(ROWS, KERNEL, dist.HalfNormal(1.0))
    with pytest.raises(ValueError, match=r"data are of 3 output\(s\).*`noise_scale` has batch shape \(2,\)"):
        sgp.ExactGP(sgp.rows(ROWS.X, np.ones((6, 3))), KERNEL, jnp.full(2, 0.4))
    with pytest.raises(ValueError, match="sgp.observe_exact"):
        sgp.SparseGP(ROWS, sgp.DiagonalPrior(1.0), 0.4)


@pytest.mark.float64_only
def test_kernels_that_are_not_finite_are_refused():
    huge = sgp.rows(1e200 * ROWS.X, ROWS.y)
    with pytest.raises(ValueError, match="Linear is not finite at rows 1 and 1"):
        sgp.ExactGP(huge, sgp.Linear(1.0), 0.4)


def test_float32_is_refused():
    """In both lanes: the arguments are float32."""
    with pytest.raises(ValueError, match=r"needs float64.*enable_x64"):
        sgp.ExactGP(ROWS, sgp.Matern52(jnp.float32(0.5)), jnp.float32(0.1))
    if not jax.config.jax_enable_x64:
        with pytest.raises(ValueError, match=r"exact_gp needs float64.*enable_x64"):
            handlers.seed(sgp.models.exact_gp(), jax.random.key(0))(ROWS)


@pytest.mark.float64_only
def test_more_rows_than_memory_has_room_for_are_refused(monkeypatch):
    monkeypatch.setattr(exact, "_memory", lambda: 1000.0)
    with pytest.raises(ValueError, match=r"6 × 6 take .*inducing points.*sgp\.sufficient_statistics"):
        jax.jit(lambda noise: sgp.ExactGP(ROWS, KERNEL, noise).log_prob(ROWS.values))(0.4)


@pytest.mark.float64_only
@pytest.mark.parametrize("noise_scale", [0.0, np.nan, np.inf])
def test_traced_density_that_is_not_finite_is_minus_infinity(noise_scale):
    evidence = jax.jit(lambda noise: sgp.ExactGP(ROWS, KERNEL, noise).log_prob(ROWS.values))
    assert float(evidence(noise_scale)) == -np.inf
