"""What may not enter the sums: each is refused by name, with the remedy."""

from __future__ import annotations

import numpy as np
import pytest

import ppl_sgp as sgp
from tests.builders import IdentityBasis

X, Y, W = np.arange(8.0).reshape(4, 2), np.arange(4.0), np.ones(4)


def changed(array, index, value):
    array = np.array(array)
    array[index] = value
    return array


BAD = {
    "NaN in X": ((changed(X, (2, 1), np.nan), Y), "`X` has 1 of 4 rows.*row 2.*drop or impute"),
    "inf in X": ((changed(X, 0, np.inf), Y), "`X` has 1 of 4 rows.*row 0.*drop or impute"),
    "NaN in y": ((X, changed(Y, [1, 3], np.nan)), "`y` has 2 of 4 rows.*row 1.*drop or impute"),
    "inf in y": ((X, changed(Y, 3, -np.inf)), "`y` has 1 of 4 rows.*row 3.*drop or impute"),
    "NaN in y, two outputs": ((X, changed(X, (3, 0), np.nan)), "`y` has 1 of 4 rows.*row 3"),
    "1-D X": ((Y, Y), r"`X` must have shape \(n, 2\); got \(4,\).*X\[:, None\]"),
    "0-D X": ((np.array(1.0), Y), r"`X` must have shape \(n, 2\); got \(\)"),
    "3-D X": ((X[None], Y), r"`X` must have shape \(n, 2\); got \(1, 4, 2\)"),
    "wrong d": ((np.ones((4, 3)), Y), r"`X` must have shape \(n, 2\); got \(4, 3\).*made for 2 inputs.*same columns"),
    "lengths": ((X, Y[:3]), "`X` has 4 rows but `y` has 3.*must match"),
    "no rows": ((X[:0], Y[:0]), "`X` has no rows.*skip empty"),
    "Boolean y": ((X, Y > 1), r"`y` is Boolean.*compress_likelihood.*y.astype\(float\)"),
    "list of Booleans": ((X, [True, False, True, True]), "`y` is Boolean"),
    "object X": ((X.astype(object), Y), "`X` must be real numbers; got dtype object.*Encode"),
    "object y": ((X, [1.0, None, 2.0, 3.0]), "`y` must be real numbers; got dtype object.*missing"),
    "text X": ((X.astype(str), Y), "`X` must be real numbers; got dtype <U.*Encode categories"),
    "text y": ((X, ["a", "b", "a", "b"]), "`y` must be real numbers; got dtype <U1"),
    "dates": ((X, Y.astype("datetime64[D]")), "`y` must be real numbers; got dtype datetime64"),
    "masked X": ((np.ma.masked_equal(X, 3.0), Y), "`X` has masked entries; drop or impute"),
    "masked y": ((X, np.ma.masked_equal(Y, 3.0)), "`y` has masked entries; drop or impute"),
    "complex X": ((X + 0j, Y), "`X` must be real numbers; got dtype complex128"),
    "complex y": ((X, Y + 1j), "`y` must be real numbers; got dtype complex128"),
    "0-D y": ((X, 1.0), r"`y` must have shape \(n,\) or \(n, q\).*got \(\)"),
    "3-D y": ((X, np.ones((4, 2, 1))), r"`y` must have shape \(n,\) or \(n, q\).*got \(4, 2, 1\)"),
    "no outputs": ((X, np.ones((4, 0))), r"`y` must have shape \(n,\) or \(n, q\) with q ≥ 1; got \(4, 0\)"),
    "no y": ((X, None), "`y` is missing.*iterable"),
}
BAD_WEIGHTS = {
    "zero": (changed(W, 2, 0.0), "`row_weights`.*must be positive.*row 2 is not.*out"),
    "negative": (changed(W, 1, -1.0), "`row_weights`.*must be positive.*row 1 is not"),
    "NaN": (changed(W, 3, np.nan), "`row_weights`.*positive and finite.*row 3 is not"),
    "inf": (changed(W, 0, np.inf), "`row_weights`.*positive and finite.*row 0 is not"),
    "length": (W[:3], r"`row_weights` must have shape \(4,\); got \(3,\)"),
    "matrix": (W[:, None], r"`row_weights` must have shape \(4,\); got \(4, 1\)"),
    "scalar": (2.0, r"`row_weights` must have shape \(4,\); got \(\)"),
    "text": (["a"] * 4, "`row_weights` must be real numbers"),
    "masked": (np.ma.masked_array(W, W > 0), "`row_weights` has masked entries"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_are_refused(name):
    arguments, message = BAD[name]
    with pytest.raises(ValueError, match=f"(?s)^sufficient_statistics: .*{message}"):
        sgp.sufficient_statistics(IdentityBasis(2), *arguments)


@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_bad_row_weights_are_refused(name):
    weights, message = BAD_WEIGHTS[name]
    with pytest.raises(ValueError, match=f"(?s)^sufficient_statistics: {message}"):
        sgp.sufficient_statistics(IdentityBasis(2), X, Y, row_weights=weights)


def test_ragged_rows_are_refused():
    with pytest.raises(ValueError, match="X"):
        sgp.sufficient_statistics(IdentityBasis(2), [[1.0, 2.0], [3.0]], [1.0, 2.0])


@pytest.mark.parametrize("arguments", [(X, IdentityBasis(2), Y), (X, Y), (IdentityBasis, X, Y)])
def test_arguments_in_the_wrong_order_are_refused(arguments):
    with pytest.raises(ValueError, match=r"(?s)`basis` must be a Basis.*got (ndarray|ABCMeta).*\(basis, X, y\)"):
        sgp.sufficient_statistics(*arguments)


@pytest.mark.parametrize("chunk_size", [0, -5, 2.5])
def test_chunk_size_must_be_a_positive_integer(chunk_size):
    with pytest.raises(ValueError, match=f"`chunk_size` must be .*; got {chunk_size}"):
        sgp.sufficient_statistics(IdentityBasis(2), X, Y, chunk_size)


def test_nothing_is_kept_of_a_refused_update():
    stats = sgp.sufficient_statistics(IdentityBasis(2), X, Y)
    with pytest.raises(ValueError, match="`y` has 1 of 4 rows"):
        stats.update(X, changed(Y, 0, np.nan))
    with pytest.raises(ValueError, match="same outputs"):
        stats.update(X, X)
    assert stats.num_rows == 4
    np.testing.assert_allclose(stats.moments.gram, X.T @ X, rtol=1e-14)
