"""Densities of hyperparameters over their logarithms, with those of their priors."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import gamma, gaussian_kde, lognorm, norm

from ppl_sgp.plots import plot_hyperparameters


def lines(ax, dashed):
    return [line for line in ax.lines if (line.get_linestyle() == "--") == dashed]


def log_draws(rng, size=400):
    return rng.normal(-1, 0.3, size)


@pytest.mark.float64_only
def test_posterior_is_a_density_of_the_logarithm(rng):
    z = log_draws(rng)
    ax = plot_hyperparameters({"noise_scale": np.exp(z)})
    assert ax.get_xlabel() == "noise_scale" and ax.get_xscale() == "log" and isinstance(ax, plt.Axes)
    (line,) = lines(ax, dashed=False)
    x, density = line.get_xdata(), line.get_ydata()
    np.testing.assert_allclose(density, gaussian_kde(z)(np.log(x)))
    assert abs(np.trapezoid(density, np.log(x)) - 1) < 1e-3
    # 400 draws of a normal, smoothed by a kernel of width 0.3 · 400^(-1/5): within a tenth of its peak.
    assert np.abs(density - norm.pdf(np.log(x), -1, 0.3)).max() < 0.1 * norm.pdf(0, 0, 0.3)


@pytest.mark.parametrize(
    "prior, truth",
    [
        (lambda: dist.LogNormal(-1.0, 0.8), lambda z: norm.pdf(z, -1, 0.8)),
        (lambda: dist.HalfNormal(0.4), lambda z: 2 * norm.pdf(np.exp(z), 0, 0.4) * np.exp(z)),
        (lambda: dist.Uniform(0.3, 0.6), lambda z: ((np.exp(z) > 0.3) & (np.exp(z) < 0.6)) * np.exp(z) / 0.3),
        (
            lambda: dist.Gamma(2.0, 3.0).expand([2]).to_event(1),
            lambda z: gamma.pdf(np.exp(z), 2, scale=1 / 3) * np.exp(z),
        ),
        (lambda: dist.LogNormal(-1.0, 0.8).mask(True), lambda z: norm.pdf(z, -1, 0.8)),
    ],
)
def test_prior_is_a_density_of_the_logarithm(rng, prior, truth):
    ax = plot_hyperparameters({"a": np.exp(log_draws(rng))}, {"a": prior()})
    (line,) = lines(ax, dashed=True)
    z = np.log(line.get_xdata())
    np.testing.assert_allclose(line.get_ydata(), truth(z), rtol=1e-4, atol=1e-6)
    assert ax.get_legend_handles_labels()[1] == ["prior", "posterior"]
    assert np.ptp(z) > 2  # with a prior, further than the draws go


def test_vectors_are_a_line_an_entry_with_their_priors(rng):
    draws = np.exp(log_draws(rng, (300, 3)) + np.arange(3.0))
    medians = jnp.asarray([-1.0, 0.0, 1.0], jnp.result_type(float))
    ax = plot_hyperparameters({"lengthscale": draws}, {"lengthscale": dist.LogNormal(medians, 0.5).to_event(1)})
    assert len(lines(ax, dashed=True)) == 3
    for k, line in enumerate(lines(ax, dashed=False)):
        np.testing.assert_allclose(line.get_ydata(), gaussian_kde(np.log(draws[:, k]))(np.log(line.get_xdata())))
        assert line.get_label() == f"[{k}]"
    (single,) = [
        line for line in lines(ax, dashed=True) if np.isclose(line.get_xdata()[line.get_ydata().argmax()], 1, 0.1)
    ]
    x = single.get_xdata()
    np.testing.assert_allclose(single.get_ydata(), lognorm.pdf(x, 0.5) * x, rtol=1e-4, atol=1e-6)


@pytest.mark.float64_only
def test_panels_and_which_sites_are_shown(rng, image):
    samples = {
        "noise_scale": np.exp(log_draws(rng)),
        "weights": rng.normal(size=(50, 3)),  # of either sign
        "precision": np.exp(rng.normal(size=(50, 21))),  # too many to show unasked
        "amplitude": np.full(50, 2.0),
    }
    axes = plot_hyperparameters(samples)
    assert axes.shape == (2,) and [ax.get_xlabel() for ax in axes] == ["noise_scale", "amplitude"]
    assert lines(axes[1], dashed=False)[0].get_xdata() == [2.0, 2.0]  # of equal draws, their place
    given = plt.subplots(2, 1)[1]
    assert plot_hyperparameters(samples, names=["precision", "noise_scale"], ax=given) is given
    assert len(lines(given[0], dashed=False)) == 21 and given[0].get_legend_handles_labels()[1] == ["posterior"]
    image(given[0])
    five = plot_hyperparameters({name: samples["noise_scale"] for name in "abcde"})
    assert len(five[0].figure.axes) == 5  # in two rows, without empty axes


@pytest.mark.float64_only
@pytest.mark.parametrize("centre, spread", [(1.0, 0.01), (1e-5, 0.3), (30.0, 2.0), (1.0, 5.0)])
def test_tick_labels_are_few_and_within_the_axis(rng, centre, spread):
    ax = plot_hyperparameters({"a": centre * np.exp(spread * rng.normal(size=300))})
    low, high = ax.get_xlim()
    ticks, labels = ax.get_xticks(), [label.get_text() for label in ax.get_xticklabels()]
    assert 2 <= len(ticks) <= 6 and (low <= ticks).all() and (ticks <= high).all()
    assert len(set(labels)) == len(labels) and not len(ax.get_xticks(minor=True))
    np.testing.assert_allclose([float(label) for label in labels], ticks, rtol=1e-3)


@pytest.mark.float64_only
def test_refusals(rng):
    draws = {"a": np.exp(log_draws(rng)), "b": rng.normal(size=400)}
    for match, arguments in {
        r"`names` must be among \['a', 'b'\]; got \['c'\]": dict(names="c"),
        r"draws of \['b'\] must be positive": dict(names=["a", "b"]),
        "`ax` must be 1 axes.*got 2": dict(ax=plt.subplots(2)[1]),
        "Dirichlet has dependent entries": dict(priors={"a": dist.Dirichlet(np.ones(2))}),
    }.items():
        with pytest.raises(ValueError, match=match):
            plot_hyperparameters(draws, **arguments)
    with pytest.raises(ValueError, match=r"no site in \['b'\] has positive draws"):
        plot_hyperparameters({"b": draws["b"]})
