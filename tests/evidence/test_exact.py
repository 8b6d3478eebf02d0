"""The evidence of an exact GP against its dense definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.test_util import check_grads

import ppl_sgp as sgp
from ppl_sgp.evidence import exact

KERNELS = [sgp.SquaredExponential([0.5, 2.0], 1.3), sgp.Matern32(0.7) + sgp.Linear(0.5)]


def some_rows(rng, n=12, outputs=None, weighted=False):
    X = rng.normal(size=(n, 2))
    y = rng.normal(size=n if outputs is None else (n, outputs))
    return sgp.rows(X, y, rng.uniform(0.2, 3.0, n) if weighted else None)


@pytest.mark.parametrize("kernel", KERNELS, ids=["ard", "sum"])
@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_value_is_that_of_the_dense_normal(rng, kernel, outputs, weighted):
    rows = some_rows(rng, outputs=outputs, weighted=weighted)
    value = exact.evaluate(rows, kernel, 0.3, rows.values)
    covariance = np.asarray(kernel(jnp.asarray(rows.X))) + 0.3**2 * np.diag(1 / rows.weights)
    dense = scipy.stats.multivariate_normal(np.zeros(12), covariance).logpdf(rows.values)
    np.testing.assert_allclose(value, dense, rtol=1e-9 if jax.config.jax_enable_x64 else 1e-4)


@pytest.mark.slow
@pytest.mark.float64_only
def test_gradients_are_those_of_finite_differences(rng):
    rows = some_rows(rng, weighted=True)

    def value(lengthscale, amplitude, noise_scale, y):
        return exact.evaluate(rows, sgp.Matern52(lengthscale, amplitude), noise_scale, y)

    arguments = (jnp.array([0.5, 2.0]), jnp.array(1.3), jnp.array(0.3), jnp.asarray(rows.y))
    check_grads(value, arguments, order=2, rtol=1e-5)
