"""Spectral densities against closed forms, transforms and convolutions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ppl_sgp.kernels import (
    Matern12,
    Matern32,
    Matern52,
    Product,
    RationalQuadratic,
    SquaredExponential,
)
from tests.kernels.cases import ALL, DTYPE, FAMILIES, RTOL, X64, families, log_density, panels, points, value


@pytest.mark.parametrize("name", ["se", "matern32", "rq", "sum", "matern*rq"])
def test_spectral_density_transforms_back_in_one_dimension(name):
    kernel = ALL[name]()
    # the tail beyond 1e4 holds 1e-5 of a Matern 1/2 of these lengthscales; the panels resolve cos up to tau = 3
    xi, weight = panels(np.concatenate([np.linspace(0, 20, 51), np.geomspace(20, 1e4, 12)[1:]]))
    density = np.asarray(kernel.spectral_density(xi[:, None].astype(DTYPE)), np.float64)
    np.testing.assert_allclose(2 * np.sum(weight * density), kernel.variance, rtol=5e-5)
    near = xi < 20
    for tau in (0.3, 1.0, 3.0):
        # beyond 20 the cosine averages out: the rest is below density(20) / (pi tau)
        rest = 2 * density[near][-1] / (2 * math.pi * tau)
        got = 2 * np.sum((weight * density * np.cos(2 * math.pi * xi * tau))[near])
        np.testing.assert_allclose(got, value(kernel, [0.0], [tau]), atol=2 * rest + 1e-5)


@families
@pytest.mark.parametrize("d", [2, 3])
def test_spectral_density_integrates_to_the_variance(family, d):
    scales = np.linspace(0.5, 2.0, d)
    kernel = FAMILIES[family](scales.astype(DTYPE), 1.3)
    # along one ray of scaled frequencies, which the density is radial in: int = area * int s**(d-1) S ds / prod(scales)
    s, weight = panels(np.concatenate([[0], np.geomspace(1e-4, 1e6, 80)]))
    xi = np.zeros((len(s), d))
    xi[:, 0], xi[:, 1] = 0.6 * s / scales[0], 0.8 * s / scales[1]
    density = np.asarray(kernel.log_spectral_density(xi.astype(DTYPE)), np.float64)
    area = {2: 2 * math.pi, 3: 4 * math.pi}[d]
    total = area * np.sum(weight * np.exp(density + (d - 1) * np.log(s))) / np.prod(scales)
    np.testing.assert_allclose(total, 1.3**2, rtol=1e-5)


@families
def test_log_spectral_density_matches_closed_form(family):
    kernel, xi = FAMILIES[family](0.8, 1.3), np.geomspace(1e-7, 1e3, 60)
    got = kernel.log_spectral_density(xi[:, None].astype(DTYPE))
    np.testing.assert_allclose(
        got, log_density(kernel, xi), rtol=RTOL * 100 if X64 else 1e-5, atol=1e-10 if X64 else 1e-5
    )


@pytest.mark.parametrize("order", [-0.49, -0.25, 0.0, 1e-3, 0.1, 0.5, 1.0, 2.5, 9.7, 10.0, 30.0, 50.0])
def test_rational_quadratic_spectrum_matches_bessel_function(order):
    # the spectral density in one dimension is K_order(z) up to known factors, order = alpha - 1/2
    kernel, z = RationalQuadratic(1.0, 1.0, order + 0.5), np.geomspace(1e-6, 1e3, 60)
    xi = z / math.sqrt(2 * kernel.alpha) / (2 * math.pi)
    got = np.asarray(kernel.log_spectral_density(xi[:, None].astype(DTYPE)))
    with np.errstate(over="ignore"):
        want = log_density(kernel, xi)
    known = np.isfinite(want)  # scipy overflows at order 50 and small z
    assert known.sum() > 45
    # float32: the exponent -1000 has spacing 6e-5
    np.testing.assert_allclose(got[known], want[known], rtol=0, atol=1e-9 if X64 else 2e-4)


@pytest.mark.parametrize("d, alpha", [(1, 0.5), (3, 1.2)])
def test_rational_quadratic_spectrum_at_zero(d, alpha):
    xi = np.array([[0.0], [1e-12]], DTYPE) * np.ones((1, d), DTYPE)
    zero, near = RationalQuadratic(1.0, 1.0, alpha).log_spectral_density(xi)
    assert zero == np.inf and np.isfinite(near)
    want = d / 2 * math.log(2 * math.pi * 4.0) + math.lgamma(4.0 - d / 2) - math.lgamma(4.0)
    np.testing.assert_allclose(RationalQuadratic(1.0, 1.0, 4.0).log_spectral_density(xi), want, rtol=10 * RTOL + 1e-9)


@pytest.mark.parametrize(
    "factors",
    [
        (Matern32(1.0), SquaredExponential(0.7)),
        (Matern32(1.0), SquaredExponential(50.0)),
        (Matern12(1.0), SquaredExponential(0.02)),
        (Matern12(1.0), Matern52(10.0)),
        (Matern52(1.0), RationalQuadratic(0.8, 1.0, 1.5)),
        (Matern52(30.0), RationalQuadratic(0.3, 1.0, 10.0)),
        (SquaredExponential(1.0), RationalQuadratic(0.8, 1.0, 0.7)),
    ],
    ids=lambda factors: "*".join(f"{type(k).__name__}({k.lengthscale})" for k in factors),
)
def test_product_spectrum_matches_convolution(factors):
    one, two = factors
    xs = np.concatenate([[0.0], np.geomspace(1e-3, 1e3, 7)])
    got = np.asarray(Product(factors).log_spectral_density(xs[:, None].astype(DTYPE)))
    for x, log_s in zip(xs, got, strict=True):
        # panels graded towards the cusps of both densities, and even ones where exponential tails overlap
        grid = np.concatenate([[0.0], np.geomspace(1e-16, 1e8, 200), np.arange(0, min(x, 100.0), 0.1)])
        u, weight = panels(np.unique(np.concatenate([grid, -grid, x - grid, x + grid])))
        regular = (u != 0) & (u != x)
        u, weight = u[regular], weight[regular]
        terms = np.log(weight) + log_density(one, u) + log_density(two, x - u)
        want = terms.max() + np.log(np.sum(np.exp(terms - terms.max())))
        # float32: rounding of the exponent, which the sum does not average out
        np.testing.assert_allclose(log_s, want, rtol=0 if X64 else 3e-6, atol=1e-6 if X64 else 2e-4)


def test_product_of_squared_exponentials_is_one():
    a, b = np.array([0.7, 2.0]), np.array([1.5, 0.4])
    product = SquaredExponential(a.astype(DTYPE), 1.2) * SquaredExponential(b.astype(DTYPE), 0.8)
    single = SquaredExponential((1 / np.sqrt(1 / a**2 + 1 / b**2)).astype(DTYPE), 0.96)
    xi = points(4)
    np.testing.assert_allclose(product.log_spectral_density(xi), single.log_spectral_density(xi), rtol=10 * RTOL)


def test_sum_in_product_is_multiplied_out():
    a, b, c = SquaredExponential(0.7), Matern32(1.5, 0.8), SquaredExponential(2.0)
    xi = points(4)
    want = (a * c).spectral_density(xi) + (b * c).spectral_density(xi)
    np.testing.assert_allclose(((a + b) * c).spectral_density(xi), want, rtol=RTOL)
