"""Gradients through the weight prior of every basis: of draws of functions and of the evidence, at nasty points.

Lengthscales of 5 on [0, 1] make the covariance on a grid singular to rounding; variances of features underflow.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.infer.util import log_density

import ppl_sgp as sgp
from tests.builders import by_lane

X = np.linspace(0.05, 0.95, 20)[:, None]
Y = np.sin(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0])
TWO = np.stack([X[:, 0], 0.5 + 0.4 * np.sin(40 * X[:, 0])], axis=1)


def stationary(family):
    return lambda theta: family(jnp.exp(theta[0]), jnp.exp(theta[1]))


def amplitude_of(kernel):
    return lambda theta: type(kernel)(kernel.lengthscale, jnp.exp(theta[1]))


def _bases():
    """(basis, inputs, kernel of (log lengthscale, log amplitude))"""
    smooth, rough = stationary(sgp.SquaredExponential), stationary(sgp.Matern32)
    frozen = sgp.SquaredExponential(5.0)
    fourier = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), 8, 1)
    grid, plane = np.linspace(0, 1, 12), [np.linspace(0, 1, 4)] * 2
    yield "fourier", fourier, X, rough
    yield "laplace", sgp.LaplaceBasis.from_data(X, 6), X, smooth
    yield "interpolation, kronecker", sgp.InterpolationBasis(grid), X, smooth
    yield "interpolation, two inputs", sgp.InterpolationBasis(plane), TWO, smooth
    yield "interpolation, dense", sgp.InterpolationBasis(grid, method="linear"), X, stationary(sgp.Matern52)
    yield "nystrom", sgp.NystromBasis(X[::4], frozen), X, amplitude_of(frozen)
    yield "grid eigenfunctions", sgp.GridEigenBasis.from_kernel(frozen, X, 4), X, amplitude_of(frozen)
    yield "periodic", sgp.PeriodicBasis(1.0, 4), X, lambda t: sgp.Periodic(1.0, jnp.exp(t[0]), jnp.exp(t[1]))
    yield "linear", sgp.LinearBasis(1), X, lambda t: sgp.Linear(jnp.exp(t[0]), jnp.exp(t[1]))
    yield "polynomial", sgp.PolynomialBasis(1, 3), X, lambda t: sgp.Polynomial(3, jnp.exp(t[0]) / 8, jnp.exp(t[1]))
    columns = sgp.SelectedColumns(sgp.InterpolationBasis(grid), [1], 2)
    yield "columns", columns, TWO, smooth
    stacked = sgp.stack(sgp.SelectedColumns(fourier, [0], 2), columns)
    yield "stack", stacked, TWO, lambda t: (rough(t), smooth(t))


BASES = {name: case for name, *case in _bases()}
every = pytest.mark.parametrize("name", BASES)
POINTS = {"short": (np.log(0.2), 0.3), "long": (np.log(5.0), -0.4)}


def check(function, theta, rtol, atol):
    """The gradient is finite and equals differences of fourth order."""
    theta = jnp.asarray(theta, jnp.result_type(float))
    gradient = np.asarray(jax.jit(jax.grad(function))(theta))
    assert np.isfinite(gradient).all()
    h, value = by_lane(2e-3, 2e-2), jax.jit(function)
    for i, e in enumerate(np.eye(len(theta), dtype=theta.dtype)):
        near, far = ((value(theta + s * e) - value(theta - s * e)) / (2 * s) for s in (h, 2 * h))
        np.testing.assert_allclose(gradient[i], (4 * near - far) / 3, rtol=rtol, atol=atol)


@every
@pytest.mark.parametrize("point", POINTS)
def test_of_the_log_density_of_latent_functions(name, point):
    basis, inputs, kernel = BASES[name]
    Phi, z = basis(jnp.asarray(inputs, jnp.result_type(float))), np.sin(np.arange(basis.num_features))

    def model(theta):
        f = sgp.latent("f", basis, basis.weight_prior(kernel(theta)))(features=Phi)
        numpyro.factor("y", jnp.sum(jnp.sin(3 * f)))

    def density(theta):
        return log_density(model, (theta,), {}, {"f_whitened": jnp.asarray(z, theta.dtype)})[0]

    # Roots of zero eigenvalues are known to √ε, and differences to √ε/h.
    check(density, POINTS[point], rtol=by_lane(1e-4, 0.1), atol=by_lane(1e-4, 0.3))


@every
@pytest.mark.float64_only
@pytest.mark.parametrize("point", POINTS)
def test_of_the_evidence(name, point):
    basis, inputs, kernel = BASES[name]
    statistics = sgp.sufficient_statistics(basis, inputs, Y)

    def evidence(theta):
        return sgp.log_evidence(statistics, basis.weight_prior(kernel(theta)), 0.2)

    check(evidence, POINTS[point], rtol=1e-6, atol=1e-6)
