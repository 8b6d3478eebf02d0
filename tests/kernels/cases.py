"""Kernels by name, and slow references: loops for values, closed forms for spectra."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from scipy.special import gammaln, kve

from ppl_sgp.kernels import (
    Matern12,
    Matern32,
    Matern52,
    Product,
    RationalQuadratic,
    SquaredExponential,
    Sum,
)

X64 = jax.config.jax_enable_x64
DTYPE = np.float64 if X64 else np.float32
# Values of order one after some tens of roundings each; log densities in float32 also lose the size of their exponent.
RTOL = 1e-12 if X64 else 2e-5

FAMILIES = {
    "se": SquaredExponential,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "rq": lambda lengthscale, amplitude=1.0: RationalQuadratic(lengthscale, amplitude, alpha=1.7),
}
families = pytest.mark.parametrize("family", FAMILIES)
COMPOSITES = {
    "sum": lambda: SquaredExponential(0.7, 1.2) + Matern32(1.5, 0.8),
    "three": lambda: SquaredExponential(0.7) + Matern12(1.5, 0.5) + RationalQuadratic(1.0, 2.0, 2.0),
    "se*se": lambda: SquaredExponential(0.7, 1.2) * SquaredExponential(1.5, 0.8),
    "matern*se": lambda: Matern32(0.7, 1.2) * SquaredExponential(1.5),
    "matern*rq": lambda: Matern52(1.3, 1.2) * RationalQuadratic(0.8, 1.1, 1.5),
    "sum*matern": lambda: (SquaredExponential(0.7) + Matern32(1.5, 0.8)) * Matern52(2.0),
}
ALL = {**{name: lambda make=make: make(0.8, 1.3) for name, make in FAMILIES.items()}, **COMPOSITES}
everything = pytest.mark.parametrize("name", ALL)
# One of each code path of the spectra, for tests that compile a program each.
spectral_paths = pytest.mark.parametrize("name", ["se", "matern32", "rq", "sum"])


def correlation(kernel, r):
    """The textbook formula at one scaled distance."""
    if isinstance(kernel, SquaredExponential):
        return math.exp(-0.5 * r * r)
    if isinstance(kernel, RationalQuadratic):
        return (1 + r * r / (2 * kernel.alpha)) ** -kernel.alpha
    if isinstance(kernel, Matern12):
        return math.exp(-r)
    if isinstance(kernel, Matern32):
        return (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r)
    return (1 + math.sqrt(5) * r + 5 * r * r / 3) * math.exp(-math.sqrt(5) * r)


def value(kernel, x, x2):
    """The kernel at one pair of points, by loops."""
    if isinstance(kernel, Sum):
        return sum(value(k, x, x2) for k in kernel.kernels)
    if isinstance(kernel, Product):
        return math.prod(value(k, x, x2) for k in kernel.kernels)
    scales = np.broadcast_to(kernel.lengthscale, len(x))
    r = math.sqrt(sum(((float(a) - float(b)) / float(s)) ** 2 for a, b, s in zip(x, x2, scales, strict=True)))
    return kernel.amplitude**2 * correlation(kernel, r)


def log_density(kernel, xi):
    """The one-dimensional log spectral density of a base kernel, from the closed forms with scipy's Bessel function."""
    length, a2 = kernel.lengthscale, kernel.amplitude**2
    w = 2 * np.pi * length * np.abs(xi)
    if isinstance(kernel, SquaredExponential):
        return np.log(a2 * length * math.sqrt(2 * np.pi)) - w**2 / 2
    if isinstance(kernel, RationalQuadratic):
        alpha, nu, z = kernel.alpha, kernel.alpha - 0.5, w * math.sqrt(2 * kernel.alpha)
        log_k = np.log(kve(abs(nu), z)) - z
        return np.log(2 * a2 * length) + 0.5 * np.log(2 * np.pi * alpha) - gammaln(alpha) + nu * np.log(z / 2) + log_k
    nu = {Matern12: 0.5, Matern32: 1.5, Matern52: 2.5}[type(kernel)]
    constant = math.log(a2 * length * 2 * math.sqrt(math.pi)) + math.lgamma(nu + 0.5) - math.lgamma(nu)
    return constant + nu * math.log(2 * nu) - (nu + 0.5) * np.log(2 * nu + w**2)


def panels(edges, nodes=12):
    """Composite Gauss-Legendre nodes and weights."""
    z, w = leggauss(nodes)
    a, b = edges[:-1, None], edges[1:, None]
    return ((a + b) / 2 + (b - a) / 2 * z).ravel(), ((b - a) / 2 * w).ravel()


def points(n=6, d=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(DTYPE)
