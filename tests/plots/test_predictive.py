"""Bands of predictions against distribution functions of mixtures formed by hand."""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy.stats import norm

import ppl_sgp as sgp
from ppl_sgp.plots import plot_predictive
from tests.builders import by_lane

NOISE = np.array([0.05, 0.3, 1.5])
SCALE = 0.7  # of the prior of both weights
MODEL = sgp.models.reweighted_basis(scale=SCALE)
ATOL = by_lane(1e-6, 1e-3)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (15, 1))
    y = 0.5 + X[:, 0] + 0.3 * rng.normal(size=15)
    draws = {"noise_scale": jnp.asarray(NOISE, jnp.result_type(float))}
    return X, y, draws, sgp.sufficient_statistics(sgp.LinearBasis(1), X, y)


def of_each_draw(X, y, X_new):
    """Posterior mean and standard deviation (draws, n_new) of f, by the normal equations."""
    Phi, Phi_new = (np.concatenate([np.ones_like(A), A], axis=1) for A in (X, X_new))
    means, scales = [], []
    for noise in NOISE:
        covariance = np.linalg.inv(Phi.T @ Phi / noise**2 + np.eye(2) / SCALE**2)
        means.append(Phi_new @ covariance @ Phi.T @ y / noise**2)
        scales.append(np.sqrt(np.sum((Phi_new @ covariance) * Phi_new, axis=1)))
    return np.array(means), np.array(scales)


def band(ax, label):
    """Lower and upper ends of a band at its inputs, in ascending order."""
    (collection,) = [each for each in ax.collections if each.get_label() == label]
    vertices = collection.get_paths()[0].vertices
    inputs = np.unique(vertices[:, 0])
    ends = [vertices[vertices[:, 0] == x, 1] for x in inputs]
    return inputs, np.array([e.min() for e in ends]), np.array([e.max() for e in ends])


@pytest.mark.parametrize("noise", [True, False])
def test_bands_are_quantiles_of_the_mixture(fitted, noise):
    X, y, draws, stats = fitted
    X_new = np.array([[2.0], [-1.0], [0.3]])  # in no order
    ax = plot_predictive(sgp.predict(MODEL, draws, stats, X_new), X_new, levels=(0.9, 0.5), noise=noise)
    mean, scale = of_each_draw(X, y, np.sort(X_new, axis=0))
    scale = np.hypot(scale, NOISE[:, None]) if noise else scale
    for level in (0.5, 0.9):
        inputs, low, high = band(ax, f"{level:.0%} of {'y' if noise else 'f'}")
        np.testing.assert_array_equal(inputs, [-1.0, 0.3, 2.0])
        for end, probability in ((low, (1 - level) / 2), (high, (1 + level) / 2)):
            np.testing.assert_allclose(norm.cdf(end, mean, scale).mean(axis=0), probability, atol=ATOL)
    # The noise varies thirtyfold, so a normal with the moments of the mixture has other quantiles.
    if noise:
        moments = np.sqrt(mean.var(axis=0) + np.mean(scale**2, axis=0))
        assert (np.abs(norm.ppf(0.75, mean.mean(axis=0), moments) - band(ax, "50% of y")[2]) > 0.1).all()
    line = ax.lines[0]
    np.testing.assert_array_equal(line.get_xdata(), [-1.0, 0.3, 2.0])
    np.testing.assert_allclose(line.get_ydata(), mean.mean(axis=0), atol=by_lane(1e-10, 1e-4))
    assert ax.get_ylabel() == ("y" if noise else "f") and ax.get_xlabel() == "x"


def test_row_weights_data_and_offset(fitted):
    X, y, draws, stats = fitted
    X_new, omega = np.array([[0.0], [1.0]]), np.array([1.0, 100.0])
    prediction = sgp.predict(MODEL, draws, stats, X_new, row_weights=omega)
    frame = pd.DataFrame({"depth": X_new[:, 0]})
    ax = plot_predictive(prediction, frame, X=X, y=y + 7, levels=0.9, offset=7.0)
    mean, scale = of_each_draw(X, y, X_new)
    _, low, _ = band(ax, "90% of y")
    spread = np.sqrt(scale**2 + NOISE[:, None] ** 2 / omega)
    np.testing.assert_allclose(norm.cdf(low - 7, mean, spread).mean(axis=0), 0.05, atol=ATOL)
    data = ax.lines[1]
    np.testing.assert_array_equal(data.get_xdata(), X[:, 0])
    np.testing.assert_array_equal(data.get_ydata(), y + 7)
    assert ax.get_xlabel() == "depth"


def test_dates_label_the_axis(fitted, image):
    _, _, draws, stats = fitted
    days = np.array(["2024-01-01", "2024-03-01"], dtype="datetime64[D]")
    ax = plot_predictive(sgp.predict(MODEL, draws, stats, [[0.0], [1.0]]), days)
    image(ax)
    assert plt.matplotlib.dates.num2date(ax.get_xlim()[1]).year == 2024


