"""Evidence against the number of features."""

import numpy as np
import pytest

from ppl_sgp.plots import plot_evidence

pytestmark = pytest.mark.float64_only


def test_in_order_of_size_with_the_best_marked():
    ax = plot_evidence([40, 10, 20], [-3.0, -9.0, -1.5])
    curve, best = ax.lines
    np.testing.assert_array_equal(curve.get_xdata(), [10, 20, 40])
    np.testing.assert_array_equal(curve.get_ydata(), [-9.0, -1.5, -3.0])
    assert (best.get_xdata(), best.get_ydata()) == ([20], [-1.5])
    assert best.get_label() == "best: -1.5 nats at m = 20"
    assert ax.get_xscale() == "log" and ax.get_ylabel() == "log evidence [nats]"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["10", "20", "40"]


def test_random_bases_are_dots_around_their_mean():
    evidence = np.array([[-9.0, -7.0], [-2.0, -1.0]])
    dots, curve, best = plot_evidence([10, 20], evidence).lines
    np.testing.assert_array_equal(dots.get_xdata(), [10, 10, 20, 20])
    np.testing.assert_array_equal(dots.get_ydata(), evidence.ravel())
    np.testing.assert_array_equal(curve.get_ydata(), [-8.0, -1.5])
    assert best.get_ydata() == [-1.5] and best.axes.get_ylabel() == "mean log evidence [nats]"


@pytest.mark.parametrize(
    "m, evidence, match",
    [
        ([10, 20], [-1.0], r"got \(2,\) and \(1,\)"),
        ([[10, 20]], [[-1.0, 2.0]], r"got \(1, 2\)"),
        ([0, 20], [-1.0, 2.0], "must be positive; got 0"),
        ([10, 20], [-1.0, np.nan], "1 of 2 that are not finite"),
        ([], [], "got none"),
    ],
)
def test_refusals(m, evidence, match):
    with pytest.raises(ValueError, match=match):
        plot_evidence(m, evidence)
