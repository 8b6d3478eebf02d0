"""Which rows are looked at, and the scale of inputs by their spacing."""

from __future__ import annotations

import numpy as np
import pytest

from ppl_sgp.placement.subset import chosen_rows, distinct_rows, spacing_scale

pytestmark = pytest.mark.float64_only  # NumPy in either lane


def test_rows_of_a_long_series_have_neighbours_among_them(rng):
    X = np.linspace(0, 1e6, 100_000)[:, None]
    rows = chosen_rows(rng, X, 300)
    assert 280 <= len(rows) <= 300
    assert (np.diff(rows) > 0).all()
    assert np.sum(np.diff(rows) == 1) > 100  # of uniform ones next to none
    assert np.ptp(rows) > 90_000


def test_rows_of_many_inputs_are_uniform(rng):
    rows = chosen_rows(rng, rng.standard_normal((5000, 6)), 200)
    assert len(np.unique(rows)) == 200
    np.testing.assert_array_equal(chosen_rows(rng, rng.standard_normal((50, 6)), 200), np.arange(50))


def test_neither_a_gap_nor_a_wrong_value_moves_the_scale():
    even = np.linspace(0, 10, 200)
    scale = spacing_scale(even[:, None])[0]
    assert scale == pytest.approx(even.std(), rel=0.01)
    assert spacing_scale(np.append(even, 5000.0)[:, None])[0] == pytest.approx(scale, rel=0.01)
    gapped = np.concatenate([even, 1000 + even])
    assert spacing_scale(gapped[:, None])[0] < 3 * scale < 0.1 * gapped.std()
    assert spacing_scale(np.ones((5, 1)))[0] == 0


def test_points_are_distinct(rng):
    X = rng.integers(0, 4, (500, 2)).astype(float)
    points = distinct_rows(rng, X, 100, 1000)
    assert len(points) == len(np.unique(points, axis=0)) == 16
    assert len(distinct_rows(rng, X, 7, 1000)) == 7


def test_points_have_the_range_of_all_rows(rng):
    X = np.exp(2 * rng.standard_normal((5000, 3)))
    points = distinct_rows(rng, X, 60, 1000)
    assert len(points) == 60
    np.testing.assert_array_equal(points.min(axis=0), X.min(axis=0))
    np.testing.assert_array_equal(points.max(axis=0), X.max(axis=0))
    few = distinct_rows(rng, X, 10, 1000)  # too few to give two to each input
    assert (few.max(axis=0) < X.max(axis=0)).any()
