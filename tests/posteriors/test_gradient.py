"""Predicted gradients against finite differences of joint predictions, and against dense algebra of derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp

pytestmark = [pytest.mark.float64_only, pytest.mark.relaxed_promotion]
DRAWS = {
    "lengthscale": np.array([[0.6, 1.5], [0.9, 1.0]]),
    "amplitude": np.array([1.0, 1.4]),
    "noise_scale": np.array([0.3, 0.2]),
}
X_NEW = np.array([[0.4, 1.1], [1.9, 2.2], [2.6, 0.1]])
STEP = 1e-4


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (25, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.2 * rng.normal(size=25), rng.uniform(0.5, 2, 25)


def dense(data, X_new, draw):
    """Mean (k·d,) and covariance of all slopes, with closed forms of the squared exponential."""
    X, y, omega = data
    ell, a, s = (DRAWS[name][draw] for name in ("lengthscale", "amplitude", "noise_scale"))

    def k(A, B):
        return a**2 * np.exp(-0.5 * np.sum(((A[:, None] - B[None]) / ell) ** 2, axis=-1))

    difference = (X_new[:, None] - X[None]) / ell**2
    cross = (-difference * k(X_new, X)[..., None]).transpose(0, 2, 1).reshape(-1, len(X))
    among = (X_new[:, None] - X_new[None]) / ell**2
    both = np.eye(2) / ell**2 - among[..., :, None] * among[..., None, :]
    prior = (both * k(X_new, X_new)[..., None, None]).transpose(0, 2, 1, 3).reshape(cross.shape[0], -1)
    C = k(X, X) + s**2 * np.diag(1 / omega)
    return cross @ np.linalg.solve(C, y), prior - cross @ np.linalg.solve(C, cross.T)


def mixture(found):
    means, covariances = map(np.array, zip(*found, strict=True))
    return means.mean(axis=0), covariances.mean(axis=0) + np.cov(means.T, bias=True)


def check(gradient, mean, covariance, rtol=1e-7):
    """All that a gradient says, against one mean (k·d,) and covariance."""
    sizes = gradient.mean.shape
    np.testing.assert_allclose(gradient.mean.ravel(), mean, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(gradient.variance.ravel(), np.diag(covariance), rtol=rtol, atol=rtol)
    np.testing.assert_allclose(gradient.covariance().reshape(covariance.shape), covariance, rtol=rtol, atol=rtol)
    within = covariance.reshape(*sizes, *sizes)[np.arange(sizes[0]), :, np.arange(sizes[0]), :]
    np.testing.assert_allclose(gradient.row_covariances(), within, rtol=rtol, atol=rtol)
    draws = gradient.sample(jax.random.key(0), 3000)
    assert draws.shape == (3000, *sizes)
    np.testing.assert_allclose(
        np.cov(draws.reshape(3000, -1).T), covariance, atol=6 * np.diag(covariance).max() / 3000**0.5
    )


@pytest.mark.slow
def test_exact_gp(data):
    posterior = sgp.posterior(sgp.models.exact_gp(), DRAWS, sgp.rows(*data))
    check(sgp.predict_gradient(posterior, X_NEW), *mixture([dense(data, X_NEW, s) for s in range(2)]))


@pytest.mark.slow
def test_inducing_points_at_all_rows_are_the_exact_gp(data):
    mean, covariance = mixture([dense(data, X_NEW, s) for s in range(2)])
    posterior = sgp.posterior(sgp.models.inducing_gp(data[0]), DRAWS, sgp.rows(*data))
    check(sgp.predict_gradient(posterior, X_NEW), mean, covariance, rtol=2e-5)


def by_differences(posterior, X_new):
    """Mean and covariance of slopes from those of values at both ends of small steps."""
    d = X_new.shape[1]
    steps = STEP * np.vstack([np.eye(d), -np.eye(d)])
    prediction = posterior.predict((X_new[:, None, :] + steps[None]).reshape(-1, d), residual_variance=False)
    D = np.kron(np.eye(len(X_new)), np.hstack([np.eye(d), -np.eye(d)]) / (2 * STEP))
    return D @ prediction.mean, D @ prediction.covariance() @ D.T


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dtc", "fitc"])
def test_few_inducing_points_against_differences(data, method):
    posterior = sgp.posterior(sgp.models.inducing_gp(data[0][::3], method=method), DRAWS, sgp.rows(*data))
    gradient = sgp.predict_gradient(posterior, X_NEW)
    mean, covariance = by_differences(posterior, X_NEW)
    np.testing.assert_allclose(gradient.mean.ravel(), mean, rtol=1e-4, atol=1e-4)
    known = gradient.covariance().reshape(covariance.shape)
    if method == "fitc":
        np.testing.assert_allclose(known, covariance, rtol=1e-4, atol=1e-4)
    else:  # what the points lack is differentiated with them
        assert np.linalg.eigvalsh(known - covariance).min() > -1e-4


BASES = {
    "fourier": lambda X: sgp.FourierBasis.from_data(jax.random.key(0), X, 30),
    "laplace": lambda X: sgp.LaplaceBasis.from_data(X, (5, 4)),
    "tensor": lambda X: sgp.tensor(
        *(sgp.SelectedColumns(sgp.LaplaceBasis.from_data(X[:, [j]], 5), [j], 2) for j in (0, 1))
    ),
    "stack": lambda X: sgp.stack(sgp.LinearBasis(2), sgp.FourierBasis.from_data(jax.random.key(0), X, 10)),
    "nystrom": lambda X: sgp.NystromBasis(X[::2], sgp.Matern52(1.0)),
    "centred": lambda X: sgp.CentredBasis(X[::3], sgp.SquaredExponential(1.0)),
    "interpolation": lambda X: sgp.InterpolationBasis([np.linspace(-0.5, 3.5, 9)] * 2),
}


def of_noise(stats):
    scale = np.linspace(0.5, 1, stats.num_features)
    sgp.observe("y", stats, sgp.DiagonalPrior(jnp.asarray(scale)), numpyro.sample("noise_scale", dist.HalfNormal()))


@pytest.mark.slow
@pytest.mark.parametrize("name", BASES)
def test_bases_against_differences(data, name):
    X, y, omega = data
    stats = sgp.sufficient_statistics(BASES[name](X), X, y, row_weights=omega)
    posterior = sgp.posterior(of_noise, {"noise_scale": DRAWS["noise_scale"]}, stats)
    gradient, (mean, covariance) = sgp.predict_gradient(posterior, X_NEW), by_differences(posterior, X_NEW)
    np.testing.assert_allclose(gradient.mean.ravel(), mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradient.covariance().reshape(covariance.shape), covariance, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradient.variance.ravel(), np.diag(covariance), rtol=1e-5, atol=1e-5)
    one = sgp.predict_gradient(posterior, X_NEW, columns=1)
    np.testing.assert_allclose(one.mean, gradient.mean[:, [1]], rtol=1e-12)


def test_rotated_statistics_have_the_same_gradients(data):
    X, y, _ = data
    stats = sgp.sufficient_statistics(BASES["laplace"](X), X, y)
    prior = sgp.DiagonalPrior(np.linspace(0.5, 1, stats.num_features))

    def model(stats):
        prior_of = sgp.DiagonalPrior(jnp.ones(stats.num_features)) if stats.is_diagonal else prior
        sgp.observe("y", stats, prior_of, numpyro.sample("noise_scale", dist.HalfNormal()))

    draws = {"noise_scale": DRAWS["noise_scale"]}
    found = [sgp.predict_gradient(sgp.posterior(model, draws, s), X_NEW) for s in (stats, stats.rotate(prior))]
    np.testing.assert_allclose(found[1].mean, found[0].mean, rtol=1e-8)
    np.testing.assert_allclose(found[1].row_covariances(), found[0].row_covariances(), rtol=1e-7, atol=1e-12)


def test_outputs_quantiles_and_datasets(data):
    X, y, _ = data
    stats = sgp.sufficient_statistics(BASES["laplace"](X), X, np.stack([y, -2 * y], axis=1))
    posterior = sgp.posterior(of_noise, {"noise_scale": DRAWS["noise_scale"]}, stats)
    gradient = sgp.predict_gradient(posterior, X_NEW)
    assert gradient.mean.shape == (3, 2, 2)
    np.testing.assert_allclose(gradient.mean[..., 1], -2 * gradient.mean[..., 0], rtol=1e-9)
    assert gradient.covariance().shape == (3, 2, 3, 2, 2)
    assert gradient.row_covariances().shape == (3, 2, 2, 2)
    found = gradient.to_xarray([0.05, 0.95])
    assert found["quantiles"].dims == ("probability", "new_obs", "input", "output")
    assert found["input"].values.tolist() == ["input 0", "input 1"]
    assert (gradient.interval(0.9)[0] < gradient.mean).all()
    assert gradient.sample(jax.random.key(0), 5).shape == (5, 3, 2, 2)


def test_log_rates_of_a_compressed_likelihood(data):
    X, y, _ = data
    basis = BASES["laplace"](X)
    prior = sgp.DiagonalPrior(jnp.ones(basis.num_features))
    counts = np.floor(np.exp(y / 2) * 3)
    stats = sgp.compress_likelihood(basis, X, counts, sgp.likelihoods.Poisson(), prior)

    def model(stats):
        numpyro.sample("unused", dist.Normal())
        sgp.observe("y", stats, prior)

    posterior = sgp.posterior(model, {"unused": np.zeros(1)}, stats)
    gradient = sgp.predict_gradient(posterior, X_NEW)
    weights = sgp.weight_posterior(stats, prior)
    ends = [basis.host_features(X_NEW + STEP * sign * np.array([1.0, 0.0])) for sign in (1, -1)]
    slope = (ends[0] - ends[1]) / (2 * STEP)
    np.testing.assert_allclose(gradient.mean[:, 0], slope @ np.asarray(weights.mean), rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_what_has_no_gradient_is_refused(data):
    X, y, _ = data
    codes = np.column_stack([X[:, 0], np.arange(25) % 3])
    basis = sgp.tensor(
        sgp.SelectedColumns(sgp.LaplaceBasis.from_data(X[:, :1], 5), [0], 2),
        sgp.SelectedColumns(sgp.CategoricalBasis(3), [1], 2),
    )
    draws = {"noise_scale": DRAWS["noise_scale"]}
    of_codes = sgp.posterior(of_noise, draws, sgp.sufficient_statistics(basis, codes, y))
    with pytest.raises(ValueError, match="codes of levels"):
        sgp.predict_gradient(of_codes, codes[:2])
    assert sgp.predict_gradient(of_codes, codes[:2], columns=["input 0"]).mean.shape == (2, 1)
    with pytest.raises(ValueError, match="`columns` must be positions"):
        sgp.predict_gradient(of_codes, codes[:2], columns=2)
    rough = sgp.posterior(sgp.models.exact_gp(sgp.Matern12), DRAWS, sgp.rows(X, y))
    with pytest.raises(ValueError, match="smoother kernel"):
        sgp.predict_gradient(rough, X_NEW).mean  # noqa: B018
    with pytest.raises(ValueError, match="have no noise"):
        sgp.predict_gradient(of_codes, codes[:2], columns=0).log_density(np.zeros((2, 1)))
    with pytest.raises(ValueError, match="predict_gradient"):
        jax.grad(lambda x: rough.predict(x[None]).mean[0])(jnp.zeros(2))
