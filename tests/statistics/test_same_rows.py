"""Rows of other data than those of statistics are refused, by name; those themselves are not, however summed."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.statistics import accumulate
from ppl_sgp.statistics.same_rows import require_same_rows

pytestmark = pytest.mark.float64_only  # on the host, whatever the lane
N = 60
RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 3.0, (N, 2))
Y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=N)
W = RNG.uniform(0.5, 2.0, size=N)
KERNEL = sgp.Matern32([0.7, 1.5])
BASIS = sgp.FourierBasis.sample(jax.random.key(0), KERNEL, 20, 2)


def loaded_parts(path):
    for part in range(3):
        sgp.sufficient_statistics(BASIS, X[part::3], Y[part::3]).save(path / f"{part}.npz")
    return sum(sgp.SufficientStatistics.load(path / f"{part}.npz") for part in range(3))


def of(basis=BASIS, y=Y, **options):
    return lambda path: sgp.sufficient_statistics(basis, X, y, **options)


MANY = sgp.FourierBasis.sample(jax.random.key(1), KERNEL, 100, 2)  # more features than rows
STATISTICS = {
    "sums": of(),
    "float32 features": of(float32_features=True),
    "decomposed": of(method="qr"),
    "several files": loaded_parts,
    "forgotten rows": lambda path: of()(path).update(X + 5, Y).forget(X + 5, Y),
    "rotated": lambda path: of()(path).rotate(),
    "rotated with a prior": lambda path: of()(path).rotate(BASIS.weight_prior(KERNEL)),
    "orthonormal": lambda path: of()(path).rotate(orthonormal=True),
    "many features": of(MANY),
    "many features, rotated": lambda path: of(MANY)(path).rotate(MANY.weight_prior(KERNEL)),
    "many features, orthonormal": lambda path: of(MANY)(path).rotate(orthonormal=True),
    "smooth": lambda path: of(sgp.CentredBasis(X, sgp.SquaredExponential(3.0)))(path).rotate(),
    "a trend": of(sgp.LinearBasis(2)),
}
OTHER = {
    "permuted y": (X, RNG.permutation(Y), "not the pairs of `X` and `y` .*in another order"),
    "reversed X": (X[::-1], Y, "not the pairs of `X` and `y`"),
    "negated y": (X, -Y, "`y` has the opposite sign"),
    "some signs of y": (X, np.where(np.arange(N) < 5, -Y, Y), "not the pairs of `X` and `y`.*signs"),
    "moved X": (X + 1, Y, "`X` is not what was compressed"),
    "X in other units": (2 * X, Y, "`X` is not what was compressed"),
    "other rows of X": (RNG.uniform(0.0, 3.0, (N, 2)), Y, "`X` is not what was compressed"),
    "y in other units": (X, 2 * Y, "its sum of squares differs"),
    "fewer rows": (X[1:], Y[1:], "of 60 rows with 1 output.*got y of shape \\(59,\\)"),
    "two outputs": (X, np.stack([Y, Y], axis=1), "of 60 rows with 1 output.*shape \\(60, 2\\)"),
}


@pytest.mark.parametrize("kind", STATISTICS)
def test_the_rows_themselves(kind, tmp_path, monkeypatch):
    stats = STATISTICS[kind](tmp_path)
    order = np.random.default_rng(1).permutation(N)
    require_same_rows(stats, X, Y, owner="test")
    require_same_rows(stats, X[order], Y[order], owner="test")
    require_same_rows(stats, X, Y, features=stats.basis.host_features(X), owner="test")
    monkeypatch.setattr(accumulate, "BLOCK_BYTES", 8)
    found = require_same_rows(stats, X.tolist(), Y.tolist(), np.ones(N), owner="test")
    for array, expected in zip(found, (X, Y, np.ones(N)), strict=True):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("name", OTHER)
@pytest.mark.parametrize("kind", STATISTICS)
def test_other_rows(kind, name, tmp_path):
    stats, (other, y, message) = STATISTICS[kind](tmp_path), OTHER[name]
    with pytest.raises(ValueError, match=f"^leave_one_out: .*{message}"):
        require_same_rows(stats, other, y, owner="leave_one_out")


def test_several_outputs():
    y = np.stack([Y, Y[::-1]], axis=1)
    for stats in (of(y=y)(None), of(y=y)(None).rotate()):
        require_same_rows(stats, X, y, owner="test")
        with pytest.raises(ValueError, match="not the pairs"):
            require_same_rows(stats, X, y * [1.0, -1.0], owner="test")
        with pytest.raises(ValueError, match="opposite sign"):
            require_same_rows(stats, X, -y, owner="test")
        with pytest.raises(ValueError, match="not the pairs"):  # the norms are those of both
            require_same_rows(stats, X, y[:, ::-1], owner="test")


def test_row_weights():
    for stats in (of(row_weights=W)(None), of(row_weights=W)(None).rotate()):
        require_same_rows(stats, X, Y, W, owner="test")
        for weights in (None, 2 * W):
            with pytest.raises(ValueError, match="`row_weights` are not those that were compressed"):
                require_same_rows(stats, X, Y, weights, owner="test")
        with pytest.raises(ValueError, match="`y` .or `row_weights`. is not what was compressed"):
            require_same_rows(stats, X, Y, W[::-1], owner="test")
    with pytest.raises(ValueError, match="`row_weights` are not those"):
        require_same_rows(of()(None), X, Y, W, owner="test")


def test_outputs_that_are_zero_or_features_that_are():
    basis = sgp.PolynomialBasis(1, degree=2)
    zero = np.zeros((4, 1))
    require_same_rows(sgp.sufficient_statistics(basis, zero, np.zeros(4)), zero, np.zeros(4), owner="test")
    linear = sgp.LinearBasis(1, bias=False)
    require_same_rows(sgp.sufficient_statistics(linear, zero, np.ones(4)), zero, np.ones(4), owner="test")


def test_inputs_that_change_no_feature_are_the_same_rows():
    basis = sgp.PeriodicBasis(1.0, 3)
    stats = sgp.sufficient_statistics(basis, X[:, :1], Y)
    require_same_rows(stats, X[:, :1] + 1, Y, owner="test")
