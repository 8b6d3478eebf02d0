"""Kernels against loops."""

from __future__ import annotations

import numpy as np

from ppl_sgp.kernels import (
    RationalQuadratic,
    SquaredExponential,
)
from tests.kernels.cases import ALL, DTYPE, FAMILIES, RTOL, correlation, everything, families, points, value


@everything
def test_values_match_loops(name):
    kernel, X, X2 = ALL[name](), points(4), points(3, seed=1)
    want = [[value(kernel, x, x2) for x2 in X2] for x in X]
    np.testing.assert_allclose(kernel(X, X2), want, rtol=RTOL)
    np.testing.assert_allclose(kernel(X), [[value(kernel, x, x2) for x2 in X] for x in X], rtol=RTOL)
    np.testing.assert_allclose(kernel.diag(X), [value(kernel, x, x) for x in X], rtol=RTOL)
    np.testing.assert_allclose(kernel.variance, value(kernel, X[0], X[0]), rtol=RTOL)


@families
def test_ard_values_match_loops(family):
    kernel, X = FAMILIES[family](np.array([0.5, 2.0, 5.0], DTYPE), 1.5), points(4, 3)
    np.testing.assert_allclose(kernel(X), [[value(kernel, x, x2) for x2 in X] for x in X], rtol=RTOL)
    assert FAMILIES[family]([0.5, 2.0, 5.0])(X).shape == (4, 4)


@families
def test_near_inputs_far_from_the_origin_do_not_cancel(family):
    # 2**-10 is exact beside 1000 in float32 (spacing 2**-14); an expanded square would lose it
    kernel, X = FAMILIES[family](2.0**-10), np.array([[1000.0], [1000.0 + 2.0**-10]], DTYPE)
    np.testing.assert_allclose(kernel(X)[0, 1], correlation(kernel, 1.0), rtol=RTOL)


def test_rational_quadratic_tends_to_squared_exponential():
    X = points(4)
    # the log correlations differ by about r**4 / (8 alpha)
    np.testing.assert_allclose(RationalQuadratic(1.0, 1.0, 1e6)(X), SquaredExponential(1.0)(X), atol=2e-5)
