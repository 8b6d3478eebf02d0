"""Weights, relevance and levels: sorted, with the right intervals and names."""

from types import SimpleNamespace

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import norm

import ppl_sgp as sgp
from ppl_sgp.plots import plot_feature_weights, plot_input_relevance, plot_level_probabilities, plot_relevance

pytestmark = pytest.mark.float64_only


def texts(labels):
    return [label.get_text() for label in labels]


def ends(ax, along):
    """Ends of the intervals, (2, k)."""
    return np.array([segment[:, along] for segment in ax.collections[0].get_segments()]).T


def test_draws_of_weights_are_sorted_by_size(rng):
    draws = np.array([0.1, -5.0, 2.0, 1.0]) + 0.01 * rng.normal(size=(200, 4))
    ax = plot_feature_weights(draws, top=3, names=["a", "b", "c", "d"])
    chosen = draws[:, [1, 2, 3]]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.median(chosen, axis=0))
    np.testing.assert_allclose(ends(ax, 1), np.quantile(chosen, [0.05, 0.95], axis=0))
    assert texts(ax.get_xticklabels()) == ["b", "c", "d"]
    assert ax.get_xlabel() == "feature (3 largest of 4)" and ax.get_ylabel() == "weight" and ax.get_yscale() == "linear"


def test_scales_over_decades_are_on_a_logarithmic_axis():
    ax = plot_feature_weights(np.exp([[0.0, -8.0], [0.1, -8.1]]))
    assert ax.get_yscale() == "log" and ax.get_ylabel() == "scale" and ax.get_xlabel() == "feature"
    assert plot_feature_weights(np.array([[1.0, 0.5]])).get_yscale() == "linear"


def posteriors():
    X = np.linspace(-1, 1, 30)[:, None]
    stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, 0.4 + 2 * X[:, 0] + 0.1 * np.cos(77 * X[:, 0]))
    mean, sd = np.array([0.3, -2.0]), np.array([0.1, 0.5])
    yield "posterior", dist.MultivariateNormal(mean, np.array([[0.01, 0.02], [0.02, 0.25]])), mean, sd
    yield "discrete", SimpleNamespace(mean=mean, variance=sd**2), mean, sd
    vectors = sgp.fit_relevance_vectors(stats)
    yield (
        "relevance vectors",
        vectors,
        vectors.weights,
        np.sqrt(np.diag(vectors.covariance_factor @ vectors.covariance_factor.T)),
    )
    summary = xr.Dataset({"weight": ("feature", mean), "weight_sd": ("feature", sd)}, {"feature": ["level", "slope"]})
    yield "summary", summary, mean, sd


def test_posteriors_are_means_and_normal_intervals():
    for name, weights, mean, sd in posteriors():
        ax = plot_feature_weights(weights)
        order = [1, 0]  # the slope is the larger
        np.testing.assert_allclose(ax.lines[0].get_ydata(), np.asarray(mean)[order], err_msg=name)
        expected = norm.interval(0.9, np.asarray(mean)[order], np.asarray(sd)[order])
        np.testing.assert_allclose(ends(ax, 1), expected, err_msg=name)
        assert texts(ax.get_xticklabels()) == (["slope", "level"] if name == "summary" else ["1", "0"])


def test_feature_weights_refuse():
    for match, arguments in {
        r"shape \(draws, m\).*got \(3,\)": dict(weights=np.ones(3)),
        "1 of 2 that are not finite": dict(weights=[[1.0, np.inf]]),
        r"`names` must have shape \(2,\)": dict(weights=np.ones((4, 2)), names=["a"]),
        "`top` must be an integer of 1 or more": dict(weights=np.ones((4, 2)), top=0),
        r"without \['weight', 'weight_sd'\]": dict(weights=xr.Dataset()),
        r"`mean` and `variance` must have shape \(m,\)": dict(
            weights=SimpleNamespace(mean=np.ones((2, 3)), variance=np.ones((2, 3)))
        ),
    }.items():
        with pytest.raises(ValueError, match=match):
            plot_feature_weights(**arguments)


