"""Augmented predictions against dense Gaussian-process algebra with one more feature for each new row."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import ppl_sgp as sgp
from tests.builders import by_lane

ATOL = by_lane(1e-7, 2e-3)
X_NEW = np.array([[0.3], [2.9], [4.0], [30.0]])
KERNEL = sgp.SquaredExponential(0.7, amplitude=1.5)


def problem(num_outputs=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 3, (40, 1))
    shape = (40,) if num_outputs is None else (40, num_outputs)
    y = np.sin(2 * X[:, 0]).reshape(-1, *[1] * (len(shape) - 1)) + 0.2 * rng.normal(size=shape)
    omega = np.exp(rng.normal(0, 0.5, 40))
    return X, y, omega, sgp.CentredBasis(np.linspace(0, 3, 6)[:, None], KERNEL)


def dense(basis, gamma, noise_scale, X, y, omega, x, scale):
    """Mean and variance of f(x) with features φ and k(·, x), variances γ and (scale/k(x, x))²."""
    x = x[None]
    k = lambda a, b: np.asarray(KERNEL(a, b))  # noqa: E731
    Phi = np.column_stack([basis.host_features(X), k(X, x)])
    own = float(k(x, x)[0, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        phi = np.append(basis.host_features(x)[0], own)
    S = np.append(gamma, (scale / own) ** 2)
    K = Phi * S @ Phi.T + np.diag(noise_scale**2 / omega)
    cross = Phi @ (S * phi)
    return cross @ np.linalg.solve(K, y), np.sum(S * phi**2) - cross @ np.linalg.solve(K, cross)


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_mixture_equals_the_dense_model_with_a_new_feature(rotated, weighted, rng):
    X, y, omega, basis = problem()
    omega = omega if weighted else np.ones(40)
    stats = sgp.sufficient_statistics(basis, X, y, row_weights=omega)
    draws = {"amplitude": np.array([0.5, 1.0, 2.0]), "noise_scale": np.array([0.2, 0.3, 0.25])}
    prior = sgp.DiagonalPrior(np.linspace(0.5, 1.5, 7))

    def model(stats):
        amplitude = numpyro.sample("amplitude", dist.LogNormal(0.0, 1.0))
        noise_scale = numpyro.sample("noise_scale", dist.LogNormal(0.0, 1.0))
        scale = jnp.asarray(1.0 if rotated else prior.scale, amplitude.dtype)
        sgp.observe("y", stats, sgp.DiagonalPrior(scale * amplitude), noise_scale)

    augment = sgp.Augmentation(X, y, row_weights=omega)
    given = stats.rotate(prior) if rotated else stats
    prediction = sgp.predict(model, draws, given, X_NEW, augment=augment)
    scale = np.sqrt(np.mean(y**2))
    moments = [
        [dense(basis, (a * np.asarray(prior.scale, np.float64)) ** 2, s, X, y, omega, x, scale) for x in X_NEW]
        for a, s in zip(*draws.values(), strict=True)
    ]
    mean, variance = np.moveaxis(np.array(moments), -1, 0)
    np.testing.assert_allclose(prediction.mean, mean.mean(axis=0), atol=ATOL)
    np.testing.assert_allclose(prediction.variance, variance.mean(axis=0) + mean.var(axis=0), atol=ATOL)
    y_new = np.array([0.5, -0.5, 0.0, 1.0])
    sd = np.sqrt(variance + np.square(draws["noise_scale"])[:, None])
    expected = logsumexp(norm.logpdf(y_new, mean, sd), axis=0) - np.log(3)
    np.testing.assert_allclose(prediction.log_density(y_new), expected, atol=max(ATOL, by_lane(0, 0.01)))
    assert prediction.variance[-1] > scale**2  # that of the constant comes on top
    small = sgp.predict(model, draws, given, X_NEW, augment=augment, max_memory=3000)
    np.testing.assert_allclose(small.variance, prediction.variance, rtol=1e-5)


@pytest.mark.float64_only
def test_relevance_vectors_are_healed():
    X, y, _, _ = problem()
    fit = sgp.fit_relevance_vectors(sgp.sufficient_statistics(sgp.CentredBasis(X, KERNEL), X, y))
    gamma = np.zeros(41)
    gamma[fit.relevant] = 1 / fit.precisions
    prediction = fit.predict(X_NEW, augment=sgp.Augmentation(X, y, scale=2.0))
    for i, x in enumerate(X_NEW):
        mean, variance = dense(fit.statistics.basis, gamma, fit.noise_scale, X, y, np.ones(40), x, 2.0)
        assert prediction.mean[i] == pytest.approx(mean, abs=1e-8)
        assert prediction.variance[i] == pytest.approx(variance, rel=1e-6)
    with pytest.warns(UserWarning, match=r"augment=sgp.Augmentation\(X, y\)"):
        plain = fit.predict(X_NEW).variance
    # Never less than without; within the data about the same.
    assert (prediction.variance >= plain).all()
    assert prediction.variance[0] < 1.2 * plain[0] and prediction.variance[-1] > 100 * plain[-1]


@pytest.mark.float64_only
@pytest.mark.filterwarnings("ignore:CentredBasis. 0.5 of the rows lie far")
def test_proposition_d1_is_the_case_without_correlation():
    """A new column orthogonal to all others over the rows: Evans's formula, which neglects correlations, is exact."""
    X = np.array([[0.0], [0.1], [100.0], [100.2]])
    y = np.array([1.0, 0.8, -0.5, -0.7])
    basis = sgp.CentredBasis(X[:2], KERNEL, bias=False)
    fit = sgp.fit_relevance_vectors(sgp.sufficient_statistics(basis, X, y))
    x = np.array([[100.5]])
    own, k = float(KERNEL(x, x)[0, 0]), np.asarray(KERNEL(X, x))[:, 0]
    noise = fit.noise_scale**2
    expected = noise * own**2 / (k @ k + noise * own)  # prior precision of the new weight: k(x, x)
    prediction = fit.predict(x, augment=sgp.Augmentation(X, y, scale=own**0.5))
    assert prediction.variance[0] == pytest.approx(expected, rel=1e-9)


