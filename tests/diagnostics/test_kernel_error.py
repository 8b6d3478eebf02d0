"""The error of the implied kernel against matrices formed in full."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp
from tests.builders import by_lane

X = np.random.default_rng(0).uniform(size=(30, 2))
Y = np.sin(6 * X[:, 0]) + 0.1 * np.random.default_rng(1).standard_normal(30)
RTOL = by_lane(1e-9, 1e-3)


def draws(**values):
    return {name: jnp.asarray(value, jnp.result_type(float)) for name, value in values.items()}


SAMPLES = draws(lengthscale=[[0.2, 0.5], [0.6, 1.0]], amplitude=[1.0, 2.0], noise_scale=[0.1, 0.2])


def by_hand(basis, kernels):
    """Relative Frobenius errors and ratios of variances, from dense matrices in float64."""
    Phi, errors, ratios = basis.host_features(X), [], []
    for kernel in kernels:
        K = np.asarray(kernel(X), np.float64)
        implied = Phi @ np.diag(np.asarray(basis.weight_prior(kernel).variance, np.float64)) @ Phi.T
        errors.append(np.sqrt(np.sum((implied - K) ** 2) / np.sum(K**2)))
        ratios.append(np.trace(implied) / np.trace(K))
    return errors, ratios


@pytest.mark.parametrize("which", ["fourier", "laplace"])
def test_error_of_each_draw(which):
    if which == "fourier":
        basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(np.array([0.3, 0.6])), 40, 2)
        family, model = sgp.Matern32, sgp.models.fourier_gp()
    else:
        basis, family = sgp.LaplaceBasis.from_data(X, [8, 8]), sgp.Matern52
        model = sgp.models.basis_gp(sgp.Matern52)
    found = sgp.kernel_error(model, SAMPLES, sgp.sufficient_statistics(basis, X, Y), X)
    kernels = [family(np.asarray(s), a) for s, a in zip(SAMPLES["lengthscale"], SAMPLES["amplitude"], strict=True)]
    errors, ratios = by_hand(basis, kernels)
    np.testing.assert_allclose(found.relative_error, errors, rtol=RTOL)
    np.testing.assert_allclose(found.variance_ratio, ratios, rtol=RTOL)
    assert found.sizes == {"draw": 2}


@pytest.mark.slow
def test_fixed_hyperparameters_and_shapes_are_known_to_the_model():
    basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.RationalQuadratic(0.5, alpha=1.0), 40, 2)
    stats = sgp.sufficient_statistics(basis, X, Y)
    model = sgp.models.fourier_gp(
        lambda scale, sd, alpha: sgp.RationalQuadratic(scale, sd, alpha=alpha),
        lengthscale=0.4,
        amplitude=1.5,
        alpha=dist.LogNormal(0.0, 1.0),
    )
    found = sgp.kernel_error(model, draws(alpha=[0.7, 2.0], noise_scale=[0.1, 0.1]), stats, X)
    errors, _ = by_hand(basis, [sgp.RationalQuadratic(0.4, 1.5, alpha=alpha) for alpha in (0.7, 2.0)])
    np.testing.assert_allclose(found.relative_error, errors, rtol=RTOL)


@pytest.mark.float64_only
def test_exact_bases_have_no_error():
    kernel = sgp.Linear(weight_scale=[0.5, 2.0], bias=1.0)

    def model(stats):
        noise_scale = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
        sgp.observe("y", stats, stats.basis.weight_prior(kernel), noise_scale)

    stats = sgp.sufficient_statistics(sgp.LinearBasis(2), X, Y)
    found = sgp.kernel_error(model, draws(noise_scale=[0.1]), stats, X, kernel=lambda theta: kernel)
    np.testing.assert_allclose(found.relative_error, 0.0, atol=1e-14)
    np.testing.assert_allclose(found.variance_ratio, 1.0, rtol=1e-14)


def test_refusals():
    stats = sgp.sufficient_statistics(sgp.LaplaceBasis.from_data(X, [3, 3]), X, Y)
    own = lambda stats: sgp.observe("y", stats, sgp.DiagonalPrior(jnp.ones(9)), 0.1)  # noqa: E731
    with pytest.raises(ValueError, match="kernel of this model is not known.*`kernel=lambda"):
        sgp.kernel_error(own, draws(unused=np.ones(1)), stats, X)
    with pytest.raises(ValueError, match=r"`X`.*\(n, 2\); got \(30, 1\)"):
        sgp.kernel_error(sgp.models.basis_gp(), SAMPLES, stats, X[:, :1])
    with pytest.raises(ValueError, match="must return a kernel; got float"):
        sgp.kernel_error(sgp.models.basis_gp(), SAMPLES, stats, X, kernel=lambda theta: 1.0)

    def explicit(stats):
        sgp.observe_weights("y", stats, numpyro.sample("w", dist.Normal(0.0, 1.0).expand([9]).to_event(1)), 0.1)

    with pytest.raises(ValueError, match="keeps its weights"):
        sgp.kernel_error(explicit, draws(w=np.zeros((1, 9))), stats, X, kernel=lambda theta: sgp.Matern32(1.0))


class TwoScales:
    """A model of a user's own that says which kernel it stands for."""

    def __call__(self, stats):
        lengthscale = numpyro.sample("lengthscale", dist.LogNormal(-1.0, 0.5))
        prior = stats.basis.weight_prior(self.kernel_at({"lengthscale": lengthscale}))
        sgp.observe("y", stats, prior, numpyro.sample("noise_scale", dist.HalfNormal(1.0)))

    def kernel_at(self, draw, basis=None, output=0):
        return sgp.Matern32(draw["lengthscale"]) + sgp.Matern32(5 * draw["lengthscale"])


def test_a_model_of_ones_own_that_knows_its_kernel():
    basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), 40, 2)
    values = draws(lengthscale=[0.2, 0.5], noise_scale=[0.1, 0.2])
    found = sgp.kernel_error(TwoScales(), values, sgp.sufficient_statistics(basis, X, Y), X)
    errors, ratios = by_hand(basis, [TwoScales().kernel_at({"lengthscale": scale}) for scale in (0.2, 0.5)])
    np.testing.assert_allclose(found.relative_error, errors, rtol=RTOL)
    np.testing.assert_allclose(found.variance_ratio, ratios, rtol=RTOL)
