"""Scores of Gaussian mixtures against closed forms, quadrature, root finding and simulation."""

import jax
import numpy as np
import pytest
import xarray as xr
from scipy.integrate import simpson
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import kstest, norm

import ppl_sgp as sgp
from ppl_sgp.diagnostics.regression_calibration import calibrate_regression
from ppl_sgp.posteriors.weight_prediction import WeightPrediction
from ppl_sgp.posteriors.weights import KnownWeights, WeightDraws
from tests.builders import IdentityBasis

pytestmark = pytest.mark.float64_only


def prediction_of(mean, f_scale, noise_scale, *, row_weights=None, max_memory=1e9):
    """A prediction whose draws have these moments of f, (S, n) or (S, q, n), and noise (S,) or (S, q).

    Weights are the values of f themselves: inputs are unit vectors, and features are the inputs.
    """
    mean = np.asarray(mean, dtype=np.float64)
    one_output, n = mean.ndim == 2, mean.shape[-1]
    shape = (len(mean), 1 if one_output else mean.shape[1], n)
    weights = WeightDraws(
        mean.reshape(shape),
        np.broadcast_to(f_scale, mean.shape).reshape(shape),
        np.broadcast_to(noise_scale, mean.shape[:-1]).reshape(shape[:2]),
        np.zeros((*shape[:2], 0)),
    )
    omega = np.ones(n) if row_weights is None else np.asarray(row_weights)
    return WeightPrediction(KnownWeights(IdentityBasis(n), weights), np.eye(n), omega, one_output, max_memory)


def random_mixture(rng, num_draws, n):
    """Means and standard deviations of f (S, n), noise scales (S,): far from one Gaussian, different in every row."""
    mean = rng.normal(0, 2, (num_draws, n))
    return mean, np.exp(rng.normal(-1, 0.7, (num_draws, n))), np.exp(rng.normal(-1, 0.5, num_draws))


def deviations(f_scale, noise_scale):
    """Standard deviations of y, (S, n)."""
    return np.sqrt(f_scale**2 + noise_scale[:, None] ** 2)


def simulated(rng, mean, scale):
    """One observation of each row's mixture, independent of the others."""
    component, row = rng.integers(len(mean), size=mean.shape[1]), np.arange(mean.shape[1])
    return rng.normal(mean[component, row], scale[component, row])


def integrated_crps(y, mean, scale, num_points=20_001):
    """The defining integral for one row, by Simpson's rule on both sides of y."""
    left = np.linspace(min(np.min(mean - 9 * scale), y), y, num_points)
    right = np.linspace(y, max(np.max(mean + 9 * scale), y), num_points)
    below = ndtr((left[:, None] - mean) / scale).mean(axis=1)
    above = ndtr((mean - right[:, None]) / scale).mean(axis=1)
    return simpson(below**2, x=left) + simpson(above**2, x=right)


def test_one_gaussian_has_closed_forms(rng):
    mean, f_scale, y = rng.normal(size=50), rng.uniform(0.2, 2, 50), rng.normal(size=50)
    scores = calibrate_regression(prediction_of([mean], f_scale, 0.5), y, levels=[0.5, 0.95])
    scale = np.sqrt(f_scale**2 + 0.25)
    z = (y - mean) / scale
    np.testing.assert_allclose(scores["pit"], norm.cdf(z), rtol=1e-12)
    np.testing.assert_allclose(scores["log_density"], norm(mean, scale).logpdf(y), rtol=1e-12)
    crps = scale * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(scores["crps"], crps, rtol=1e-12)
    np.testing.assert_allclose(scores["interval_width"], 2 * norm.ppf([0.75, 0.975]) * scale.mean(), rtol=1e-8)
    np.testing.assert_allclose(scores["coverage"], [np.mean(np.abs(z) <= norm.ppf(p)) for p in (0.75, 0.975)])
    np.testing.assert_allclose(scores["coverage_standard_error"], np.sqrt([0.25 / 50, 0.0475 / 50]))
    np.testing.assert_allclose(scores["rmse"], np.sqrt(np.mean((y - mean) ** 2)), rtol=1e-12)
    np.testing.assert_allclose(scores["mean_crps"], crps.mean(), rtol=1e-12)
    np.testing.assert_allclose(scores["mean_log_density"], norm(mean, scale).logpdf(y).mean(), rtol=1e-12)


