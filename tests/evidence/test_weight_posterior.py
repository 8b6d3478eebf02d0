"""p(w | y, θ) against conditioning of the joint Gaussian of weights and rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from tests.builders import PROBLEMS, by_lane
from tests.reference import dense_weight_posterior

NAMES = ["tall", "wide", "very wide", "low rank", "duplicated columns", "zero columns", "all zero"]
NAMES += ["constant y", "mean", "mean, low rank", "scalar prior", "large noise"]


def expected_moments(problem, Phi, y, prior, noise_scale):
    scale = np.exp(np.asarray(prior.log_scale, np.float64))
    mean = 0.0 if prior.mean is None else np.asarray(prior.mean, np.float64)
    return dense_weight_posterior(Phi, y, scale, mean, float(jnp.asarray(noise_scale)))


def assert_moments(posterior, expected):
    # Weights of order one; condition numbers of K up to 1e4 multiply the rounding of the reference and of float32.
    tolerance = dict(rtol=by_lane(1e-8, 5e-3), atol=by_lane(1e-9, 5e-3))
    mean, covariance = expected
    np.testing.assert_allclose(posterior.mean, mean, **tolerance)
    tril = np.asarray(posterior.scale_tril, np.float64)
    np.testing.assert_array_equal(tril, np.tril(tril))
    assert np.all(np.diag(tril) > 0)
    np.testing.assert_allclose(tril @ tril.T, covariance, **tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_mean_and_covariance(name, rng):
    problem = PROBLEMS[name](rng)
    posterior = sgp.weight_posterior(problem.statistics(), problem.prior(), problem.noise_scale)
    assert (posterior.batch_shape, posterior.event_shape) == ((), (problem.Phi.shape[1],))
    expected = expected_moments(problem, problem.Phi, problem.y, problem.prior(), problem.noise_scale)
    assert_moments(posterior, expected)


@pytest.mark.parametrize("name", ["tall", "wide", "low rank", "zero columns"])
@pytest.mark.parametrize("with_prior", [False, True])
def test_rotated(name, with_prior, rng):
    problem = PROBLEMS[name](rng)
    rotated = problem.statistics().rotate(problem.prior() if with_prior else None)
    Phi, prior = rotated.basis.host_features(problem.Phi), sgp.DiagonalPrior(1.3)
    posterior = sgp.weight_posterior(rotated, prior, 0.4)
    assert_moments(posterior, expected_moments(problem, Phi, problem.y, prior, 0.4))


def test_rotation_does_not_change_the_function(rng):
    problem = PROBLEMS["low rank"](rng)
    stats, new = problem.statistics(), rng.standard_normal((5, 20))
    rotated = stats.rotate(problem.prior())
    plain = sgp.weight_posterior(stats, problem.prior(), 0.4)
    turned = sgp.weight_posterior(rotated, sgp.DiagonalPrior(1.0), 0.4)
    Z = rotated.basis.host_features(new)
    tolerance = dict(rtol=by_lane(1e-9, 1e-2), atol=by_lane(1e-9, 1e-2))
    np.testing.assert_allclose(Z @ np.asarray(turned.mean), new @ np.asarray(plain.mean), **tolerance)
    covariances = [F @ np.asarray(p.covariance_matrix) @ F.T for F, p in ((new, plain), (Z, turned))]
    np.testing.assert_allclose(covariances[1], covariances[0], **tolerance)


def test_row_weights(rng):
    problem = PROBLEMS["row weights"](rng)
    root = np.sqrt(problem.row_weights)
    posterior = sgp.weight_posterior(problem.statistics(), problem.prior(), 0.5)
    expected = expected_moments(problem, problem.Phi * root[:, None], problem.y * root, problem.prior(), 0.5)
    assert_moments(posterior, expected)


def test_no_data_worth_mentioning_leaves_the_prior(rng):
    problem = PROBLEMS["mean"](rng)
    posterior = sgp.weight_posterior(problem.statistics(), problem.prior(), 1e6)
    np.testing.assert_allclose(posterior.mean, problem.mean, atol=1e-5)
    np.testing.assert_allclose(posterior.covariance_matrix, np.diag(np.asarray(problem.scale) ** 2), atol=1e-5)


@pytest.mark.parametrize("rotated", [False, True])
def test_batches_equal_a_loop(rotated, rng):
    problem = PROBLEMS["tall"](rng)
    stats = problem.statistics().rotate() if rotated else problem.statistics()
    scale, noise = rng.random((4, 6)) + 0.5, np.array([[0.3], [1.0]])
    posterior = sgp.weight_posterior(stats, sgp.DiagonalPrior(scale), noise)
    assert (posterior.batch_shape, posterior.event_shape) == ((2, 4), (6,))
    for index in np.ndindex(2, 4):
        one = sgp.weight_posterior(stats, sgp.DiagonalPrior(scale[index[1]]), noise[index[0], 0])
        np.testing.assert_allclose(posterior.mean[index], one.mean, rtol=by_lane(1e-12, 1e-4), atol=by_lane(0, 1e-5))
        np.testing.assert_allclose(posterior.scale_tril[index], one.scale_tril, rtol=by_lane(1e-12, 1e-4), atol=1e-6)


def test_outputs_are_the_last_batch_axis(rng):
    problem = PROBLEMS["outputs"](rng)
    posterior = sgp.weight_posterior(problem.statistics(), problem.prior(), 0.5)
    assert (posterior.batch_shape, posterior.event_shape) == ((3,), (6,))
    for j in range(3):
        mean, covariance = expected_moments(problem, problem.Phi, problem.y[:, j], problem.prior(), 0.5)
        size = np.abs(mean).max()
        np.testing.assert_allclose(posterior.mean[j], mean, atol=by_lane(1e-9, 1e-4) * size)
        np.testing.assert_allclose(posterior.covariance_matrix[j], covariance, atol=by_lane(1e-10, 1e-4))


@pytest.mark.parametrize("name", ["tall", "wide"])
def test_samples_have_the_moments(name, rng, key):
    problem = PROBLEMS[name](rng)
    posterior = sgp.weight_posterior(problem.statistics(), problem.prior(), problem.noise_scale)
    # One key a draw: strict rank promotion forbids a sample shape for vector locations in NumPyro.
    draws = np.asarray(jax.vmap(posterior.sample)(jax.random.split(key, 10_000)), np.float64)
    mean, covariance = expected_moments(problem, problem.Phi, problem.y, problem.prior(), problem.noise_scale)
    root = np.linalg.cholesky(covariance)
    whitened = np.linalg.solve(root, (draws - mean).T)
    # Standard errors of means and second moments of whitened draws: n^-½ and (2/n)^½; five of them.
    np.testing.assert_allclose(whitened.mean(axis=1), 0, atol=5 * 0.01)
    np.testing.assert_allclose(whitened @ whitened.T / len(draws), np.eye(6), atol=5 * 0.0142)


def test_under_jit_and_dtype(rng):
    problem = PROBLEMS["tall"](rng)
    stats, prior = problem.statistics(), sgp.DiagonalPrior(jnp.ones(6, jnp.float32))

    @jax.jit
    def mean(stats, prior, noise_scale):
        return sgp.weight_posterior(stats, prior, noise_scale).mean

    value = mean(stats, prior, jnp.float32(0.5))
    assert value.dtype == jnp.float32
    eager = sgp.weight_posterior(stats, prior, jnp.float32(0.5)).mean
    np.testing.assert_allclose(value, eager, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("prior", "noise_scale", "message"),
    [
        (sgp.DiagonalPrior(np.ones(5)), 0.5, "`prior` has 5 weights but the statistics have 6 features"),
        (sgp.Matern32(1.0), 0.5, "`prior` must be a weight prior.*Matern32"),
        (sgp.DiagonalPrior(1.0), -0.5, "weight_posterior: `noise_scale` must be positive"),
    ],
)
def test_bad_arguments_are_refused(prior, noise_scale, message, rng):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        sgp.weight_posterior(PROBLEMS["tall"](rng).statistics(), prior, noise_scale)
