"""ConstantBasis and the Constant kernel: one level."""

from __future__ import annotations

import numpy as np
import pytest

import ppl_sgp as sgp
from tests.bases.frozen import check_copies, check_features, implied_kernel


def test_the_feature_is_one_and_the_kernel_exact(rng, tmp_path):
    basis, X = sgp.ConstantBasis(2), rng.standard_normal((5, 2))
    np.testing.assert_array_equal(basis.host_features(X), np.ones((5, 1)))
    np.testing.assert_allclose(implied_kernel(basis, sgp.Constant(1.5), X), np.full((5, 5), 2.25), rtol=1e-6)
    check_features(basis, X)
    check_copies(basis, X, sgp.Constant(0.5), tmp_path)
    assert basis.constant_features.all()


def test_the_kernel_adds_a_level(rng):
    X, Z = rng.standard_normal((4, 2)), rng.standard_normal((3, 2))
    kernel = sgp.Matern32(0.7, 2.0)
    np.testing.assert_allclose((kernel + sgp.Constant(3.0))(X, Z), np.asarray(kernel(X, Z)) + 9, rtol=1e-6)
    np.testing.assert_allclose(sgp.Constant(3.0).diag(X), 9 * np.ones(4), rtol=1e-6)
    product = sgp.Constant(3.0).along_inputs(2)
    np.testing.assert_allclose(product[0](X[:, :1]) * product[1](X[:, 1:]), sgp.Constant(3.0)(X), rtol=1e-6)


@pytest.mark.parametrize("amplitude", [0.0, -1.0, np.nan, [1.0, 2.0]])
def test_amplitudes_that_are_no_positive_number(amplitude):
    with pytest.raises(ValueError, match="amplitude"):
        sgp.Constant(amplitude)


def test_another_kernel():
    with pytest.raises(ValueError, match="Constant kernel"):
        sgp.ConstantBasis(1).weight_prior(sgp.Matern32(1.0))
    with pytest.raises(ValueError, match="input_dim"):
        sgp.ConstantBasis(0)