def test_crps_is_the_integral_that_defines_it(rng):
    mean, f_scale, noise = random_mixture(rng, 5, 8)
    y = np.append(rng.normal(0, 2, 6), [-20.0, 20.0])  # within and far outside
    scores = calibrate_regression(prediction_of(mean, f_scale, noise), y)
    scale = deviations(f_scale, noise)
    expected = [integrated_crps(y[i], mean[:, i], scale[:, i]) for i in range(8)]
    np.testing.assert_allclose(scores["crps"], expected, rtol=1e-7)
    assert scores.attrs["crps_partners"] == 4


@pytest.mark.parametrize(("num_draws", "partners", "rtol"), [(6, 5, 1e-7), (200, 199, 1e-7), (2000, 40, 0.01)])
def test_crps_of_many_draws_pairs_some_of_them_from_all_along_the_chain(rng, num_draws, partners, rtol):
    mean = np.linspace(-1, 1, num_draws)[:, None] + 0.2 * rng.normal(size=(num_draws, 3))
    f_scale, y = rng.uniform(0.1, 0.3, mean.shape), np.array([-0.5, 0.0, 2.0])
    scores = calibrate_regression(prediction_of(mean, f_scale, 0.1), y)
    scale = np.sqrt(f_scale**2 + 0.01)
    expected = [integrated_crps(y[i], mean[:, i], scale[:, i], num_points=1001) for i in range(3)]
    # Distances of pairs are 0.7 ± 0.5 here, so the mean of 40,000 of them is good to 0.5/200/2 = 0.00125, less than one
    # percent of the smallest score; the first 200 draws alone would give 0.25 instead of 0.7, and more than double it.
    np.testing.assert_allclose(scores["crps"], expected, rtol=rtol)
    assert scores.attrs["crps_partners"] == partners


def test_intervals_are_between_quantiles_of_the_mixture(rng):
    mean, f_scale, noise = random_mixture(rng, 4, 60)
    scale = deviations(f_scale, noise)
    y = rng.normal(0, 2.5, 60)
    levels = [0.1, 0.5, 0.9, 1 - 1e-9]

    def quantile(p, i):
        if p > 0.5:
            return brentq(lambda x: ndtr((mean[:, i] - x) / scale[:, i]).mean() - (1 - p), -99, 99, xtol=1e-12)
        return brentq(lambda x: ndtr((x - mean[:, i]) / scale[:, i]).mean() - p, -99, 99, xtol=1e-12)

    scores = calibrate_regression(prediction_of(mean, f_scale, noise), y, levels=levels)
    for k, level in enumerate(levels):
        ends = np.array([[quantile((1 - level) / 2, i), quantile((1 + level) / 2, i)] for i in range(60)])
        assert scores["coverage"][k] == np.mean((ends[:, 0] <= y) & (y <= ends[:, 1]))
        # 1 - 1e-9 itself is rounded, by 1e-7 of its distance from one.
        np.testing.assert_allclose(scores["interval_width"][k], np.mean(ends[:, 1] - ends[:, 0]), rtol=1e-7)
    assert 0 < scores["coverage"][0] < scores["coverage"][1] < scores["coverage"][2] <= 1


def test_quantiles_between_distant_modes_and_far_from_zero():
    mean = np.array([[0.0, 1e6], [1e5, 1e6]])  # two modes of deviation one; and one mode far out
    scores = calibrate_regression(prediction_of(mean, 0.6, 0.8), [0.0, 1e6], levels=[0.5])
    # Quartiles of the first mixture are the modes' medians, of the second those of a Gaussian.
    np.testing.assert_allclose(scores["interval_width"], [(1e5 + 2 * norm.ppf(0.75)) / 2], rtol=1e-9)


@pytest.mark.parametrize("max_memory", [1e9, 1200])
def test_averaged_predictions_are_the_mixture_of_all_draws(rng, max_memory):
    """Three quarters of one model are its draws, thrice as many as those of the other."""
    (first, first_f, first_noise), (second, second_f, second_noise) = (random_mixture(rng, 3, 20) for _ in range(2))
    y = rng.normal(0, 2, 20)
    mixed = sgp.average_predictions(
        [
            prediction_of(first, first_f, first_noise, max_memory=max_memory),
            prediction_of(second, second_f, second_noise),
        ],
        [0.75, 0.25],
    )
    repeated = [
        np.concatenate([*[a] * 3, b]) for a, b in ((first, second), (first_f, second_f), (first_noise, second_noise))
    ]
    found, expected = calibrate_regression(mixed, y), calibrate_regression(prediction_of(*repeated), y)
    xr.testing.assert_allclose(found, expected, rtol=1e-7)  # quantiles are found to 1e-8
    np.testing.assert_allclose(mixed.log_density(y), expected["log_density"], rtol=1e-12)
    np.testing.assert_allclose(mixed.mean, prediction_of(*repeated).mean, rtol=1e-12)
    alone = sgp.average_predictions([prediction_of(first, first_f, first_noise)] * 2, [0.0, 1.0])
    own = calibrate_regression(prediction_of(first, first_f, first_noise), y)
    xr.testing.assert_allclose(calibrate_regression(alone, y), own, rtol=1e-7)