def test_explicit_weights_and_several_outputs(rng):
    def explicit(stats):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        sgp.observe_weights("y", stats, w, 0.5)

    X = rng.uniform(size=(10, 1))
    y = X[:, 0] + 0.2 * rng.normal(size=10)
    draws = {"w": jnp.asarray(rng.normal(size=(51, 2)), jnp.result_type(float))}
    prediction = sgp.predict(explicit, draws, sgp.sufficient_statistics(sgp.LinearBasis(1), X, y), [[0.0], [2.0]])
    f = np.asarray(draws["w"]) @ np.array([[1.0, 1.0], [0.0, 2.0]])
    ax = plot_predictive(prediction, [[0.0], [2.0]], levels=[0.8], noise=False)
    _, low, high = band(ax, "80% of f")
    np.testing.assert_allclose([low, high], np.quantile(f, [0.1, 0.9], axis=0), rtol=1e-5)

    both = sgp.sufficient_statistics(sgp.LinearBasis(1), X, np.column_stack([y, -y]))
    prediction = sgp.predict(MODEL, {"noise_scale": draws["w"][:2] ** 2}, both, [[0.0], [2.0]])
    ax = plot_predictive(prediction, [[0.0], [2.0]], output=1)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), prediction.mean[:, 1])
    with pytest.raises(ValueError, match=r"2 output\(s\), and `output` is None. Choose one"):
        plot_predictive(prediction, [[0.0], [2.0]])


def test_averaged_predictions(rng):
    """Beside draws of a weight that is known, draws of one that is not: quantiles of the mixture of both."""

    def known(stats):
        sgp.observe_weights("y", stats, numpyro.sample("w", dist.Normal(0.0, 1.0).expand([1]).to_event(1)), 0.5)

    def unknown(stats):
        sgp.observe("y", stats, sgp.DiagonalPrior(1.0), numpyro.sample("noise_scale", dist.HalfNormal()))

    X = np.ones((4, 1))
    stats = sgp.sufficient_statistics(sgp.LinearBasis(1, bias=False), X, np.zeros(4))
    parts = [
        sgp.predict(known, {"w": jnp.array([[-1.0], [3.0]])}, stats, X[:1]),
        sgp.predict(unknown, {"noise_scale": jnp.array([2.0])}, stats, X[:1]),
    ]
    ax = plot_predictive(sgp.average_predictions(parts), X[:1], levels=[0.6], noise=False)
    # A quarter at -1, a quarter at 3, half a normal of variance (4/2² + 1)⁻¹.
    cdf = lambda x: 0.25 * (x >= -1) + 0.25 * (x >= 3) + 0.5 * norm.cdf(x, 0, 0.5**0.5)  # noqa: E731
    _, low, high = band(ax, "60% of f")
    assert low.item() == pytest.approx(-1, abs=1e-5) and cdf(-1 - 1e-9) < 0.2 < cdf(-1)
    assert high.item() == pytest.approx(3, abs=1e-5) and cdf(3 - 1e-9) < 0.8 < cdf(3)
    assert ax.lines[0].get_ydata().item() == pytest.approx(0.5)


def test_discrete_weights(fitted):
    X, _, _, stats = fitted
    probabilities = np.array([[[0.1, 0.2, 0.7], [0.3, 0.6, 0.1]]])
    fit = sgp.direct.DiscreteFit(
        stats.basis, np.tile([-1.0, 0.0, 1.0], (2, 1)), np.log(probabilities), np.zeros(1), True, "made up",
        noise_scales=np.array([0.3]), noise_probabilities=np.ones(1), mixture_weights=np.ones(1),
    )  # fmt: skip
    omega = np.linspace(1, 5, len(X))
    ax = plot_predictive(fit.predict(X, row_weights=omega), X, levels=[0.9])
    _, low, _ = band(ax, "90% of y")
    mean, variance = 0.6 - 0.2 * X[:, 0], 0.44 + 0.36 * X[:, 0] ** 2  # of the intercept and the slope
    expected = norm.ppf(0.05, mean, np.sqrt(variance + 0.09 / omega))
    np.testing.assert_allclose(low, expected[np.argsort(X[:, 0])])


@pytest.mark.float64_only
def test_refusals(fitted):
    X, y, draws, stats = fitted
    prediction = sgp.predict(MODEL, draws, stats, X)
    for match, arguments in {
        r"one input, shape \(n, 1\) or \(n,\); got \(15, 2\).*predict along one": dict(X_new=np.ones((15, 2))),
        "`X_new` has 3 rows, the prediction 15": dict(X_new=X[:3]),
        "`X_new` must hold finite numbers or dates": dict(X_new=np.full((15, 1), np.nan)),
        "probabilities between 0 and 1": dict(X_new=X, levels=(0.5, 1.0)),
        "both `X` and `y`": dict(X_new=X, y=y),
        r"`y` must have shape \(15,\)": dict(X_new=X, X=X, y=y[:3]),
        r"`offset` must be a number or have shape \(15,\); got \(3,\)": dict(X_new=X, offset=np.ones(3)),
        "`offset` must hold finite numbers": dict(X_new=X, offset=np.nan),
        "1 output.*Leave `output` out": dict(X_new=X, output=0),
    }.items():
        with pytest.raises(ValueError, match=match):
            plot_predictive(prediction, **arguments)
    with pytest.raises(ValueError, match=r"`sgp.predict`.*got ndarray"):
        plot_predictive(np.zeros(15), X)
    assert not plt.get_fignums()  # refused before a figure is made


@pytest.mark.float64_only
def test_augmented_predictions_have_bands_too(key):
    X = np.linspace(0, 1, 12)[:, None]
    basis = sgp.CentredBasis(X[::3], sgp.SquaredExponential(0.2), bias=False)
    y = np.cos(4 * X[:, 0]) + 0.1 * np.asarray(jax.random.normal(key, (12,)))
    fit = sgp.fit_relevance_vectors(sgp.sufficient_statistics(basis, X, y))
    far = np.array([[0.5], [9.0]])
    augmented = fit.predict(far, augment=sgp.Augmentation(X, y))
    _, low, high = band(plot_predictive(augmented, far, levels=[0.9], noise=False), "90% of f")
    np.testing.assert_allclose((high - low) / 2, norm.ppf(0.95) * np.sqrt(augmented.variance), rtol=1e-6)
