"""Statistics of parts, in any order and in any units, are those of the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ppl_sgp as sgp
from tests.builders import IdentityBasis
from tests.properties.drawn import features, few, scales, seeds

# Host arithmetic, the same in either lane.
pytestmark = pytest.mark.float64_only


def rows(seed, n, m, outputs, weighted, unit):
    rng = np.random.default_rng(seed + 1)
    y = unit * rng.standard_normal((n, outputs) if outputs else n)
    return features(seed, n, m, 1e-3) * unit, y, np.exp(rng.standard_normal(n)) if weighted else None


def part(row_arrays, chosen):
    return [None if array is None else array[chosen] for array in row_arrays]


@few
@given(seeds, st.integers(2, 30), st.integers(1, 7), st.sampled_from([0, 1, 3]), st.booleans(), scales(6), st.data())
@pytest.mark.parametrize("method", ["gram", "qr"])
def test_merging_updating_and_order(method, seed, n, m, outputs, weighted, unit, data):
    X, y, omega = whole = rows(seed, n, m, outputs, weighted, unit)
    basis = IdentityBasis(m)
    at_once = sgp.sufficient_statistics(basis, X, y, row_weights=omega, method=method)
    cut = data.draw(st.integers(1, n - 1))
    order = np.random.default_rng(seed).permutation(n)
    first, second = part(whole, order[:cut]), part(whole, order[cut:])
    one, other = (
        sgp.sufficient_statistics(basis, *each[:2], row_weights=each[2], method=method) for each in (first, second)
    )
    for joined in (one + other, other + one, one.update(*second)):
        for name in ("gram", "feature_output", "sum_squares", "log_weights", "y_mean", "x_mean", "x_square"):
            got, expected = (np.asarray(getattr(stats.moments, name)) for stats in (joined, at_once))
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-10 * max(np.abs(expected).max(), 1e-300))
        assert joined.num_rows == n
        np.testing.assert_array_equal(joined.moments.x_min, X.min(axis=0))


@few
@given(seeds, st.integers(1, 30), st.integers(1, 7), st.sampled_from([0, 2]), st.booleans(), scales(6))
@pytest.mark.parametrize("method", ["gram", "qr"])
def test_pseudo_rows_have_the_products_of_the_rows(method, seed, n, m, outputs, weighted, unit):
    X, y, omega = rows(seed, n, m, outputs, weighted, unit)
    stats = sgp.sufficient_statistics(IdentityBasis(m), X, y, row_weights=omega, method=method)
    R, projection = stats.compressed.factor, np.atleast_2d(stats.projection)
    Y, weights = y.reshape(n, -1), np.ones(n) if omega is None else omega
    A, r = X.T @ (weights[:, None] * X), X.T @ (weights[:, None] * Y)
    np.testing.assert_allclose(R.T @ R, A, atol=1e-11 * np.abs(A).max())
    np.testing.assert_allclose(R.T @ projection[:, :-1].T, r, atol=1e-11 * np.abs(A).max() ** 0.5 * np.abs(Y).max() * n)
    assert stats.rank <= min(n, m) and (projection[:, -1] >= 0).all()
    total = np.sum(projection[:, :-1] ** 2, axis=1) + projection[:, -1]
    np.testing.assert_allclose(total, np.sum(weights[:, None] * Y**2, axis=0), rtol=1e-8)


@few
@given(seeds, st.sampled_from([4, 9, 25]), scales(5), scales(5))
def test_units_of_inputs_and_outputs(seed, n, of_x, of_y):
    X, y, _ = rows(seed, n, 3, 0, False, 1.0)
    stats = sgp.sufficient_statistics(IdentityBasis(3), X, y)
    scaled = sgp.sufficient_statistics(IdentityBasis(3), of_x * X, of_y * y)
    assert scaled.rank == stats.rank
    np.testing.assert_allclose(scaled.output_scale, of_y * stats.output_scale, rtol=1e-12)
    np.testing.assert_allclose(scaled.input_scale, of_x * stats.input_scale, rtol=1e-9)
    np.testing.assert_allclose(np.abs(scaled.projection[:-1]), of_y * np.abs(stats.projection[:-1]), rtol=1e-6)