@pytest.mark.parametrize("max_memory", [1e9, 5000])
def test_discrete_weights_are_mixtures_over_components_and_noise_levels(rng, max_memory):
    """The same Gaussians as predictions of continuous weights, averaged with the probabilities of the mixture."""
    n, noise, noise_probs, mixture = 12, np.array([0.3, 1.0]), np.array([0.8, 0.2]), np.array([0.6, 0.4])
    fit = sgp.direct.DiscreteFit(
        IdentityBasis(n), np.tile([-1.0, 0.0, 2.0], (n, 1)), np.log(rng.dirichlet(np.ones(3), (2, n))), np.zeros(1),
        True, "made up", noise_scales=noise, noise_probabilities=noise_probs, mixture_weights=mixture,
    )  # fmt: skip
    omega, y = rng.uniform(0.5, 2, n), rng.normal(0, 2, n)
    prediction = fit.predict(np.eye(n), row_weights=omega, max_memory=max_memory)
    means, variances = fit.component_moments
    parts = [
        prediction_of([mean], np.sqrt(variance), [scale], row_weights=omega)
        for scale in noise
        for mean, variance in zip(means, variances, strict=True)
    ]
    expected = sgp.average_predictions(parts, np.outer(noise_probs, mixture).ravel())
    found = calibrate_regression(prediction, y)
    xr.testing.assert_allclose(found, calibrate_regression(expected, y), rtol=1e-7)
    np.testing.assert_allclose(found["log_density"], prediction.log_density(y), rtol=1e-12)
    with pytest.raises(ValueError, match=r"`y` must have shape \(12,\), that of the prediction; got \(11,\)"):
        calibrate_regression(prediction, y[1:])


@pytest.fixture
def calibrated(rng):
    """A mixture (means, deviations of f, noise) of a thousand rows, and observations of it."""
    mean, f_scale, noise = random_mixture(rng, 5, 1000)
    return (mean, f_scale, noise), simulated(rng, mean, deviations(f_scale, noise))


def test_a_calibrated_prediction_is_seen_as_such(calibrated):
    mixture, y = calibrated
    scores = calibrate_regression(prediction_of(*mixture), y)
    assert kstest(scores["pit"], "uniform").pvalue > 1e-3
    assert (np.abs(scores["coverage"] - scores["level"]) < 3.5 * scores["coverage_standard_error"]).all()


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_too_narrow_and_too_wide_predictions_are_seen_as_such(calibrated, factor):
    (mean, f_scale, noise), y = calibrated
    centre = mean.mean(axis=0)
    narrow_or_wide = (centre + factor * (mean - centre), factor * f_scale, factor * noise)
    truth = calibrate_regression(prediction_of(*(mean, f_scale, noise)), y)
    scores = calibrate_regression(prediction_of(*narrow_or_wide), y)
    excess = (scores["coverage"] - scores["level"]) / scores["coverage_standard_error"]
    assert (excess < -10).all() if factor < 1 else (excess[:2] > 10).all()
    assert kstest(scores["pit"], "uniform").pvalue < 1e-6
    np.testing.assert_allclose(scores["interval_width"], factor * truth["interval_width"], rtol=1e-7)
    np.testing.assert_allclose(scores["rmse"], truth["rmse"])
    assert scores["mean_crps"] > truth["mean_crps"] and scores["mean_log_density"] < truth["mean_log_density"]


