"""The variance that finite bases lose, against dense kernels; and the amplitude that a prior gives it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from tests.builders import IdentityBasis, by_lane

RTOL = by_lane(1e-10, 1e-5)
X = np.random.default_rng(0).uniform(-0.5, 1.5, (12, 2))
U = np.random.default_rng(1).random((7, 2))
KERNEL = sgp.Matern32([0.6, 1.1])
NYSTROM = sgp.NystromBasis(U, KERNEL)
GRID = sgp.GridEigenBasis.from_kernel(sgp.SquaredExponential([0.3, 0.4]), ([0.0, 0.0], [1.0, 1.0]), 9, points_per_dim=3)
FOURIER = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.5), 4, 2)


def lane(array):
    return jnp.asarray(array, jnp.result_type(float))


def matern32(A, B):
    r = 3**0.5 * np.linalg.norm((A[:, None] - B[None]) / [0.6, 1.1], axis=-1)
    return (1 + r) * np.exp(-r)


def squared_exponential(A, B):
    return np.exp(-0.5 * np.sum(((A[:, None] - B[None]) / [0.3, 0.4]) ** 2, axis=-1))


def lost(kernel, points):
    """The diagonal of ``K(X, X) − K(X, U) K(U, U)⁻¹ K(U, X)``."""
    cross = kernel(X, points)
    return np.diag(kernel(X, X)) - np.sum(cross * np.linalg.solve(kernel(points, points), cross.T).T, axis=1)


def fitted(basis):
    return sgp.sufficient_statistics(basis, X, np.sin(3 * X[:, 0]))


@pytest.mark.filterwarnings("ignore:.*rows lie")
def test_is_what_the_features_lack():
    corners = np.stack(np.meshgrid(*[np.linspace(0, 1, 3)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    np.testing.assert_allclose(NYSTROM.residual_variance(X), lost(matern32, U)[None], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(GRID.residual_variance(X), lost(squared_exponential, corners)[None], rtol=1e-9)
    at_points = NYSTROM.residual_variance(U)
    assert at_points.dtype == np.float64 and (at_points >= 0).all() and (at_points < 1e-12).all()
    growing = sgp.Linear(weight_scale=2.0, bias=1.0)
    assert sgp.NystromBasis(U, growing).residual_variance(X).max() < 1e-10  # of a kernel of rank three nothing is lost


def test_parts_are_kept_apart():
    column = sgp.SelectedColumns(sgp.NystromBasis(U[:, :1], sgp.Matern12(0.5)), [1], 2)
    stacked = sgp.stack(NYSTROM, sgp.LinearBasis(2), column, FOURIER)
    residual = stacked.residual_variance(X)
    np.testing.assert_array_equal(residual[:1], NYSTROM.residual_variance(X))
    np.testing.assert_array_equal(residual[1:], column.basis.residual_variance(X[:, 1:]))
    kernels = (sgp.Matern32([0.6, 1.1], 1.7), sgp.DiagonalPrior(10.0), sgp.Matern12(0.5, 0.3), sgp.Matern32(0.4))
    prior = stacked.weight_prior(kernels)
    np.testing.assert_allclose(stacked.residual_amplitude(prior), [1.7**2, 0.3**2], rtol=RTOL)
    rotated = fitted(stacked).rotate(prior).basis
    np.testing.assert_array_equal(rotated.residual_variance(X), residual)
    np.testing.assert_allclose(rotated.residual_amplitude(sgp.DiagonalPrior(2.0)), [3.4**2, 0.6**2], rtol=RTOL)


def test_amplitudes_of_rotated_bases():
    stats = fitted(NYSTROM)
    prior = NYSTROM.weight_prior(sgp.Matern32([0.6, 1.1], 1.7))
    np.testing.assert_allclose(NYSTROM.residual_amplitude(prior), [1.7**2], rtol=RTOL)
    plain, typical = stats.rotate().basis, stats.rotate(prior).basis
    np.testing.assert_allclose(plain.residual_amplitude(sgp.DiagonalPrior(0.5)), [0.25], rtol=RTOL)
    np.testing.assert_allclose(typical.residual_amplitude(sgp.DiagonalPrior(0.5)), [0.25 * 1.7**2], rtol=RTOL)
    unequal = sgp.DiagonalPrior(np.linspace(1, 2, 7))
    correlated = sgp.DensePrior(lane(np.eye(7)))
    reshaped = stats.rotate(unequal).basis
    for basis, own in (
        (NYSTROM, unequal),
        (NYSTROM, correlated),
        (plain, unequal),
        (typical, correlated),
        (reshaped, sgp.DiagonalPrior(1.0)),
        (stats.rotate(orthonormal=True).basis, sgp.DiagonalPrior(1.0)),
    ):
        np.testing.assert_array_equal(basis.residual_amplitude(own), [0.0])


def test_a_block_of_correlated_weights_hides_no_other():
    grid = sgp.SelectedColumns(sgp.InterpolationBasis(np.linspace(-1, 2, 4)), [0], 2)
    stacked = sgp.stack(grid, NYSTROM)
    prior = stacked.weight_prior((sgp.Matern32(0.5), sgp.Matern32([0.6, 1.1], 3.0)))
    np.testing.assert_allclose(stacked.residual_amplitude(prior), [9.0], rtol=RTOL)
    # Of two correlated parts the amplitudes are unknown.
    dense = sgp.DensePrior(lane(np.eye(11)))
    np.testing.assert_array_equal(stacked.residual_amplitude(dense), [0.0])


@pytest.mark.slow
def test_batches_jit_and_gradients():
    amplitude = lane([0.5, 1.0, 2.0])

    def of_batch(basis, amplitude):
        return basis.residual_amplitude(sgp.DiagonalPrior(amplitude[:, None] * jnp.ones((1, 7), amplitude.dtype)))

    for basis in (NYSTROM, fitted(NYSTROM).rotate().basis):
        np.testing.assert_allclose(jax.jit(of_batch)(basis, amplitude), amplitude[:, None] ** 2, rtol=RTOL)
        slope = jax.grad(lambda a, basis=basis: of_batch(basis, a).sum())(amplitude)
        np.testing.assert_allclose(slope, 2 * amplitude, rtol=RTOL)
    stacked = sgp.stack(NYSTROM, NYSTROM)
    batch = sgp.DiagonalPrior(jnp.ones((2, 3, 14)) * lane([1.0, 2.0, 3.0])[None, :, None])
    np.testing.assert_allclose(stacked.residual_amplitude(batch), np.ones((2, 3, 2)) * [[1.0], [4.0], [9.0]], rtol=RTOL)
    unknown = jax.grad(lambda s: NYSTROM.residual_amplitude(sgp.DiagonalPrior(s)).sum())(lane(np.linspace(1, 2, 7)))
    np.testing.assert_array_equal(unknown, 0)


@pytest.mark.slow
def test_bases_that_know_nothing_have_no_rows():
    centred = sgp.CentredBasis(U, KERNEL)
    for basis in (FOURIER, centred, sgp.LaplaceBasis.from_data(X, 2), sgp.LinearBasis(2), IdentityBasis(2)):
        prior = sgp.DiagonalPrior(jnp.ones((5, basis.num_features)))
        assert basis.residual_variance(X).shape == (0, len(X))
        assert basis.residual_amplitude(prior).shape == (5, 0)
        assert fitted(basis).rotate().basis.residual_amplitude(prior).shape == (5, 0)
