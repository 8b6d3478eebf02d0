"""Relevance vectors by minibatches, and the variance that features of new rows have of their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp

KERNEL = sgp.SquaredExponential(2.0)


@pytest.fixture(scope="module")
def data():
    X = np.linspace(-10, 10, 240)[:, None]
    f = np.sinc(X[:, 0] / np.pi)
    return X, f, f + 0.1 * np.random.default_rng(0).normal(size=240)


@pytest.fixture(scope="module")
def basis(data):
    return sgp.CentredBasis(data[0][::4], KERNEL, bias=False)


@pytest.fixture(scope="module")
def fit(data, basis):
    X, _, y = data
    return sgp.stochastic.relevance_vectors(
        jax.random.key(0), basis, X, y, batch_size=80, num_support=80, num_columns=4, num_steps=1500
    )


@pytest.mark.slow
def test_most_functions_are_pruned_and_the_rest_explains_the_rows(data, fit):
    X, f, _ = data
    assert 3 <= len(fit.relevant) < 35
    assert np.sqrt(np.mean((fit.predict(X).mean - f) ** 2)) < 0.04
    assert 0.07 < fit.posterior.noise_scale < 0.2
    dropped = np.setdiff1d(np.arange(60), fit.relevant)
    assert not fit.posterior.loc[dropped].any() and not fit.posterior.diagonal[dropped].any()
    assert fit.precisions.shape == fit.relevant.shape and (fit.precisions > 0).all()


def test_it_goes_on_with_what_is_left(data, basis, fit):
    X, _, y = data
    again = sgp.stochastic.relevance_vectors(
        jax.random.key(0), basis, X, y, batch_size=80, num_support=80, num_columns=4, num_steps=150, previous=fit
    )
    assert again.training.steps == 1650
    assert set(again.relevant) <= set(fit.relevant)
    state, Phi = again.training.state, basis.host_features(X)
    assert np.isfinite(np.asarray(state.mu)).all() and Phi.shape[1] == 60


def test_new_rows_have_the_variance_of_proposition_d1(data, fit):
    X, _, y = data
    new, sigma = np.array([[0.0], [3.0], [25.0]]), fit.posterior.noise_scale
    k = np.asarray(KERNEL(jnp.asarray(X), jnp.asarray(new)), np.float64)
    for scale in (1.0, 0.7):  # with scale one the prior precision is k(x, x), as printed
        added = sigma**2 / (np.sum(k**2, axis=0) + sigma**2 / scale**2)
        healed = fit.predict(new, augment=sgp.Augmentation(X, y, scale=scale))
        with pytest.warns(UserWarning, match="far from all centres"):
            plain = fit.predict(new).variance
        np.testing.assert_allclose(healed.variance, plain + added, rtol=1e-4)
    assert healed.variance[-1] == pytest.approx(0.49, rel=1e-3)
    assert healed.sample(jax.random.key(0), 5).shape == (5, 3)


def test_refusals(data, basis):
    X, _, y = data
    find = sgp.stochastic.relevance_vectors
    key = jax.random.key(0)
    for arguments, options, message in (
        ((60, X, y), {}, "`basis` must be a basis"),
        ((basis, X, y), {"num_functions": 61}, "relevance_vectors: `num_functions` is 61"),
        ((basis, X, y), {"batch_size": 241}, "`batch_size` is 241"),
        ((basis, X, 0 * y), {}, "`y` is zero"),
        ((basis, X, y), {"prune": 0.0}, "`prune` must be positive"),
        ((basis, X[:, :0], y), {}, "must have shape"),
    ):
        with pytest.raises(ValueError, match=message):
            find(key, *arguments, **options)
