"""Kronecker algebra against matrices that are formed."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.grids import kronecker
from ppl_sgp.grids.toeplitz import Toeplitz

SIZES = (3, 4, 2)


@pytest.fixture(scope="module")
def factors():
    rng = np.random.default_rng(0)
    roots = [rng.normal(size=(m, m)) for m in SIZES]
    return [jnp.asarray(A @ A.T / m) for A, m in zip(roots, SIZES, strict=True)]


def close(left, right, x64, factor=1.0):
    np.testing.assert_allclose(
        left, right, rtol=(1e-10 if x64 else 2e-4) * factor, atol=(1e-10 if x64 else 2e-4) * factor
    )


def test_products_are_row_major_and_batched(factors, rng, x64):
    rectangular = [factor[:2] for factor in factors]
    x = jnp.asarray(rng.normal(size=(2, 5, *SIZES)))
    dense = functools.reduce(np.kron, map(np.asarray, rectangular))
    expected = np.asarray(x).reshape(10, -1) @ dense.T
    for product in (kronecker.apply, jax.jit(kronecker.apply)):
        close(np.asarray(product(rectangular, x)).reshape(10, -1), expected, x64)
    close(jax.vmap(lambda x: kronecker.apply(rectangular, x))(x).reshape(10, -1), expected, x64)


def test_products_are_differentiable(factors, x64):
    x = jnp.ones(SIZES)

    def quadratic(factors):
        return jnp.sum(x * kronecker.apply(factors, x))

    gradient = jax.grad(quadratic)(factors)
    others = [[jnp.sum(f) for k, f in enumerate(factors) if k != axis] for axis in range(3)]
    for found, sums in zip(gradient, others, strict=True):
        close(found, jnp.full_like(found, sums[0] * sums[1]), x64, 10)


def test_determinants(factors, x64):
    dense = functools.reduce(np.kron, [np.asarray(f, np.float64) for f in factors])
    expected = np.linalg.slogdet(dense + 0.1 * np.eye(len(dense)))[1]
    close(kronecker.eigen(factors).log_determinant(0.1), expected, x64, 10)
    regular = [f + jnp.eye(len(f), dtype=f.dtype) for f in factors]
    expected = np.linalg.slogdet(functools.reduce(np.kron, [np.asarray(f, np.float64) for f in regular]))[1]
    close(kronecker.cholesky_log_determinant(kronecker.cholesky(regular)), expected, x64, 10)


def test_toeplitz_products_are_those_of_the_matrix(rng, x64):
    column = np.asarray(sgp.Matern32(2.0)(np.arange(7.0)[:, None]))[:, 0]
    toeplitz, x = Toeplitz(jnp.asarray(column)), jnp.asarray(rng.normal(size=(2, 7, 3)))
    identity = jnp.eye(3)
    close(kronecker.apply([toeplitz, identity], x), kronecker.apply([toeplitz.matrix, identity], x), x64)
    close(toeplitz.matrix, sgp.Matern32(2.0)(np.arange(7.0)[:, None]), x64)
