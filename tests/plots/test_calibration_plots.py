"""Histograms with binomial bands, and reliability diagrams."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from scipy.stats import binom

from ppl_sgp.plots import plot_pit, plot_ranks, plot_reliability

pytestmark = pytest.mark.float64_only


def heights(ax):
    return [bar.get_height() for bar in ax.containers[0]]


def band(ax):
    """Lower and upper ends of the shaded steps, by bar."""
    (patch,) = [each for each in ax.patches if each.get_label().startswith("99%")]
    values, edges, baseline = patch.get_data()
    return baseline, values, edges


def test_pit_counts_and_band():
    pit = np.concatenate([np.full(30, 0.05), np.full(10, 0.999), [0.5, 1.0, 0.0]])
    ax = plot_pit(pit, bins=10)
    assert heights(ax) == [31, 0, 0, 0, 0, 1, 0, 0, 0, 11]
    low, high, edges = band(ax)
    np.testing.assert_allclose(edges, np.linspace(0, 1, 11))
    # The smallest counts beyond which at most half a percent lies, on either side.
    assert (binom.cdf(low - 1, 43, 0.1) < 0.005).all() and (binom.cdf(low, 43, 0.1) >= 0.005).all()
    assert (binom.sf(high, 43, 0.1) <= 0.005).all() and (binom.sf(high - 1, 43, 0.1) > 0.005).all()
    assert ax.get_xlabel() == "PIT" and ax.get_ylabel() == "rows" and ax.get_ylim()[1] > 31
    same = plot_pit(xr.Dataset({"pit": ("obs", pit)}), bins=10)
    assert heights(same) == heights(ax)


def test_pit_refusals():
    for match, arguments in {
        "are probabilities; got -0.1 to 0.5": dict(pit=[-0.1, 0.5]),
        r"shape \(n,\); got \(2, 2\).*choose one": dict(pit=np.full((2, 2), 0.5)),
        "must hold finite numbers; got none": dict(pit=[]),
        "`bins` must be an integer of 2 or more": dict(pit=[0.5], bins=1),
        r"without \['pit'\]": dict(pit=xr.Dataset()),
    }.items():
        with pytest.raises(ValueError, match=match):
            plot_pit(**arguments)


def test_ranks_of_which_equally_many_are_in_each_bar():
    ax = plot_ranks(np.repeat(np.arange(100), 3), 99)
    assert heights(ax) == [15] * 20
    low, high, edges = band(ax)
    np.testing.assert_array_equal(edges, np.arange(0, 101, 5))
    np.testing.assert_array_equal([low[0], high[0]], binom.interval(0.99, 300, 0.05))
    assert ax.get_xlabel() == "rank" and ax.get_ylabel() == "simulations"


def test_ranks_that_do_not_divide_evenly():
    # 23 possible ranks, a prime number: bars of one rank or two, and the band follows.
    ranks = np.repeat(np.arange(23), 10)
    ax = plot_ranks(ranks, 22)
    _, high, edges = band(ax)
    width = np.diff(edges)
    assert set(width) == {1, 2} and width.sum() == 23
    np.testing.assert_array_equal(heights(ax), 10 * width)
    np.testing.assert_array_equal(high, binom.ppf(0.995, 230, width / 23))
    assert len(heights(plot_ranks(ranks, 22, bins=4))) == 4
    assert len(heights(plot_ranks(np.arange(4), 3))) == 4


def test_uniform_ranks_stay_within_the_band_and_others_do_not(rng):
    ax = plot_ranks(rng.integers(0, 100, 2000), 99)
    low, high, _ = band(ax)
    inside = (low <= heights(ax)) & (heights(ax) <= high)
    assert inside.sum() >= 18  # three or more of twenty outside: once in a thousand
    ax = plot_ranks((99 * rng.beta(0.4, 0.4, 2000)).round().astype(int), 99)  # posteriors that are too narrow
    low, high, _ = band(ax)
    assert heights(ax)[0] > high[0] and heights(ax)[10] < low[10]


def test_a_panel_for_each_entry_of_a_dataset(rng, image):
    ranks = xr.Dataset(
        {
            "noise_scale": ("simulation", rng.integers(0, 10, 60)),
            "lengthscale": (("simulation", "lengthscale_dim_0"), rng.integers(0, 10, (60, 2))),
            "diverging": ("simulation", np.zeros(60, int)),
        },
        attrs={"num_draws": 9},
    )
    axes = plot_ranks(ranks)
    assert [ax.get_xlabel() for ax in axes] == [
        "rank of noise_scale",
        "rank of lengthscale[0]",
        "rank of lengthscale[1]",
    ]
    np.testing.assert_array_equal(heights(axes[2]), np.bincount(ranks["lengthscale"].values[:, 1], minlength=10))
    image(axes[0])
    given = plt.subplots(3)[1]
    assert plot_ranks(ranks, ax=given) is given


def test_rank_refusals():
    for match, arguments in {
        "ranks among 9 draws go from 0 to 9; got 0 to 10": dict(ranks=np.arange(11), num_draws=9),
        r"integers of shape \(simulations,\); got float64": dict(ranks=np.ones(3), num_draws=9),
        "`num_draws` must be an integer of 1 or more; got None": dict(ranks=np.arange(3)),
        "`bins` must be at most 10": dict(ranks=np.arange(10), num_draws=9, bins=11),
    }.items():
        with pytest.raises(ValueError, match=match):
            plot_ranks(**arguments)


def test_reliability_dots_and_intervals():
    scores = xr.Dataset(
        {
            "accuracy": ("bin", [np.nan, 0.5, 0.8]),
            "confidence": ("bin", [np.nan, 0.6, 0.9]),
            "count": ("bin", [0, 10, 40]),
            "ece": 0.1234,
        }
    )
    ax = plot_reliability(scores)
    intervals, dots = ax.collections
    np.testing.assert_array_equal(dots.get_offsets(), [[0.6, 0.5], [0.9, 0.8]])
    small, large = dots.get_sizes()
    assert small < large
    ends = np.array([segment[:, 1] for segment in intervals.get_segments()])
    expected = np.array(binom.interval(0.99, [10, 40], [0.6, 0.9])) / [10, 40]
    np.testing.assert_allclose(ends, expected.T)
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[0, 0], [1, 1]])  # calibrated
    assert ax.get_title() == "expected calibration error 0.123"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("confidence", "accuracy")
    assert plot_reliability(scores.drop_vars("ece")).get_title() == ""


def test_reliability_refusals():
    empty = xr.Dataset({name: ("bin", [0.0]) for name in ("accuracy", "confidence", "count")})
    with pytest.raises(ValueError, match="all bins are empty"):
        plot_reliability(empty)
    with pytest.raises(ValueError, match=r"calibrate_classification returns it.*without \['count'\]"):
        plot_reliability(empty.drop_vars("count"))


def test_scores_of_the_package_fit():
    from ppl_sgp.diagnostics.classification_calibration import calibrate_classification

    scores = calibrate_classification([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8]], [0, 1, 0], num_bins=2)
    dots = plot_reliability(scores).collections[1]
    np.testing.assert_allclose(dots.get_offsets(), [[0.8, 2 / 3]])