def test_relevance_puts_the_surest_at_the_top():
    relevance, determined = np.array([0.2, 1.0, 0.9, 1.0]), np.array([0.3, 0.8, 0.7, 0.9])
    summary = xr.Dataset(
        {"relevance": ("feature", relevance), "determined": ("feature", determined)}
        | {"effective_number": ("draw", np.arange(101.0))},
        {"feature": ["centre 0", "centre 1", "centre 2", "constant"]},
    )
    ax = plot_relevance(summary, top=3)
    order = [3, 1, 2]  # ties by how far they are determined
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), relevance[order])
    np.testing.assert_array_equal(ax.lines[1].get_xdata(), determined[order])
    assert texts(ax.get_yticklabels()) == ["constant", "centre 1", "centre 2"] and ax.yaxis_inverted()
    assert ax.get_title() == "3 of 4 features; effective number 50.0 (5.0 to 95.0)"
    with pytest.raises(ValueError, match=r"sgp.relevance_summary returns it.*without \['effective_number'\]"):
        plot_relevance(summary.drop_vars("effective_number"))


def test_input_relevance_is_spread_over_lengthscale(rng):
    X = pd.DataFrame({"depth": rng.normal(0, 10, 40), "age": rng.normal(0, 1, 40)})
    draws = rng.gamma(20, 0.1, (300, 2)) * [100.0, 0.5]
    ax = plot_input_relevance(draws, X)
    ratio = X.to_numpy().std(axis=0)[::-1] / draws[:, ::-1]
    np.testing.assert_allclose(ax.lines[0].get_xdata(), np.median(ratio, axis=0))
    np.testing.assert_allclose(ends(ax, 0), np.quantile(ratio, [0.05, 0.95], axis=0))
    assert texts(ax.get_yticklabels()) == ["age", "depth"] and ax.get_xscale() == "log"
    # In other units of an input nothing changes.
    rescaled = plot_input_relevance(draws * [1e3, 1.0], X * [1e3, 1.0])
    np.testing.assert_allclose(rescaled.lines[0].get_xdata(), ax.lines[0].get_xdata())


def test_input_relevance_refuses():
    X = np.array([[0.0, 1.0], [2.0, 1.0]])
    for match, arguments in {
        r"inputs \['1'\] are constant": dict(lengthscale=np.ones((3, 2)), X=X),
        r"got \(3,\) and \(2, 2\)": dict(lengthscale=np.ones(3), X=X),
        "`names` must be 2 names; got 1": dict(lengthscale=np.ones((3, 2)), X=X, names=["a"]),
        "must be positive and finite": dict(lengthscale=-np.ones((3, 2)), X=X),
    }.items():
        with pytest.raises(ValueError, match=match):
            plot_input_relevance(**arguments)


def test_level_probabilities_of_chosen_weights(rng):
    fit = SimpleNamespace(levels=np.tile([-0.5, 0.0, 0.5], (60, 1)), probabilities=rng.dirichlet(np.ones(3), 60))
    fit.mean = np.sum(fit.levels * fit.probabilities, axis=1)
    ax = plot_level_probabilities(fit, [7, 3])
    np.testing.assert_array_equal(ax.images[0].get_array(), fit.probabilities[[7, 3]])
    assert texts(ax.get_yticklabels()) == ["7", "3"] and texts(ax.get_xticklabels()) == ["-0.5", "0", "0.5"]
    assert ax.get_ylabel() == "weight (2 of 60)" and ax.get_xlabel() == "value of the weight"
    assert ax.images[0].get_clim() == (0, 1)
    largest = sorted(np.argsort(-np.abs(fit.mean))[:40])
    ax = plot_level_probabilities(fit)
    np.testing.assert_array_equal(ax.images[0].get_array(), fit.probabilities[largest])
    assert texts(ax.get_yticklabels()) == [str(j) for j in largest[::2]]  # every other row has room for its name


def test_levels_of_their_own_are_numbered(rng):
    levels = np.arange(3.0) * [[1.0], [2.0]]
    ax = plot_level_probabilities(SimpleNamespace(levels=levels, probabilities=np.full((2, 3), 1 / 3)), [0, 1])
    assert ax.get_xlabel() == "level, from the lowest" and texts(ax.get_xticklabels()) == ["0", "1", "2"]


def test_level_probabilities_refuse():
    fit = SimpleNamespace(levels=np.zeros((2, 3)), probabilities=np.zeros((2, 3)))
    for match, arguments in {
        "fit of `sgp.direct`.*got ndarray": dict(result=np.zeros(3)),
        "positions from 0 to 1; got 0 to 2": dict(result=fit, weights=[0, 2]),
        "must be a list of positions": dict(result=fit, weights=[0.5]),
    }.items():
        with pytest.raises(ValueError, match=match):
            plot_level_probabilities(**arguments)
