"""Products with a Periodic kernel: spectra at lines, against the kernel that they transform to."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from tests.bases.frozen import check_gradients, implied_kernel
from tests.builders import by_lane

KERNEL = sgp.Periodic(0.7, 0.9, 1.2) * sgp.Matern52(2.0, 1.1)
TAU = np.linspace(0, 3, 13)


@pytest.mark.slow
def test_the_density_transforms_to_the_kernel():
    # Trapezoid over |ξ| < 40 with steps of 1/50: f is uncorrelated over 50, and the tail of Matérn 5/2 is 1e-8.
    xi = np.linspace(-40, 40, 4001)
    density = np.asarray(KERNEL.spectral_density(xi[:, None]), dtype=np.float64)
    transform = np.cos(2 * np.pi * TAU[:, None] * xi) @ density * (xi[1] - xi[0])
    np.testing.assert_allclose(transform, KERNEL(TAU[:, None], np.zeros((1, 1)))[:, 0], atol=by_lane(1e-6, 1e-4))
    assert KERNEL.has_spectrum and not sgp.Periodic(0.7, 0.9).has_spectrum


@pytest.mark.slow
def test_draws_have_the_characteristic_function_of_the_kernel(key, rng):
    blocks, uniforms = KERNEL.spectral_shape
    drawn = (
        KERNEL.sample_frequencies(key, (40_000, 1)),
        KERNEL.frequencies_from(rng.standard_normal((40_000, blocks, 1)), rng.random((40_000, uniforms))),
    )
    for xi in drawn:
        waves = np.cos(2 * np.pi * TAU * np.asarray(xi, dtype=np.float64))
        expected = np.asarray(KERNEL(TAU[:, None], np.zeros((1, 1)))[:, 0]) / (1.2 * 1.1) ** 2
        # Five standard errors of a mean of 40,000 numbers of variance at most one.
        np.testing.assert_allclose(waves.mean(axis=0), expected, atol=5 / 200)


def test_periods_are_free_on_a_box():
    basis, X = sgp.LaplaceBasis([400], centre=[0.0], boundary=[8.0]), np.linspace(-1, 1, 9)[:, None]

    def kernel(period, shape, lengthscale, amplitude):
        return sgp.SquaredExponential(lengthscale, amplitude) * sgp.Periodic(period, shape)

    for values in ((0.7, 1.5, 1.5, 1.2), (1.1, 2.0, 0.8, 0.5)):
        of_box = implied_kernel(basis, kernel(*values), X)
        np.testing.assert_allclose(of_box, kernel(*values)(X), atol=by_lane(1e-9, 1e-4))
    check_gradients(lambda *values: basis.weight_prior(kernel(*values)).log_scale[::40], 0.7, 0.8, 1.5, 1.2)


@pytest.mark.slow
def test_random_features_and_sums_among_the_factors(key):
    kernel = sgp.Periodic(0.7, 1.5) * (sgp.Matern52(1.0) + sgp.SquaredExponential(2.0, 0.5))
    assert [type(part.kernels[-1]).__name__ for _, part in kernel.spectral_components()] == [
        *("Matern52", "SquaredExponential")
    ]
    basis = sgp.FourierBasis.sample(key, kernel, 2000, 1)
    expected = np.asarray(kernel(TAU[:, None]))
    # A mean of 1000 cosines, with half of the variance each; 5 standard errors of the largest entry.
    np.testing.assert_allclose(implied_kernel(basis, kernel, TAU[:, None]), expected, atol=5 * 1.25 / np.sqrt(2000))


def test_products_without_a_density():
    for kernel in (
        sgp.Periodic(0.7, 0.9) * sgp.Periodic(1.0, 1.0),
        sgp.Periodic(0.7, 0.9) * sgp.Periodic(1.0, 1.0) * sgp.Matern32(1.0),
        sgp.Constant(2.0) * sgp.Periodic(0.7, 0.9),
    ):
        assert not kernel.has_spectrum
        with pytest.raises(ValueError, match="no spectral density for .*Periodic"):
            sgp.LaplaceBasis([5], [0.0], [1.0]).weight_prior(kernel)
    with pytest.raises(ValueError, match=r"Periodic: `X` must have shape \(n, 1\)"):
        sgp.LaplaceBasis([3, 3], [0.0, 0.0], [1.0, 1.0]).weight_prior(KERNEL)


@pytest.mark.slow
def test_under_vmap_and_in_float32():
    def log_scale(period):
        kernel = sgp.Matern32(jnp.float32(1.0)) * sgp.Periodic(period, jnp.float32(1.0))
        return sgp.LaplaceBasis([6], [0.0], [1.0]).weight_prior(kernel).log_scale

    values = jax.vmap(log_scale)(jnp.asarray([0.7, 1.1], jnp.float32))
    assert values.dtype == jnp.float32
    np.testing.assert_allclose(values[1], log_scale(jnp.float32(1.1)), rtol=1e-5)
