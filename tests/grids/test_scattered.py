"""Scattered rows by conjugate gradients against a Cholesky factor."""

import numpy as np
import pytest

import ppl_sgp as sgp

pytestmark = pytest.mark.float64_only


@pytest.mark.slow
def test_grid_eigenfunctions_precondition_scattered_rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 2))
    y = np.sin(5 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.03 * rng.normal(size=300)
    kernel, noise = sgp.SquaredExponential(np.array([0.3, 0.4]), 1.5), 0.03
    weights = rng.uniform(0.5, 2.0, 300)
    rows = sgp.rows(X, y, weights)
    expected = np.linalg.solve(np.asarray(kernel(X)) + np.diag(noise**2 / weights), y)
    basis = sgp.GridEigenBasis.from_kernel(kernel, X, 100, 14)
    found, plain = sgp.solve_rows(rows, kernel, noise, basis), sgp.solve_rows(rows, kernel, noise)
    for solution in (found, plain):
        assert solution.converged
        np.testing.assert_allclose(solution.weights, expected, atol=1e-6 * np.abs(expected).max())
        np.testing.assert_allclose(solution.mean(X[:5]), np.asarray(kernel(X[:5], X)) @ expected, atol=1e-6)
    assert found.iterations < 15 and plain.iterations > 5 * found.iterations
    with pytest.warns(UserWarning, match=r"solve_rows: conjugate gradients ended after 2.*`basis`"):
        sgp.solve_rows(rows, kernel, noise, max_iterations=2)
    with pytest.raises(ValueError, match="of one output"):
        sgp.solve_rows(sgp.rows(X, np.c_[y, y]), kernel, noise)
