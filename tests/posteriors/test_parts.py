"""The functions of some bases of a stack, against dense Gaussian-process algebra with a sum of kernels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp

pytestmark = [pytest.mark.float64_only, pytest.mark.relaxed_promotion]
NOISE = np.array([0.2, 0.5])
SLOPE = 3.0  # prior standard deviation of the line's weights


def model(stats):
    noise_scale = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
    sgp.observe("y", stats, prior_of(stats.basis), noise_scale)


def prior_of(basis):
    return basis.weight_prior((sgp.SquaredExponential(0.3), sgp.DiagonalPrior(SLOPE), sgp.Periodic(1.0, 0.7)))


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X, X_new = rng.uniform(0, 3, (25, 1)), np.array([[0.2], [1.7], [2.9]])
    basis = sgp.stack(
        sgp.LaplaceBasis.from_data(X, 12), sgp.LinearBasis(1), sgp.PeriodicBasis(period=1.0, num_harmonics=2)
    )
    return X, X_new, sgp.sufficient_statistics(basis, X, np.sin(5 * X[:, 0]) + X[:, 0] + rng.standard_normal(25))


def dense(problem, parts, y):
    """Mean and covariance over draws of the noise of the parts' functions at the new inputs."""
    X, X_new, stats = problem
    chosen = np.concatenate([np.full(b.num_features, i in parts) for i, b in enumerate(stats.basis.bases)])
    variance = np.asarray(prior_of(stats.basis).variance)
    Phi, Phi_new = stats.basis.host_features(X), stats.basis.host_features(X_new) * chosen
    means, covariances = [], []
    for noise in NOISE:
        K = Phi * variance @ Phi.T + noise**2 * np.eye(len(X))
        cross = Phi_new * variance @ Phi.T
        means.append(cross @ np.linalg.solve(K, y))
        covariances.append(Phi_new * variance @ Phi_new.T - cross @ np.linalg.solve(K, cross.T))
    between = np.cov(np.array(means).T, bias=True)
    return np.mean(means, axis=0), np.mean(covariances, axis=0) + between


@pytest.mark.parametrize("parts", [0, 1, [0, 2], (2, 1, 0)])
@pytest.mark.parametrize("rotated", [False, True])
def test_parts_are_those_of_the_dense_process(problem, parts, rotated):
    X, X_new, stats = problem
    y = np.sin(5 * X[:, 0]) + X[:, 0] + np.random.default_rng(0).standard_normal(25)
    stats = sgp.sufficient_statistics(stats.basis, X, y)
    mean, covariance = dense(problem, {parts} if isinstance(parts, int) else set(parts), y)
    used, of_model = stats, model
    if rotated:
        used = stats.rotate(prior_of(stats.basis))

        def of_model(stats):
            noise_scale = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
            sgp.observe("y", stats, sgp.DiagonalPrior(jnp.ones(stats.num_features)), noise_scale)

    prediction = sgp.predict(of_model, {"noise_scale": NOISE}, used, X_new, parts=parts)
    np.testing.assert_allclose(prediction.mean, mean, atol=1e-9)
    np.testing.assert_allclose(prediction.variance, np.diag(covariance), rtol=1e-8)
    draws = prediction.sample(jax.random.key(0), 4000, noise=False)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=5 * covariance.max() * (2 / 4000) ** 0.5)


def test_parts_with_the_same_key_sum_to_the_whole(problem):
    _, X_new, stats = problem
    whole, *parts = (sgp.predict(model, {"noise_scale": NOISE}, stats, X_new, parts=p) for p in (None, 0, 1, 2))
    total = sum(part.sample(jax.random.key(3), 5, noise=False) for part in parts)
    np.testing.assert_allclose(total, whole.sample(jax.random.key(3), 5, noise=False), atol=1e-10)
    np.testing.assert_allclose(sum(part.mean for part in parts), whole.mean, atol=1e-10)
    ax = sgp.plots.plot_predictive(parts[1], X_new, noise=False)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), parts[1].mean)


def test_refusals(problem):
    X, X_new, stats = problem
    single = sgp.sufficient_statistics(sgp.LinearBasis(1), X, X[:, 0])
    part = sgp.predict(model, {"noise_scale": NOISE}, stats, X_new, parts=1)
    augment = sgp.Augmentation(X, X[:, 0], kernel=sgp.SquaredExponential(1.0))
    ridge = sgp.models.reweighted_basis(scale=np.ones(2))
    for bad, match in (
        (lambda: sgp.predict(ridge, {"noise_scale": NOISE}, single, X_new, parts=0), "is a LinearBasis"),
        (
            lambda: sgp.predict(model, {"noise_scale": NOISE}, stats, X_new, parts=3),
            "whole numbers from 0 to 2, or names.*got 3",
        ),
        (lambda: sgp.predict(model, {"noise_scale": NOISE}, stats, X_new, parts=[]), "whole numbers from 0 to 2"),
        (lambda: sgp.predict(model, {"noise_scale": NOISE}, stats, X_new, parts=[True]), "whole numbers from 0 to 2"),
        (lambda: sgp.predict(model, {"noise_scale": NOISE}, stats, X_new, parts=1, augment=augment), "to no part"),
        (lambda: part.sample(jax.random.key(0), noise=True), "has no noise"),
        (lambda: part.log_density(np.zeros(3)), "has no noise"),
        (lambda: part.noise_variance, "has no noise"),
        (lambda: sgp.calibrate_regression(part, np.zeros(3)), "has no noise"),
    ):
        with pytest.raises(ValueError, match=match):
            bad()
