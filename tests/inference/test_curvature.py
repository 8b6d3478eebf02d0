"""Laplace's approximation against a density that is normal on the unconstrained scale."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import initialize_model

import ppl_sgp as sgp
from ppl_sgp.inference.curvature import WIDEST, laplace_deviations, laplace_draws

pytestmark = pytest.mark.float64_only
PRECISION = np.array([[5.0, 2.0], [2.0, 3.0]])


def normal(data):
    """Jointly normal in log a and b, in the density of the sites' own units, which has no Jacobian."""
    a = numpyro.sample("a", dist.ImproperUniform(dist.constraints.positive, (), ()))
    b = numpyro.sample("b", dist.ImproperUniform(dist.constraints.real, (), ()))
    e = jnp.stack([jnp.log(a) - 1.0, b - 2.0])
    numpyro.factor("density", -0.5 * e @ (data @ e))


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_draws_have_the_mean_and_the_covariance(scale, rng):
    values = {"a": jnp.exp(1.0), "b": jnp.asarray(2.0)}
    draws = laplace_draws(normal, jnp.asarray(scale * PRECISION), values, rng, 4000)
    z = np.stack([np.log(draws["a"]), draws["b"]])
    np.testing.assert_allclose(z.mean(axis=1), [1.0, 2.0], atol=0.1)
    flat = WIDEST**2 * np.eye(2)  # of a density that says nothing
    expected = np.linalg.inv(PRECISION) if scale == 1.0 else flat
    np.testing.assert_allclose(np.cov(z), expected, atol=0.1 * np.max(expected))


@pytest.mark.slow
def test_deviations_are_in_the_units_of_the_sites():
    found = laplace_deviations(normal, jnp.asarray(PRECISION), {"a": jnp.exp(1.0), "b": jnp.asarray(2.0)})
    covariance = np.linalg.inv(PRECISION)
    np.testing.assert_allclose(found["a"], np.e * np.sqrt(covariance[0, 0]), rtol=1e-9)  # da = a d(log a)
    np.testing.assert_allclose(found["b"], np.sqrt(covariance[1, 1]), rtol=1e-9)


@pytest.mark.relaxed_promotion
def test_the_mass_matrix_is_the_curvature_of_numpyros_potential_in_its_order(rng):
    X = rng.uniform(size=(80, 1))
    stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, X[:, 0] + 0.3 * rng.standard_normal(80))

    def model(stats):  # sites are not sampled in the order of their names
        noise = numpyro.sample("z_noise", dist.LogNormal(0.0, 1.0))
        scale = numpyro.sample("a_scale", dist.LogNormal(jnp.zeros(2), 1.0).to_event(1))
        sgp.observe("y", stats, sgp.DiagonalPrior(scale), noise)

    fit = sgp.fit_evidence(model, stats)
    info = initialize_model(jax.random.key(0), model, init_strategy=fit.init_strategy(), model_args=(stats,))
    flat, unravel = ravel_pytree(info.param_info.z)
    hessian = jax.hessian(lambda vector: info.potential_fn(unravel(vector)))(flat)  # logarithms: no change by Jacobians
    np.testing.assert_allclose(fit.inverse_mass_matrix(model, stats), np.linalg.inv(hessian), rtol=1e-6)