def test_row_weights_several_outputs_and_blocks_of_rows(rng):
    mean, f_scale = rng.normal(size=(6, 2, 30)), rng.uniform(0.2, 1, (6, 2, 30))
    noise, omega = rng.uniform(0.2, 1, (6, 2)), rng.uniform(0.5, 2, 30)
    Y = rng.normal(size=(30, 2))
    both = prediction_of(mean, f_scale, noise, row_weights=omega)
    scores = calibrate_regression(both, Y)
    assert scores["pit"].dims == ("obs", "output") and scores["coverage"].dims == ("level", "output")
    assert scores["rmse"].dims == ("output",) and scores["coverage_standard_error"].dims == ("level",)
    np.testing.assert_allclose(scores["log_density"], both.log_density(Y), rtol=1e-12)
    np.testing.assert_allclose(scores["rmse"], np.sqrt(np.mean((Y - both.mean) ** 2, axis=0)), rtol=1e-12)
    scale = np.sqrt(f_scale**2 + noise[..., None] ** 2 / omega)
    np.testing.assert_allclose(scores["pit"], norm(mean, scale).cdf(Y.T).mean(axis=0).T, rtol=1e-12)
    for k in range(2):
        alone = prediction_of(mean[:, k], f_scale[:, k], noise[:, k], row_weights=omega)
        xr.testing.assert_allclose(calibrate_regression(alone, Y[:, k]), scores.isel(output=k), rtol=1e-9)
    in_blocks = prediction_of(mean, f_scale, noise, row_weights=omega, max_memory=8e3)
    xr.testing.assert_allclose(calibrate_regression(in_blocks, Y), scores, rtol=1e-9)


def test_pit_is_the_share_of_simulated_observations_below_y(rng):
    mean, f_scale, noise = random_mixture(rng, 4, 30)
    prediction = prediction_of(mean, f_scale, noise, row_weights=rng.uniform(0.5, 2, 30))
    y = rng.normal(0, 2, 30)
    below = np.mean(prediction.sample(jax.random.key(0), 20_000) <= y, axis=0)
    # Standard errors are at most 0.0035.
    np.testing.assert_allclose(calibrate_regression(prediction, y)["pit"], below, atol=0.014)


@pytest.mark.parametrize("augmented", [False, True])
def test_a_fitted_model(rng, augmented):
    X = rng.uniform(0, 4, (60, 1))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=60)
    basis = sgp.CentredBasis(np.linspace(0, 4, 12)[:, None], sgp.SquaredExponential(0.5))
    stats = sgp.sufficient_statistics(basis, X[:40], y[:40])
    draws = {"precision": np.ones((3, 13)), "noise_scale": np.array([0.2, 0.3, 0.4])}
    prediction = sgp.predict(
        sgp.models.relevance_vector_machine(),
        draws,
        stats,
        X[40:],
        augment=sgp.Augmentation(X[:40], y[:40]) if augmented else None,
    )
    scores = calibrate_regression(prediction, y[40:])
    assert scores["pit"].dims == ("obs",) and dict(scores.sizes) == {"obs": 20, "level": 4}
    np.testing.assert_allclose(scores["log_density"], prediction.log_density(y[40:]), rtol=1e-10)
    np.testing.assert_allclose(scores["rmse"], np.sqrt(np.mean((y[40:] - prediction.mean) ** 2)), rtol=1e-10)


def test_refusals():
    prediction = prediction_of(np.zeros((2, 3)), 1.0, 1.0)
    with pytest.raises(ValueError, match=r"made by `sgp.predict`.*; got ndarray"):
        calibrate_regression(np.zeros(3), np.zeros(3))
    with pytest.raises(
        ValueError, match=r"`y` must have shape \(3,\), that of the prediction; got \(3, 1\).*Predict at"
    ):
        calibrate_regression(prediction, np.zeros((3, 1)))
    with pytest.raises(ValueError, match=r"\(3, 2\), that of the prediction; got \(3,\)"):
        calibrate_regression(prediction_of(np.zeros((2, 2, 3)), 1.0, 1.0), np.zeros(3))
    with pytest.raises(ValueError, match=r"`y` has 2 of 3 rows with entries that are not finite"):
        calibrate_regression(prediction, [0.0, np.nan, np.inf])
    with pytest.raises(ValueError, match="no rows"):
        calibrate_regression(prediction_of(np.zeros((2, 0)), 1.0, 1.0), np.zeros(0))


@pytest.mark.parametrize("levels", [0.9, [], [0.5, 1.0], [0.0], [np.nan], [[0.5]], [90]])
def test_levels_are_probabilities(levels):
    prediction = prediction_of(np.zeros((2, 3)), 1.0, 1.0)
    with pytest.raises(ValueError, match=r"`levels` must be a list of probabilities between 0 and 1.*got"):
        calibrate_regression(prediction, np.zeros(3), levels=levels)
