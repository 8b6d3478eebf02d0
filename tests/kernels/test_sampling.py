"""Sampled frequencies reproduce the kernel as cosine averages."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
from scipy.stats import norm, qmc

from ppl_sgp.kernels import (
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
)
from tests.kernels.cases import ALL, DTYPE, FAMILIES, RTOL, everything, families, value


def assert_reproduces(kernel, xi):
    """E cos(2 pi xi.tau) is the correlation: each mean of N bounded terms is within 6 standard errors."""
    xi = np.asarray(xi, np.float64)
    for tau in (np.array([0.2, -0.1]), np.array([0.7, 0.4]), np.array([0.0, 1.5])):
        cosines = np.cos(2 * np.pi * xi @ tau)
        want = value(kernel, tau, np.zeros(2)) / float(kernel.variance)
        assert abs(cosines.mean() - want) < 6 * cosines.std() / math.sqrt(len(xi)), (tau, cosines.mean(), want)


@everything
def test_sampled_frequencies_reproduce_the_kernel(name):
    xi = ALL[name]().sample_frequencies(jax.random.key(1), (20_000, 2))
    assert xi.shape == (20_000, 2) and xi.dtype == DTYPE
    assert_reproduces(ALL[name](), xi)


@families
def test_ard_frequencies_reproduce_the_kernel(family):
    kernel = FAMILIES[family](np.array([0.4, 1.5], DTYPE))
    assert_reproduces(kernel, kernel.sample_frequencies(jax.random.key(2), (20_000, 2)))
    normals, uniforms = variates(kernel, 4096)
    assert_reproduces(kernel, kernel.frequencies_from(normals, uniforms))


@pytest.mark.slow
@pytest.mark.float64_only  # slow, and of neither precision
def test_sampling_under_jit():
    kernel, key = SquaredExponential(0.7) + Matern32(1.5, 0.8) * SquaredExponential(1.0), jax.random.key(0)
    draw = jax.jit(lambda kernel, key: kernel.sample_frequencies(key, (2, 3, 2)))
    np.testing.assert_allclose(draw(kernel, key), kernel.sample_frequencies(key, (2, 3, 2)), rtol=100 * RTOL)


def variates(kernel, n, d=2):
    """Scrambled Sobol points, split into the blocks that a kernel takes."""
    blocks, e = kernel.spectral_shape
    u = qmc.Sobol(blocks * d + e, seed=3).random(n)
    return norm.ppf(u[:, : blocks * d]).reshape(n, blocks, d), u[:, blocks * d :]


@everything
def test_quasi_random_frequencies_reproduce_each_component(name):
    kernel = ALL[name]()
    components = kernel.spectral_components()
    np.testing.assert_allclose(sum(variance for variance, _ in components), kernel.variance, rtol=RTOL)
    for variance, part in components:
        np.testing.assert_allclose(part.variance, variance, rtol=RTOL)
        xi = part.frequencies_from(*variates(part, 4096))
        assert isinstance(xi, np.ndarray) and xi.dtype == np.float64 and xi.shape == (4096, 2)
        assert_reproduces(part, xi)  # Sobol points are no worse than independent ones


def test_frequencies_from_extreme_uniforms_are_finite():
    for kernel in (Matern12(1.0), RationalQuadratic(1.0)):
        assert np.isfinite(kernel.frequencies_from(np.ones((2, 1, 1)), np.array([[0.0], [1.0]]))).all()


def test_spectral_shapes():
    assert SquaredExponential(1.0).spectral_shape == (1, 0)
    assert Matern32(1.0).spectral_shape == RationalQuadratic(1.0).spectral_shape == (1, 1)
    assert (SquaredExponential(1.0) * Matern32(1.0) * Matern12(1.0)).spectral_shape == (3, 2)
    a, b, c, d = SquaredExponential(1.0), Matern12(1.0, 2.0), Matern32(1.0), Matern52(1.0, 3.0)
    assert [variance for variance, _ in ((a + b) * (c + d)).spectral_components()] == [1.0, 9.0, 4.0, 36.0]
