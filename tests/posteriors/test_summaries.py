"""Intervals, quantiles, datasets and displays of results, against distribution functions of the mixtures themselves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

import ppl_sgp as sgp
from ppl_sgp.diagnostics.finding import Finding
from ppl_sgp.diagnostics.report import Report
from ppl_sgp.posteriors.mixture_quantiles import gaussian_quantiles
from tests.builders import by_lane
from tests.posteriors.tiny_likelihoods import model as model_of_counts
from tests.posteriors.tiny_likelihoods import tiny

MODEL = sgp.models.reweighted_basis(scale=np.full(2, 3.0))
#: Twentyfold: no normal has the quantiles of such a mixture.
NOISE = np.array([0.1, 0.3, 2.0])
X_NEW = np.array([[-1.0], [0.3], [2.0]])


def rows(num_outputs=1):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (15, 1))
    y = 0.5 + X * [1, 2] + 0.3 * rng.normal(size=(15, 2))
    return X, y if num_outputs == 2 else y[:, 0]


def predicted(num_outputs=1, **given):
    X, y = rows(num_outputs)
    stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, y)
    return sgp.predict(MODEL, {"noise_scale": NOISE}, stats, X_NEW, **given)


def of_each_draw():
    """Mean and variance (draws, rows) of f, by the normal equations."""
    X, y = rows()
    Phi, Phi_new = (np.concatenate([np.ones_like(A), A], axis=1) for A in (X, X_NEW))
    covariances = [np.linalg.inv(Phi.T @ Phi / noise**2 + np.eye(2) / 9) for noise in NOISE]
    means = [Phi_new @ C @ Phi.T @ y / noise**2 for C, noise in zip(covariances, NOISE, strict=True)]
    return np.array(means), np.array([np.sum((Phi_new @ C) * Phi_new, axis=1) for C in covariances])


@pytest.mark.parametrize("noise", [None, True, False])
def test_quantiles_and_intervals_are_those_of_the_mixture(noise):
    omega = np.array([1.0, 2.0, 0.5])
    prediction = predicted(row_weights=omega)
    mean, variance = of_each_draw()
    scale = np.sqrt(variance + (0 if noise is False else NOISE[:, None] ** 2 / omega))
    wanted = [0.001, 0.3, 0.5, 0.95]
    for p, found in zip(wanted, prediction.quantiles(wanted, noise=noise), strict=True):
        # Float32 draws and factors carry some 1e-6; the density of f is up to 15.
        np.testing.assert_allclose(norm.cdf(found, mean, scale).mean(axis=0), p, atol=by_lane(1e-7, 1e-4))
    low, high = prediction.interval(0.9, noise=noise)
    for end, p in ((low, 0.05), (high, 0.95)):
        np.testing.assert_allclose(norm.cdf(end, mean, scale).mean(axis=0), p, atol=by_lane(1e-7, 1e-4))
    total = variance.mean(axis=0) + mean.var(axis=0)
    np.testing.assert_allclose(prediction.std, np.sqrt(total), rtol=by_lane(1e-9, 1e-3))


def test_outputs_keep_their_axis():
    prediction = predicted(2)
    assert prediction.interval().shape == (2, 3, 2) and prediction.quantiles(0.5).shape == (1, 3, 2)
    alone = predicted()
    np.testing.assert_allclose(prediction.interval()[..., 0], alone.interval(), rtol=by_lane(1e-7, 1e-3))


def test_an_average_of_models_and_parts_have_them_too():
    prediction = predicted()
    mixed = sgp.average_predictions([prediction, prediction], [0.2, 0.8])
    np.testing.assert_allclose(mixed.interval(0.5), prediction.interval(0.5), atol=1e-6)


def test_rows_without_spread_have_quantiles_of_the_draws():
    weights = np.array([0.2, 0.3, 0.5])
    mean = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])
    spread = np.zeros_like(mean)
    np.testing.assert_array_equal(gaussian_quantiles(np.array([0.4]), mean, spread, weights), [[0.0, 2.0]])
    spread[:, 1] = 1.0  # a row where f is zero beside others that are not: no silent NaN
    found = gaussian_quantiles(np.array([0.4, 0.9]), mean, spread, weights)
    np.testing.assert_array_equal(found[:, 0], 0.0)
    np.testing.assert_allclose(weights @ norm.cdf(found[:, 1], mean[:, 1:]), [0.4, 0.9], atol=1e-7)


@pytest.mark.parametrize("probability", [0.0, 1.0, 90, [0.5]])
def test_no_interval_of_other_probabilities(probability):
    with pytest.raises(ValueError, match="interval: `probability`"):
        predicted().interval(probability)


@pytest.mark.slow
@pytest.mark.relaxed_promotion
def test_intervals_of_counts_hold_at_least_their_probability():
    of_counts = tiny("poisson")
    prediction = sgp.posterior(model_of_counts, {"scale": np.array([0.7, 1.5])}, of_counts.stats).predict(X_NEW)
    low, high = prediction.interval(0.8)
    inside = prediction.distribution_function(high) - prediction.distribution_function(low - 1.0)
    assert (inside >= 0.8).all()
    # And no more than they must: each tail has at most a tenth, beyond which an end would not be an integer more.
    assert (prediction.distribution_function(high - 1.0) < 0.9).all()
    assert (prediction.distribution_function(low) >= 0.1).all()
    np.testing.assert_allclose(prediction.std**2, prediction.variance)
    dataset = prediction.to_xarray([0.1, 0.9])
    np.testing.assert_array_equal(dataset["quantiles"].sel(probability=0.9), high)
    assert dict(dataset.sizes) == {"new_obs": 3, "probability": 2} and set(dataset) >= {"mean", "variance", "std"}
    assert "num_draws=2" in repr(prediction)


def test_datasets_name_dimensions_and_labels():
    prediction = predicted(2)
    dataset = prediction.to_xarray([0.1, 0.9], noise=False, coords={"output": ["a", "b"]})
    assert dict(dataset.sizes) == {"new_obs": 3, "output": 2, "probability": 2}
    low = dataset["quantiles"].sel(output="b", probability=0.1)
    np.testing.assert_array_equal(low, prediction.quantiles([0.1], noise=False)[0, :, 1])
    np.testing.assert_array_equal(dataset["mean"].sel(output="a"), prediction.mean[:, 0])
    np.testing.assert_array_equal(dataset["noise_variance"], prediction.noise_variance)
    assert "quantiles" not in predicted().to_xarray() and predicted().to_xarray()["noise_variance"].ndim == 0
    with pytest.raises(ValueError, match="to_xarray: `coords` are labels.*'new_obs': 3"):
        prediction.to_xarray(coords={"new_obs": [1, 2]})


def test_displays_compute_nothing():
    prediction = predicted(2)
    assert repr(prediction) == "WeightPrediction(num_rows=3, num_outputs=2, num_components=3)"
    assert "row_moments" not in vars(prediction)
    assert "<th style='text-align:left'>num_components</th>" in prediction._repr_html_()


def test_a_report_shows_its_findings_and_escapes_them():
    found = Report((Finding("basis", "1 < 2", "more"),), ("leave-one-out",))
    assert repr(found) == str(found)
    assert "1 &lt; 2 → more" in found._repr_html_() and "not checked" in found._repr_html_()


def test_statistics_show_sizes():
    X, y = rows()
    stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, y)
    expected = "SufficientStatistics(num_rows=15, num_features=2, rank=2, num_outputs=1, evidence='O(m³)')"
    assert repr(stats) == expected and "O(m³)" in stats._repr_html_()


def test_compressed_likelihoods_name_theirs():
    assert repr(tiny("poisson").stats).startswith(
        "CompressedLikelihood(likelihood=Poisson, num_rows=40, num_features=2"
    )
