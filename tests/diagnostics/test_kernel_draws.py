"""Draws of kernels against kernels formed in full."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp
from tests.builders import by_lane

ATOL = by_lane(1e-10, 1e-4)
LAGS = np.linspace(0, 0.5, 6)


def one_input(num_features=8):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(20, 1))
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(20)
    basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), num_features, 1)
    return sgp.sufficient_statistics(basis, X, y)


def draws(**values):
    return {name: jnp.asarray(value, jnp.result_type(float)) for name, value in values.items()}


def test_covariance_and_spectrum_of_a_fourier_basis():
    stats = one_input()
    samples = draws(lengthscale=[0.2, 0.5], amplitude=[1.0, 2.0], noise_scale=[0.1, 0.2])
    kernels = sgp.kernel_draws(sgp.models.fourier_gp(), samples, stats, LAGS)
    xi = stats.basis.frequencies[:, 0]
    for draw, (lengthscale, amplitude) in enumerate([(0.2, 1.0), (0.5, 2.0)]):
        gamma = np.asarray(stats.basis.weight_prior(sgp.Matern32(lengthscale, amplitude)).variance)[:4]
        np.testing.assert_allclose(kernels.spectrum[draw], gamma, rtol=1e-5)
        np.testing.assert_allclose(
            kernels.covariance[draw], np.cos(2 * np.pi * np.outer(LAGS, xi)) @ gamma, atol=10 * ATOL
        )
    np.testing.assert_array_equal(kernels.lag, LAGS)
    np.testing.assert_array_equal(kernels.frequency, xi)
    moved = sgp.kernel_draws(sgp.models.fourier_gp(), samples, stats, LAGS, origin=[0.1])
    np.testing.assert_allclose(moved.covariance, kernels.covariance, atol=10 * ATOL)


@pytest.mark.float64_only
def test_several_inputs_and_a_dense_prior(rng):
    X = rng.uniform(size=(20, 2))
    basis = sgp.InterpolationBasis([np.linspace(-0.5, 1.5, 12)] * 2, method="linear")
    stats = sgp.sufficient_statistics(basis, X, np.sin(6 * X[:, 0]))
    model = sgp.models.basis_gp(sgp.Matern52, lengthscale=0.5, noise_scale=0.1)
    lags, origin = np.array([[0.0, 0.0], [0.3, 0.1]]), np.array([0.2, 0.4])
    kernels = sgp.kernel_draws(model, draws(amplitude=[1.0, 2.0]), stats, lags, origin=origin)
    grid = np.stack(np.meshgrid(*[np.linspace(-0.5, 1.5, 12)] * 2, indexing="ij"), -1).reshape(-1, 2)
    Phi = basis.host_features(origin + lags)
    expected = Phi[:1] @ np.asarray(sgp.Matern52(0.5)(grid)) @ Phi.T
    np.testing.assert_allclose(kernels.covariance, np.array([[1.0], [4.0]]) * expected, atol=1e-10)
    assert kernels.displacement.dims == ("lag", "input") and "spectrum" not in kernels


def test_one_scale_for_all_features():
    def model(stats):
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
        sgp.observe("y", stats, sgp.DiagonalPrior(scale), 0.1)

    kernels = sgp.kernel_draws(model, draws(scale=[1.0, 2.0]), one_input(), LAGS)
    np.testing.assert_allclose(kernels.spectrum, np.tile([[1.0], [4.0]], 4), rtol=1e-6)
    np.testing.assert_allclose(kernels.covariance[:, 0], [4.0, 16.0], rtol=1e-5)


def test_refusals():
    stats = one_input()
    samples = draws(lengthscale=[0.2], amplitude=[1.0], noise_scale=[0.1])
    model = sgp.models.fourier_gp()
    with pytest.raises(ValueError, match=r"`lags`.*\(n, 1\); got \(3, 2\)"):
        sgp.kernel_draws(model, samples, stats, np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"`origin` must have shape \(1,\); got \(2,\)"):
        sgp.kernel_draws(model, samples, stats, LAGS, origin=[0.0, 0.0])
    with pytest.raises(ValueError, match="lack the latent sites"):
        sgp.kernel_draws(model, draws(amplitude=[1.0]), stats, LAGS)

    def explicit(stats):
        sgp.observe_weights("y", stats, numpyro.sample("w", dist.Normal(0.0, 1.0).expand([8]).to_event(1)), 0.1)

    with pytest.raises(ValueError, match="keeps its weights"):
        sgp.kernel_draws(explicit, draws(w=np.zeros((1, 8))), stats, LAGS)
