"""Derivatives of kernels and of their spectral densities, against finite differences and where formulas are 0/0."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from tests.kernels.cases import ALL, DTYPE, FAMILIES, RTOL, families, points, spectral_paths


@families
def test_derivatives_finite_at_coincident_inputs(family):
    X, scales = np.zeros((3, 2), DTYPE), jnp.ones(2, DTYPE)

    def total(X, scales, amplitude):
        return jnp.sum(FAMILIES[family](scales, amplitude)(X))

    grads = jax.jit(jax.grad(total, argnums=(0, 1, 2)))(X, scales, jnp.ones((), DTYPE))
    np.testing.assert_array_equal(grads[0], 0)
    np.testing.assert_array_equal(grads[1], 0)
    np.testing.assert_allclose(grads[2], 18.0, rtol=RTOL)  # 9 entries of amplitude**2
    hessian = jax.jit(jax.hessian(total, argnums=(0, 1, 2)))(X, scales, jnp.ones((), DTYPE))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(hessian))


@pytest.mark.parametrize("family, curvature", [("se", -1.0), ("rq", -1.0), ("matern32", -3.0), ("matern52", -5 / 3)])
def test_curvature_at_zero_distance(family, curvature):
    def k(x):
        return FAMILIES[family](2.0)(x[None, None], jnp.zeros((1, 1), DTYPE))[0, 0]

    np.testing.assert_allclose(jax.grad(jax.grad(k))(jnp.zeros((), DTYPE)), curvature / 4, rtol=RTOL)


@pytest.mark.float64_only
@pytest.mark.parametrize(
    "name, what",
    [(name, "value") for name in ALL] + [(name, "spectrum") for name in [*FAMILIES, "sum", "se*se", "matern*rq"]],
)
def test_gradients_match_finite_differences(name, what):
    X, frequencies = points(4, 2), 0.4 * points(4, 2, seed=1)
    start, rebuild = ravel_pytree(jax.tree.map(jnp.asarray, (ALL[name](), X, frequencies)))

    def f(flat):
        kernel, X, frequencies = rebuild(flat)
        if what == "value":
            return jnp.sum(jnp.sin(kernel(X, points(3, 2, seed=2))))
        return jnp.sum(jnp.sin(kernel.log_spectral_density(frequencies)))

    step, f_and_grad = 1e-5, jax.jit(jax.value_and_grad(f))
    grad = f_and_grad(start)[1]
    differences = [
        (f_and_grad(start + e)[0] - f_and_grad(start - e)[0]) / (2 * step) for e in step * np.eye(len(start))
    ]
    np.testing.assert_allclose(grad, differences, rtol=1e-6, atol=1e-8)  # truncation 1e-10, rounding 1e-11 times |f|


@spectral_paths
def test_spectral_derivatives_finite_at_zero_frequency(name):
    def f(kernel, xi):
        return kernel.log_spectral_density(xi)[0]

    xi = jnp.zeros((1, 2), DTYPE)
    kernel = jax.tree.map(lambda v: jnp.asarray(v, DTYPE), ALL[name]())
    grads = jax.jit(jax.grad(f, argnums=(0, 1)))(kernel, xi)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))
    np.testing.assert_allclose(grads[1], 0, atol=1e-6)  # an even function