def test_several_outputs_and_other_bases():
    X, y, _, _ = problem(num_outputs=2)
    basis = sgp.LaplaceBasis.from_data(X, 8, 2.0)
    stats = sgp.sufficient_statistics(basis, X, y)
    model = sgp.models.basis_gp()
    draws = {"lengthscale": np.array([0.7]), "amplitude": np.ones((1, 2)), "noise_scale": np.full((1, 2), 0.2)}
    near = X_NEW[:2]
    with pytest.raises(ValueError, match="pass the `kernel`"):
        sgp.predict(model, draws, stats, near, augment=sgp.Augmentation(X, y))
    prediction = sgp.predict(model, draws, stats, near, augment=sgp.Augmentation(X, y, kernel=KERNEL, scale=1.0))
    assert prediction.mean.shape == prediction.variance.shape == (2, 2)
    gamma = np.asarray(basis.weight_prior(sgp.SquaredExponential(0.7)).variance, np.float64)
    for j in range(2):
        for i, x in enumerate(near):
            mean, variance = dense(basis, gamma, 0.2, X, y[:, j], np.ones(40), x, 1.0)
            assert prediction.mean[i, j] == pytest.approx(mean, abs=ATOL)
            assert prediction.variance[i, j] == pytest.approx(variance, abs=ATOL)
    with pytest.raises(ValueError, match=r"Augmentation: the statistics are of 40 rows with 2 output\(s\)"):
        sgp.predict(model, draws, stats, near, augment=sgp.Augmentation(X, y[:, 0], kernel=KERNEL))


def test_a_kernel_that_vanishes_at_the_new_row_changes_nothing():
    X, y, _, basis = problem()
    stats = sgp.sufficient_statistics(basis, X, y)
    model = sgp.models.relevance_vector_machine()
    draws = {"precision": np.ones((2, 7)), "noise_scale": np.full(2, 0.3)}
    linear = sgp.Augmentation(X, y, kernel=sgp.Linear())
    prediction = sgp.predict(model, draws, stats, np.zeros((1, 1)), augment=linear)
    plain = sgp.predict(model, draws, stats, np.zeros((1, 1)))
    np.testing.assert_allclose(prediction.mean, plain.mean, rtol=1e-5)
    np.testing.assert_allclose(prediction.variance, plain.variance, rtol=1e-4)


def test_refusals():
    X, y, _, basis = problem()
    stats = sgp.sufficient_statistics(basis, X, y)
    model = sgp.models.relevance_vector_machine()
    draws = {"precision": np.ones((2, 7)), "noise_scale": np.full(2, 0.3)}
    prediction = sgp.predict(model, draws, stats, X_NEW, augment=sgp.Augmentation(X, y))
    with pytest.raises(ValueError, match="no joint draws over rows"):
        prediction.sample(jax.random.key(0), 3)
    with pytest.raises(ValueError, match="`scale` must be positive"):
        sgp.Augmentation(X, y, scale=-1.0)
    with pytest.raises(ValueError, match="y is identically zero"):
        zero = sgp.sufficient_statistics(basis, X, 0 * y)
        sgp.predict(_known_noise, {"amplitude": np.ones(2)}, zero, X_NEW, augment=sgp.Augmentation(X, 0 * y))
    with pytest.raises(ValueError, match="rows but"):
        sgp.predict(model, draws, stats, X_NEW, augment=sgp.Augmentation(X, y[:3]))


def _known_noise(stats):
    amplitude = numpyro.sample("amplitude", dist.LogNormal(0.0, 1.0))
    sgp.observe("y", stats, sgp.DiagonalPrior(amplitude), 0.3)


@pytest.mark.slow
def test_rows_that_are_not_those_of_the_statistics_are_refused(rng):
    X, y, omega, basis = problem()
    stats = sgp.sufficient_statistics(basis, X, y, row_weights=omega)
    draws = {"amplitude": np.ones(2)}
    fit = sgp.fit_relevance_vectors(stats)

    def of_draws(augment):
        return sgp.predict(_known_noise, draws, stats, X_NEW, augment=augment).mean

    def of_fit(augment):
        return fit.predict(X_NEW, augment=augment).mean

    order = rng.permutation(40)
    for predict in (of_draws, of_fit):
        shuffled = predict(sgp.Augmentation(X[order], y[order], row_weights=omega[order]))
        np.testing.assert_allclose(
            shuffled, predict(sgp.Augmentation(X, y, row_weights=omega)), atol=by_lane(1e-9, 1e-4)
        )
        for rows, message in (
            ((X, y[order], omega), "`y` .* is not what was compressed|not the pairs"),
            ((X, -y, omega), "opposite sign"),
            ((X + 1, y, omega), "`X` is not what was compressed"),
            ((X, y, None), "`row_weights` are not those"),
            ((X[1:], y[1:], omega[1:]), "statistics are of 40 rows"),
        ):
            with pytest.raises(ValueError, match=f"(?s)Augmentation: .*({message})"):
                predict(sgp.Augmentation(rows[0], rows[1], row_weights=rows[2]))
