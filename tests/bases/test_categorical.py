"""CategoricalBasis and its kernel: levels, contrasts, and values that are no level."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from tests.bases.frozen import check_copies, check_features, check_gradients, implied_kernel
from tests.builders import by_lane

LEVELS = [10.0, 2.5, -3.0, 7.0]
X = np.array([[2.5], [7.0], [2.5], [10.0], [-3.0]])
SAME = X == X.T


def test_features_are_indicators(tmp_path):
    basis = sgp.CategoricalBasis(LEVELS)
    np.testing.assert_array_equal(basis.host_features(X), np.eye(4)[[1, 3, 1, 0, 2]])
    np.testing.assert_allclose(implied_kernel(basis, sgp.Categorical(1.5), X), 2.25 * SAME, rtol=1e-6)
    np.testing.assert_allclose(sgp.Categorical(1.5)(X), 2.25 * SAME, rtol=1e-6)
    check_features(basis, X)
    check_copies(basis, X, sgp.Categorical(0.7), tmp_path)
    check_gradients(lambda amplitude: basis.weight_prior(sgp.Categorical(amplitude)).log_scale, 0.7)


def test_values_that_sum_to_zero(tmp_path):
    basis = sgp.CategoricalBasis(LEVELS, sum_to_zero=True)
    assert basis.num_features == 3
    np.testing.assert_allclose(basis.host_features(np.array(LEVELS)[:, None]).sum(axis=0), 0, atol=1e-15)
    np.testing.assert_allclose(implied_kernel(basis, sgp.Categorical(2.0), X), 4 * (SAME - 0.25), atol=1e-6)
    check_features(basis, X)
    check_copies(basis, X, sgp.Categorical(0.7), tmp_path)


@pytest.mark.float64_only
@pytest.mark.parametrize("sum_to_zero", [False, True])
def test_levels_may_be_correlated_by_any_kernel(sum_to_zero):
    basis = sgp.CategoricalBasis(LEVELS, sum_to_zero=sum_to_zero)
    kernel = sgp.Matern32(4.0, 1.3) + sgp.Constant(0.5)
    prior, Phi = basis.weight_prior(kernel), basis.host_features(X)
    assert isinstance(prior, sgp.DensePrior)
    centre = np.eye(4) - sum_to_zero / 4
    at = [LEVELS.index(x) for x in X[:, 0]]
    of_levels = np.array([[kernel(np.array([[a]]), np.array([[b]])).item() for b in LEVELS] for a in LEVELS])
    expected = (centre @ of_levels @ centre)[np.ix_(at, at)]
    np.testing.assert_allclose(Phi @ np.asarray(prior.covariance) @ Phi.T, expected, atol=1e-13)


def test_levels_that_occur_in_data_and_their_names():
    basis = sgp.CategoricalBasis.from_data(np.array([[3], [1], [3], [2]]), labels=["one", "two", "three"])
    assert basis.levels.tolist() == [1, 2, 3] and basis.feature_names(["n"]) == ["n = one", "n = two", "n = three"]
    contrasts = sgp.CategoricalBasis(3, sum_to_zero=True)
    assert contrasts.feature_coords == {"feature": ["input 0, contrast 1", "input 0, contrast 2"]}
    assert sgp.CategoricalBasis(3).levels.tolist() == [0, 1, 2]
    assert sgp.CategoricalBasis([0.5, 7.0]).labels == ("0.5", "7")
    assert not basis.constant_features.any() and sgp.CategoricalBasis(1).constant_features.all()


# Unseen levels --------------------------------------------------------------------------------------------------------

NEW = np.array([[7.0], [4.0], [10.0]])


def test_unseen_levels_are_refused_by_row_and_value():
    basis = sgp.CategoricalBasis(LEVELS)
    message = r"row 1 of `X`, \[4.0\]. CategoricalBasis: 4 is none of its 4 levels, 10, 2.5, -3, 7"
    for call in (basis, basis.host_features):
        with pytest.raises(ValueError, match=message):
            call(NEW)
    assert np.isnan(jax.jit(basis.__call__)(NEW)).any(axis=1).tolist() == [False, True, False]


def test_rows_are_counted_over_all_chunks_and_columns_named():
    basis = sgp.stack(sgp.ConstantBasis(2), sgp.SelectedColumns(sgp.CategoricalBasis(3), [1], 2))
    rows = np.zeros((50, 2))
    rows[37, 1] = 9
    with pytest.raises(ValueError, match=r"row 37 of `X`, \[0.0, 9.0\]. Column 1: CategoricalBasis: 9 is none"):
        sgp.sufficient_statistics(basis, rows, np.ones(50), chunk_size=10)


@pytest.mark.parametrize("sum_to_zero", [False, True])
def test_unseen_levels_may_have_no_effect(sum_to_zero):
    basis = sgp.CategoricalBasis(LEVELS, unseen="zero", sum_to_zero=sum_to_zero)
    known = sgp.CategoricalBasis(LEVELS, sum_to_zero=sum_to_zero)
    np.testing.assert_array_equal(basis.host_features(NEW)[1], 0)
    np.testing.assert_array_equal(basis.host_features(NEW[::2]), known.host_features(NEW[::2]))
    assert basis.residual_variance(NEW).shape == (0, 3)


def test_unseen_levels_may_have_the_variance_of_the_prior():
    basis = sgp.CategoricalBasis(LEVELS, unseen="prior")
    np.testing.assert_array_equal(basis.residual_variance(NEW), [[0, 1, 0]])
    shared = basis.residual_amplitude(basis.weight_prior(sgp.Categorical(2.0)))
    np.testing.assert_allclose(shared, [4], rtol=1e-6)
    unequal = sgp.DiagonalPrior(jnp.arange(1.0, 5.0))
    np.testing.assert_array_equal(basis.residual_amplitude(unequal), [0])


REFUSED = {
    "equal": (lambda: sgp.CategoricalBasis([1.0, 1.0]), "must be distinct"),
    "equal in float32": (lambda: sgp.CategoricalBasis([16777216, 16777217]), r"distinct.*float32.*Encode levels"),
    "text": (lambda: sgp.CategoricalBasis(["a", "b"]), "real numbers"),
    "none": (lambda: sgp.CategoricalBasis([]), r"an array \(K,\)"),
    "zero": (lambda: sgp.CategoricalBasis(0), "an integer of 1 or more"),
    "nan": (lambda: sgp.CategoricalBasis([1.0, np.nan]), "finite numbers"),
    "unseen": (lambda: sgp.CategoricalBasis(2, unseen="ignore"), "`unseen` must be one of 'refuse', 'zero', 'prior'"),
    "labels": (lambda: sgp.CategoricalBasis(2, labels=["a"]), "one text for each of the 2 levels"),
    "numbers as labels": (lambda: sgp.CategoricalBasis(2, labels=[5, 6]), "the argument `levels`"),
    "one level": (lambda: sgp.CategoricalBasis(1, sum_to_zero=True), "two levels or more"),
    "contrasts": (lambda: sgp.CategoricalBasis(3, sum_to_zero=True, unseen="prior"), "no `unseen='prior'`"),
    "no kernel": (lambda: sgp.CategoricalBasis(3).weight_prior(2.0), r"needs a kernel; got float.*Categorical\("),
    "amplitude": (lambda: sgp.Categorical(-1.0), "`amplitude` must be positive"),
    "amplitudes": (lambda: sgp.Categorical(np.ones(2)), "`amplitude` must be a scalar"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_remedy(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        call()


def test_the_kernel_is_a_product_over_inputs(rng):
    Z = rng.integers(0, 2, (6, 2)).astype(np.float32)
    kernel = sgp.Categorical(1.5)
    first, second = kernel.along_inputs(2)
    np.testing.assert_allclose(kernel(Z), first(Z[:, :1]) * second(Z[:, 1:]), rtol=1e-6)
    np.testing.assert_allclose(kernel.diag(Z), np.diag(kernel(Z)), rtol=by_lane(1e-12, 1e-6))
    np.testing.assert_array_equal(kernel(Z, Z[:2]) > 0, (Z[:, None] == Z[None, :2]).all(axis=-1))
