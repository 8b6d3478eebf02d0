"""Mixtures of predictions: their moments, densities and draws."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import ppl_sgp as sgp
from tests.reference import dense_weight_posterior

pytestmark = pytest.mark.float64_only  # on the host, whatever the lane
WEIGHTS = np.array([0.7, 0.3])


@pytest.fixture(scope="module", params=[(), (2,)], ids=["one output", "two outputs"])
def parts(request):
    """Predictions of a line and of a parabola, and the same from the dense posterior of one of them."""
    rng = np.random.default_rng(0)
    X, X_new = rng.uniform(-1, 1, (30, 1)), np.array([[-0.5], [0.0], [2.0]])
    y = rng.standard_normal((30, *request.param))

    def of(basis, noise):
        stats = sgp.sufficient_statistics(basis, X, y)
        model = sgp.models.reweighted_basis(scale=np.ones(basis.num_features))
        return sgp.predict(model, {"noise_scale": np.array([noise])}, stats, X_new)

    return [of(sgp.LinearBasis(1), 0.5), of(sgp.PolynomialBasis(1, 2), 0.9)], X, y


def test_moments_and_density_of_the_mixture(parts):
    predictions, X, y = parts
    mixed = sgp.average_predictions(predictions, WEIGHTS)
    column = y if y.ndim == 1 else y[:, 0]
    Phi = sgp.LinearBasis(1).host_features(X)
    mean, _ = dense_weight_posterior(Phi, column, 1.0, 0.0, 0.5)
    at_new = sgp.LinearBasis(1).host_features(np.array([[-0.5], [0.0], [2.0]])) @ mean
    first = predictions[0].mean if y.ndim == 1 else predictions[0].mean[:, 0]
    np.testing.assert_allclose(first, at_new, rtol=1e-9, atol=1e-9)
    draws = mixed.sample(jax.random.key(0), 2000, noise=False)
    error = 5 * np.sqrt(mixed.variance / len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - mixed.mean) < error)
    np.testing.assert_allclose(draws.var(axis=0), mixed.variance, rtol=0.16)  # 5 standard errors
    with_noise = mixed.sample(jax.random.key(1), 2000)
    np.testing.assert_allclose(
        with_noise.var(axis=0), mixed.variance + mixed.noise_variance, rtol=0.16
    )  # 5 standard errors
    y_new = mixed.mean + 0.3
    expected = np.log(sum(w * np.exp(each.log_density(y_new)) for w, each in zip(WEIGHTS, predictions, strict=True)))
    np.testing.assert_allclose(mixed.log_density(y_new), expected, rtol=1e-12)


def test_one_model_alone_and_equal_weights(parts):
    predictions, _, _ = parts
    alone = sgp.average_predictions(predictions, [0.0, 1.0])
    np.testing.assert_allclose(alone.mean, predictions[1].mean, rtol=1e-12)
    np.testing.assert_allclose(alone.variance, predictions[1].variance, rtol=1e-12)
    np.testing.assert_allclose(alone.log_density(alone.mean), predictions[1].log_density(alone.mean), rtol=1e-12)
    np.testing.assert_array_equal(sgp.average_predictions(predictions).weights, [0.5, 0.5])


@pytest.mark.parametrize("weights", [[1.0], [0.5, 0.6], [1.5, -0.5], [np.nan, 1.0]])
def test_weights_that_are_no_probabilities(parts, weights):
    with pytest.raises(ValueError, match="must be 2 probabilities"):
        sgp.average_predictions(parts[0], weights)


def test_predictions_that_do_not_go_together(parts):
    predictions, X, _ = parts
    stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, X[:, 0])
    model = sgp.models.reweighted_basis(scale=np.ones(2))
    other = sgp.predict(model, {"noise_scale": np.array([0.5])}, stats, X[:7])
    with pytest.raises(ValueError, match="at the same inputs"):
        sgp.average_predictions([predictions[0], other])
    with pytest.raises(ValueError, match="is empty"):
        sgp.average_predictions([])
