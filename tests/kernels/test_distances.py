"""Squared distances: what is multiplied out has the digits of differences, or is not multiplied out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppl_sgp.kernels.distances import squared_distances


def by_differences(X, X2, lengthscales):
    return jnp.sum(((X[:, None, :] - X2[None, :, :]) / lengthscales[None, None, :]) ** 2, axis=-1)


def loss(distances):
    def value(*arguments):
        weights = jnp.sin(jnp.arange(12, dtype=arguments[0].dtype)).reshape(4, 3)
        return jnp.sum(weights * jnp.exp(-distances(*arguments) / 2))

    return value


def problem(where, spread):
    rng = np.random.default_rng(0)
    X, X2 = where + spread * rng.standard_normal((4, 2)), where + spread * rng.standard_normal((3, 2))
    X2[0] = X[1]
    X2[1] = X[2] + 1e-3
    return jnp.asarray(X), jnp.asarray(X2), jnp.asarray([0.7, 1.3])


@pytest.mark.parametrize("multiply_out", [True, False])
@pytest.mark.parametrize(("where", "spread"), [(0.0, 1.0), (1.7e9, 1.0), (0.0, 1e6)])
@pytest.mark.float64_only
def test_derivatives_have_the_digits_of_differences(where, spread, multiply_out):
    arguments = problem(where, spread)

    def ours(*arguments):
        return squared_distances(multiply_out, *arguments)

    np.testing.assert_allclose(ours(*arguments), by_differences(*arguments), rtol=1e-14, atol=0)
    expected = jax.grad(loss(by_differences), argnums=(0, 1, 2))(*arguments)
    result = jax.jit(jax.grad(loss(ours), argnums=(0, 1, 2)))(*arguments)
    for one, other in zip(result, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.float64_only
def test_second_derivatives_and_batches():
    X, X2, lengthscales = problem(0.0, 1.0)

    def ours(lengthscales):
        return loss(lambda *arguments: squared_distances(True, *arguments))(X, X2, lengthscales)

    def theirs(lengthscales):
        return loss(by_differences)(X, X2, lengthscales)

    np.testing.assert_allclose(jax.hessian(ours)(lengthscales), jax.hessian(theirs)(lengthscales), rtol=1e-9)
    batch = jnp.stack([lengthscales, 2 * lengthscales])
    np.testing.assert_allclose(jax.vmap(jax.grad(ours))(batch), jax.vmap(jax.grad(theirs))(batch), rtol=1e-9)


def test_single_precision_takes_differences():
    X, X2, lengthscales = (jnp.asarray(array, jnp.float32) for array in problem(1e4, 1e-1))
    expected = jax.grad(loss(by_differences), argnums=2)(X, X2, lengthscales)
    result = jax.grad(loss(lambda *arguments: squared_distances(True, *arguments)), argnums=2)(X, X2, lengthscales)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
