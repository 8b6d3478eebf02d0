"""The float32 promise: at 100 000 rows the evidence is within 0.1 nat of float64.

Values are compared with float64 NumPy residuals of the rows themselves, at the hyperparameters as float32 rounds
them: rounding the noise alone moves the evidence of 1e5 rows by n·6e-8 nats, which is no error of the evaluation.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from tests.builders import IdentityBasis
from tests.reference import row_log_density

NUM_ROWS = 100_000
# Residual standard deviation over that of y, one output each.
RATIOS = np.array([1.0, 0.1, 0.01, 0.001])
NOISE_FACTORS = np.array([0.5, 1.0, 2.0])


@functools.cache
def fourier(num_features, lengthscale):
    """Smooth features of inputs on [0, 1], with the prior that belongs to them."""
    rng = np.random.default_rng(num_features)
    X = rng.random((NUM_ROWS, 1))
    basis = sgp.FourierBasis.sample(jax.random.key(1), sgp.SquaredExponential(lengthscale), num_features, 1)
    prior = basis.weight_prior(sgp.SquaredExponential(jnp.float32(1.2 * lengthscale), jnp.float32(1.0)))
    return finished(basis, X, prior, rng)


@functools.cache
def random_features():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((NUM_ROWS, 100))
    scale = np.exp(rng.normal(-2, 0.5, 100)).astype(np.float32)
    return finished(IdentityBasis(100), X, sgp.DiagonalPrior(jnp.asarray(scale)), rng)


def finished(basis, X, prior, rng):
    """(statistics, features, y, prior): one output for each ratio of noise to signal, with weights from the prior."""
    Phi = basis.host_features(X)
    scale = np.exp(np.asarray(prior.log_scale, np.float64))
    signal = Phi @ (scale[:, None] * rng.standard_normal((basis.num_features, len(RATIOS))))
    y = signal / signal.std(axis=0) + RATIOS * rng.standard_normal(signal.shape)
    return sgp.sufficient_statistics(basis, X, y), Phi, y, prior


PROBLEMS = {
    "m=30, long": lambda: fourier(30, 0.3),
    "m=30, short": lambda: fourier(30, 0.05),
    "m=100, long": lambda: fourier(100, 0.3),
    "m=100, short": lambda: fourier(100, 0.05),
    "random": random_features,
}
problems = pytest.mark.parametrize("name", PROBLEMS)
some_problems = pytest.mark.parametrize("name", ["m=30, long", "m=100, short", "random"])


@functools.cache
def noise_and_truth(name):
    """Noise (factor, ratio) in float32 and the evidence there."""
    _, Phi, y, prior = PROBLEMS[name]()
    scale = np.exp(np.asarray(prior.log_scale, np.float64))
    noise = np.outer(NOISE_FACTORS, RATIOS).astype(np.float32)
    gram = Phi.T @ Phi
    values = [
        [row_log_density(Phi, y[:, j], scale, 0.0, np.float64(s), gram) for j, s in enumerate(row)] for row in noise
    ]
    return noise, np.array(values)


def evaluate(stats, prior, noise):
    """Evidence (factor, ratio) at each noise scale of each output."""
    return jax.lax.map(lambda row: sgp.log_evidence(stats, prior, row), jnp.asarray(noise))


@problems
def test_value_is_within_a_tenth_of_a_nat(name):
    stats, _, _, prior = PROBLEMS[name]()
    noise, truth = noise_and_truth(name)
    values = evaluate(stats, prior, noise)
    assert values.dtype == jnp.float32
    # A value of 5e5 nats is itself a multiple of 0.03 in float32: part of the promise.
    np.testing.assert_allclose(values, truth, rtol=0, atol=0.1)


@some_problems
def test_value_of_rotated_statistics_is_within_a_tenth_of_a_nat(name):
    stats, _, _, prior = PROBLEMS[name]()
    noise, truth = noise_and_truth(name)
    values = evaluate(stats.rotate(prior), sgp.DiagonalPrior(jnp.float32(1.0)), noise)
    np.testing.assert_allclose(values, truth, rtol=0, atol=0.1)


@pytest.mark.float64_only
@problems
def test_float64_loses_only_what_rounded_sums_lose(name):
    stats, _, _, prior = PROBLEMS[name]()
    noise, truth = noise_and_truth(name)
    prior = sgp.DiagonalPrior.from_log_scale(jnp.asarray(prior.log_scale, jnp.float64))
    error = np.abs(evaluate(stats, prior, noise.astype(np.float64)) - truth)
    # yᵀy is n·sd(y)² rounded at eps a few times over; in the evidence it is divided by the noise variance.
    bound = 1e-6 + 150 * np.finfo(np.float64).eps * NUM_ROWS / noise.astype(np.float64) ** 2
    assert np.all(error < bound), f"errors in multiples of the bound:\n{error / bound}"


@pytest.mark.float64_only
@some_problems
def test_gradients_are_close_to_those_in_float64(name):
    stats, _, _, prior = PROBLEMS[name]()

    def value(log_amplitude, log_noise):
        moved = sgp.DiagonalPrior.from_log_scale(prior.log_scale.astype(log_noise.dtype) + log_amplitude)
        return jnp.sum(sgp.log_evidence(stats, moved, jnp.exp(log_noise)))

    def gradients(dtype):
        arguments = jnp.zeros((), dtype), jnp.log(jnp.asarray(RATIOS, jnp.float32)).astype(dtype)
        return jax.grad(value, argnums=(0, 1))(*arguments)

    amplitude, noise = gradients(jnp.float32)
    expected_amplitude, expected_noise = gradients(jnp.float64)
    # At the true noise the gradient is a difference of two terms of size n: 1e5 · 6e-8 · a few roundings.
    np.testing.assert_allclose(noise, expected_noise, rtol=1e-4, atol=0.1)
    np.testing.assert_allclose(amplitude, expected_amplitude, rtol=1e-3, atol=0.05)
