"""Rows that leave a moving window."""

import numpy as np
import pytest

import ppl_sgp as sgp
from tests.builders import IdentityBasis

pytestmark = pytest.mark.float64_only  # on the host, whatever the lane


@pytest.fixture(params=[None, 2], ids=["one output", "two outputs"])
def rows(request):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)) + 3
    return X, rng.normal(size=60 if request.param is None else (60, 2)), rng.uniform(0.5, 2, size=60)


def test_what_is_left_is_what_was_never_forgotten(rows):
    X, y, w = rows
    basis = IdentityBasis(4)
    left = sgp.sufficient_statistics(basis, X, y, row_weights=w).forget(X[:25], y[:25], w[:25])
    anew = sgp.sufficient_statistics(basis, X[25:], y[25:], row_weights=w[25:])
    for name, value in vars(anew.moments.plain()).items():
        if name not in ("x_min", "x_max"):
            np.testing.assert_allclose(getattr(left.moments, name), value, rtol=1e-11, atol=1e-11, err_msg=name)
    prior = sgp.DiagonalPrior(1.0)
    np.testing.assert_allclose(sgp.log_evidence(left, prior, 0.7), sgp.log_evidence(anew, prior, 0.7), rtol=1e-9)


def test_a_window_moves_on(rows):
    X, y, _ = rows
    window = sgp.sufficient_statistics(IdentityBasis(4), X[:20], y[:20])
    for i in range(40):
        window = window.update(X[20 + i : 21 + i], y[20 + i : 21 + i]).forget(X[i : i + 1], y[i : i + 1])
    anew = sgp.sufficient_statistics(IdentityBasis(4), X[40:], y[40:])
    np.testing.assert_allclose(window.moments.gram, anew.moments.gram, rtol=1e-11, atol=1e-11)
    assert window.num_rows == 20


def test_rotated_statistics_forget(rows):
    X, y, _ = rows
    stats = sgp.sufficient_statistics(IdentityBasis(4), X, y)
    prior = sgp.DiagonalPrior(1.0)
    exact = sgp.log_evidence(stats.forget(X[:9], y[:9]), prior, 0.5)
    rotated = stats.rotate(prior).forget(X[:9], y[:9])
    np.testing.assert_allclose(sgp.log_evidence(rotated, sgp.DiagonalPrior(1.0), 0.5), exact, rtol=1e-8)


def test_refusals(rows):
    X, y, w = rows
    stats = sgp.sufficient_statistics(IdentityBasis(4), X, y)
    with pytest.raises(ValueError, match="60 rows are to be forgotten of 60"):
        stats.forget(X, y)
    with pytest.raises(ValueError, match="cannot all be in the statistics"):
        stats.forget(10 * X[:5], y[:5])
    with pytest.raises(ValueError, match="cannot all be in the statistics"):
        stats.forget(X[:5], 100 * y[:5])
    few = sgp.sufficient_statistics(IdentityBasis(4), X[:6], y[:6])
    with pytest.raises(ValueError, match="cannot all be in the statistics"):
        few.forget(X[:4], y[:4]).forget(X[:1], y[:1])  # one row again is no row
    tiny = np.full((1, 4), 1e-6)
    with pytest.raises(ValueError, match="less than 1e-8 is left"):
        sgp.sufficient_statistics(IdentityBasis(4), X, y).update(tiny, y[:1]).forget(X, y)
    with pytest.raises(ValueError, match="same outputs"):
        stats.forget(X[:5], np.stack([w[:5]] * 3, axis=1))
