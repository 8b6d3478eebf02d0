"""The variance that a basis lacks of its kernel, in predictions and leave-one-out densities, against dense algebra."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.stats import norm

import ppl_sgp as sgp

pytestmark = pytest.mark.float64_only
KERNEL = sgp.SquaredExponential(0.15)
X_NEW = np.array([[0.1], [0.33], [0.5]])
DRAWS = {"amplitude": np.array([0.8, 1.4]), "noise_scale": np.array([0.1, 0.2])}
MODEL = sgp.models.basis_gp(lengthscale=0.15)


@pytest.fixture
def rows(rng):
    X = rng.uniform(0, 1, (30, 1))
    return X, np.sin(6 * X[:, 0]) + 0.1 * rng.normal(size=30)


def nystrom(kernel=KERNEL):
    return sgp.NystromBasis(np.linspace(0, 1, 4)[:, None], kernel)


def dense(basis, X, y, rows_left_out=None):
    """Means and variances (S, n_new) of f: deterministic training conditional, and the whole kernel at new inputs."""
    moments = []
    for amplitude, noise in zip(DRAWS["amplitude"], DRAWS["noise_scale"], strict=True):
        Phi, Phi_new = amplitude * basis.host_features(X), amplitude * basis.host_features(X_NEW)
        K = Phi @ Phi.T + noise**2 * np.eye(len(X))
        cross = Phi_new @ Phi.T
        variance = amplitude**2 - np.sum(cross * np.linalg.solve(K, cross.T).T, axis=1)
        moments.append((cross @ np.linalg.solve(K, y), variance))
    return map(np.array, zip(*moments, strict=True))


@pytest.mark.parametrize("kind", ["nystrom", "grid", "rotated", "stack"])
def test_predictions_have_all_of_the_kernels_variance(rows, kind):
    X, y = rows
    basis = nystrom()
    if kind == "grid":
        basis = sgp.GridEigenBasis.from_kernel(KERNEL, (np.zeros(1), np.ones(1)), 4, points_per_dim=16)
    stats = sgp.sufficient_statistics(basis, X, y)
    if kind == "rotated":
        stats = stats.rotate(basis.weight_prior(KERNEL))
        model = sgp.models.reweighted_basis(scale=1.0)
        draws = {"noise_scale": DRAWS["noise_scale"][:1]}
        one = sgp.predict(model, draws, stats, X_NEW)
        other = sgp.predict(MODEL, {"amplitude": np.ones(1), **draws}, sgp.sufficient_statistics(basis, X, y), X_NEW)
        np.testing.assert_allclose(one.variance, other.variance, rtol=1e-7)
        return
    if kind == "stack":
        stats = sgp.sufficient_statistics(sgp.stack(basis, sgp.LinearBasis(1)), X, y)
        _check_parts(stats)
        return
    mean, variance = dense(basis, X, y)
    prediction = sgp.predict(MODEL, DRAWS, stats, X_NEW)
    np.testing.assert_allclose(prediction.mean, mean.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(prediction.variance, variance.mean(axis=0) + mean.var(axis=0), rtol=1e-8)
    y_new = np.array([0.3, 0.1, -1.0])
    density = norm(mean, np.sqrt(variance + DRAWS["noise_scale"][:, None] ** 2)).pdf(y_new).mean(axis=0)
    np.testing.assert_allclose(prediction.log_density(y_new), np.log(density), atol=1e-9)
    drawn = prediction.sample(jax.random.key(0), 40_000, noise=False)
    np.testing.assert_allclose(drawn.var(axis=0), prediction.variance, rtol=0.05)
    without = sgp.predict(MODEL, DRAWS, stats, X_NEW, residual_variance=False)
    assert (without.variance < prediction.variance).all() and without.variance[2] < 0.5 * prediction.variance[2]


def _check_parts(stats):
    import numpyro
    import numpyro.distributions as dist

    def model(stats):
        noise = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
        prior = stats.basis.weight_prior((sgp.SquaredExponential(0.15, 0.7), sgp.DiagonalPrior(2.0)))
        sgp.observe("y", stats, prior, noise)

    draws = {"noise_scale": DRAWS["noise_scale"]}
    lacking = 0.49 * stats.basis.residual_variance(X_NEW)[0]
    for parts, expected in ((None, lacking), (0, lacking), (1, 0), ([0, 1], lacking)):
        asked = {} if parts is None else {"parts": parts}
        one = sgp.predict(model, draws, stats, X_NEW, **asked)
        other = sgp.predict(model, draws, stats, X_NEW, residual_variance=False, **asked)
        np.testing.assert_allclose(one.variance - other.variance, expected, atol=1e-12)


def test_left_out_rows_are_predicted_as_new_ones(rows):
    X, y = rows
    stats = sgp.sufficient_statistics(nystrom(), X, y)
    density = sgp.leave_one_out(MODEL, DRAWS, stats, X, y)
    for row in (0, 7):
        kept = np.arange(30) != row
        refit = sgp.sufficient_statistics(nystrom(), X[kept], y[kept])
        for draw in range(2):
            one = {name: values[draw : draw + 1] for name, values in DRAWS.items()}
            expected = sgp.predict(MODEL, one, refit, X[row : row + 1]).log_density(y[row : row + 1])
            np.testing.assert_allclose(density[draw, row], expected[0], atol=1e-8)


def test_free_variances_have_no_kernel_to_lack_of(rows):
    X, y = rows
    stats = sgp.sufficient_statistics(nystrom(), X, y)
    model = sgp.models.reweighted_basis(scale=np.array([1.0, 2.0, 0.5, 1.0]))
    draws = {"noise_scale": DRAWS["noise_scale"]}
    one = sgp.predict(model, draws, stats, X_NEW)
    other = sgp.predict(model, draws, stats, X_NEW, residual_variance=False)
    np.testing.assert_array_equal(one.variance, other.variance)
