"""stack: bases side by side, their priors, and bases of some columns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from tests.bases.frozen import check_copies, check_features, implied_kernel
from tests.builders import IdentityBasis, by_lane

SE, M32 = sgp.SquaredExponential, sgp.Matern32
GRID = np.linspace(0, 1, 6)


@pytest.fixture
def X(rng):
    return rng.random((25, 2))


@pytest.fixture
def fourier(key):
    return sgp.FourierBasis.sample(key, SE(0.5), 10, 2)


@pytest.fixture
def stacked(fourier):
    return sgp.stack(fourier, sgp.NystromBasis(np.random.default_rng(1).random((6, 2)), M32(1.0)))


KERNELS = (SE(0.6, amplitude=2.0), M32(1.0, amplitude=3.0))


@pytest.mark.slow
@pytest.mark.float64_only
def test_features_are_side_by_side(stacked, X, tmp_path):
    assert (stacked.num_features, stacked.input_dim) == (16, 2)
    parts = [basis.host_features(X) for basis in stacked.bases]
    np.testing.assert_array_equal(stacked.host_features(X), np.concatenate(parts, axis=1))
    check_features(stacked, X)
    check_copies(stacked, X, KERNELS, tmp_path)


def test_the_prior_is_that_of_the_sum(stacked, X):
    prior = stacked.weight_prior(KERNELS)
    assert isinstance(prior, sgp.DiagonalPrior) and prior.num_weights == 16
    expected = sum(implied_kernel(basis, k, X) for basis, k in zip(stacked.bases, KERNELS, strict=True))
    np.testing.assert_allclose(implied_kernel(stacked, KERNELS, X), expected, rtol=1e-6)


def test_fixed_effects_are_marginalised_with_the_process(fourier, X):
    y = 3 - 2 * X[:, 0] + np.sin(5 * X[:, 1])
    basis = sgp.stack(sgp.LinearBasis(input_dim=2), fourier)
    kernel = SE(0.6, amplitude=0.5)
    prior = basis.weight_prior((sgp.DiagonalPrior(10.0), kernel))
    fixed = np.concatenate([np.ones((25, 1)), X], axis=1)
    covariance = 100 * fixed @ fixed.T + implied_kernel(fourier, kernel, X) + 0.1**2 * np.eye(25)
    expected = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    value = sgp.log_evidence(sgp.sufficient_statistics(basis, X, y), prior, 0.1)
    np.testing.assert_allclose(value, expected, rtol=by_lane(1e-9, 1e-3))


@pytest.mark.slow
@pytest.mark.float64_only
def test_structured_priors_become_blocks(fourier, X):
    y = np.sin(5 * X[:, 0]) + X[:, 1]
    basis = sgp.stack(fourier, sgp.InterpolationBasis([GRID, GRID], "linear"))
    kernels = (SE(0.6, amplitude=0.5), M32(0.7))
    prior = basis.weight_prior(kernels)
    assert isinstance(prior, sgp.BlockPrior) and prior.num_weights == 46
    Phi = basis.host_features(X)
    covariance = Phi @ np.asarray(prior.covariance) @ Phi.T
    parts = zip(basis.bases, kernels, strict=True)
    blocks = [(b.host_features(X), np.asarray(b.weight_prior(k).covariance)) for b, k in parts]
    np.testing.assert_allclose(covariance, sum(F @ C @ F.T for F, C in blocks), atol=1e-12)
    covariance = covariance + 0.1**2 * np.eye(25)
    expected = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    value = sgp.log_evidence(sgp.sufficient_statistics(basis, X, y), prior, 0.1)
    np.testing.assert_allclose(value, expected, rtol=1e-8)


def test_hyperparameters_may_be_traced(stacked):
    def total(amplitudes):
        return jnp.sum(stacked.weight_prior((SE(0.6, amplitudes[0]), M32(1.0, amplitudes[1]))).log_scale)

    gradient = jax.jit(jax.grad(total))(jnp.array([2.0, 3.0]))
    np.testing.assert_allclose(gradient, [10 / 2, 6 / 3], rtol=1e-6)


@pytest.mark.float64_only
def test_domains_are_those_of_the_parts(X):
    basis = sgp.stack(IdentityBasis(2), sgp.SelectedColumns(sgp.InterpolationBasis(GRID), [1], input_dim=2))
    basis(X * [5.0, 1.0])
    with pytest.raises(ValueError, match="InterpolationBasis: 1 of the rows lie outside"):
        basis.host_features(X + np.array([0.0, 5.0]))


# Columns --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.float64_only
def test_an_additive_model(X, key, tmp_path):
    parts = [sgp.FourierBasis.sample(key, SE(0.4), 8, 1), sgp.FourierBasis.sample(key, M32(0.4), 6, 1)]
    basis = sgp.stack(*(sgp.SelectedColumns(part, [i], input_dim=2) for i, part in enumerate(parts)))
    kernels = (SE(0.5), M32(0.6, amplitude=2.0))
    expected = sum(implied_kernel(b, k, X[:, [i]]) for i, (b, k) in enumerate(zip(parts, kernels, strict=True)))
    np.testing.assert_allclose(implied_kernel(basis, kernels, X), expected, rtol=1e-6)
    check_features(basis, X)
    check_copies(basis, X, kernels, tmp_path)


def test_columns_come_in_the_order_given(X):
    basis = sgp.SelectedColumns(IdentityBasis(2), [2, 0], input_dim=3)
    Z = np.insert(X, 1, 9.0, axis=1)
    assert (basis.num_features, basis.input_dim) == (2, 3)
    np.testing.assert_array_equal(basis.host_features(Z), Z[:, [2, 0]])


@pytest.mark.parametrize(
    ("columns", "input_dim", "message"),
    [
        ([0, 3], 3, r"integers from 0 to 2; got \[0, 3\]"),
        ([-1, 0], 3, "integers from 0 to 2"),
        ([0.0, 1.0], 3, "integers from 0 to 2"),
        (1, 3, "a sequence of integers"),
        ([0], 3, "`columns` has 1 entries but the IdentityBasis was made for 2 inputs"),
        ([0, 1], 0, "`input_dim` must be an integer of 1 or more"),
    ],
)
def test_bad_columns_are_refused(columns, input_dim, message):
    with pytest.raises(ValueError, match=f"SelectedColumns: .*{message}"):
        sgp.SelectedColumns(IdentityBasis(2), columns, input_dim)


def test_columns_by_name(X):
    columns = sgp.InputColumns(["year", "day", "carrier"])
    basis = columns.select(IdentityBasis(2), "carrier", "year")
    assert (basis.columns.tolist(), basis.input_dim, columns.positions("day")) == ([2, 0], 3, [1])
    assert sgp.InputColumns(3).select(IdentityBasis(1), 1).columns.tolist() == [1]
    assert columns.select(sgp.LinearBasis(2), "carrier", "year").feature_names(columns.names) == [
        *("constant", "carrier", "year")
    ]
    Z = np.insert(X, 1, 9.0, axis=1)
    kernel = M32([1.0, 2.0], 1.5)
    np.testing.assert_array_equal(columns.of(kernel, "carrier", "year")(Z), kernel(Z[:, [2, 0]]))
    for bad, message in (
        (lambda: columns.select(IdentityBasis(1), "month"), r"no column 'month' among \['year', 'day', 'carrier'\]"),
        (lambda: sgp.InputColumns("year"), "must be the distinct names of all columns of X, or their number"),
        (lambda: sgp.InputColumns(["year", "year"]), "distinct names"),
        (lambda: sgp.InputColumns(0), "an integer of 1 or more"),
    ):
        with pytest.raises(ValueError, match=f"InputColumns: .*{message}"):
            bad()


def test_kernels_of_columns(X):
    Z = np.insert(X, 1, 9.0, axis=1)
    kernel = sgp.OfColumns(M32([1.0, 2.0], 1.5), [2, 0])
    np.testing.assert_array_equal(kernel(Z, Z[:3]), kernel.kernel(X[:, ::-1], X[:3, ::-1]))
    np.testing.assert_array_equal(kernel.diag(Z), kernel.kernel.diag(X))
    basis = sgp.SelectedColumns(sgp.NystromBasis(X[:5, ::-1], M32([1.0, 2.0])), [2, 0], 3)
    np.testing.assert_array_equal(basis.weight_prior(kernel).scale, basis.weight_prior(kernel.kernel).scale)
    for bad, message in (
        (lambda: sgp.OfColumns(2.0, [0]), "`kernel` must be a kernel; got float"),
        (lambda: sgp.OfColumns(SE(1.0), [-1]), "integers of 0 or more"),
        (lambda: sgp.OfColumns(SE(1.0), 1), "a sequence of integers"),
        (lambda: kernel(X), r"sees columns \[2, 0\], but `X` has 2"),
        (lambda: basis.weight_prior(sgp.OfColumns(SE(1.0), [0, 2])), r"sees columns \[0, 2\], the basis \[2, 0\]"),
    ):
        with pytest.raises(ValueError, match=message):
            bad()


# Priors ---------------------------------------------------------------------------------------------------------------


def test_diagonal_priors_are_concatenated():
    prior = sgp.stack(sgp.DiagonalPrior([1.0, 2.0]), sgp.DiagonalPrior([3.0], mean=[5.0]))
    np.testing.assert_allclose(prior.scale, [1, 2, 3], rtol=1e-6)
    np.testing.assert_array_equal(prior.mean, [0, 0, 5])
    assert sgp.stack(sgp.DiagonalPrior([1.0]), sgp.DiagonalPrior([3.0])).mean is None


def test_batches_of_diagonal_priors_broadcast():
    prior = sgp.stack(sgp.DiagonalPrior(np.ones((4, 2))), sgp.DiagonalPrior([3.0], mean=np.zeros((4, 1))))
    assert (prior.batch_shape, prior.num_weights, prior.mean.shape) == ((4,), 3, (4, 3))
    np.testing.assert_allclose(prior.scale[2], [1, 1, 3], rtol=1e-6)


def test_logarithms_are_not_lost():
    prior = sgp.stack(sgp.DiagonalPrior.from_log_scale(jnp.array([-1e4])), sgp.DiagonalPrior([1.0]))
    np.testing.assert_array_equal(prior.log_scale, [-1e4, 0])


def test_other_priors_become_blocks():
    prior = sgp.stack(sgp.DiagonalPrior([1.0, 2.0]), sgp.DensePrior([[2.0, 1.0], [1.0, 2.0]]))
    assert isinstance(prior, sgp.BlockPrior)
    expected = [[1, 0, 0, 0], [0, 4, 0, 0], [0, 0, 2, 1], [0, 0, 1, 2]]
    np.testing.assert_allclose(prior.covariance, expected, rtol=1e-6)


def test_priors_of_unknown_size_get_the_size_of_the_basis(stacked):
    for scale in (10.0, [10.0]):
        prior = stacked.weight_prior((KERNELS[0], sgp.DiagonalPrior(scale)))
        np.testing.assert_allclose(prior.scale[10:], 10, rtol=1e-6)
    with pytest.raises(ValueError, match=r"prior 1 has one scale for an unknown number.*jnp.full\(m, scale\)"):
        sgp.stack(sgp.DiagonalPrior([1.0]), sgp.DiagonalPrior(1.0))


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        (KERNELS[0], "a tuple of 2 kernels or priors.*got SquaredExponential"),
        (KERNELS[:1], "a tuple of 2 kernels or priors.*got 1"),
        ((KERNELS[0], sgp.DiagonalPrior(np.ones(5))), "the prior has 5 weights, but 6 are wanted"),
        ((KERNELS[0], SE(1.0)), "NystromBasis was made for the kernel Matern32"),
    ],
)
def test_bad_kernels_are_refused(stacked, kernels, message):
    with pytest.raises(ValueError, match=message):
        stacked.weight_prior(kernels)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((), "got nothing"),
        ((1.0,), "got float"),
        (
            (IdentityBasis(2), sgp.DiagonalPrior([1.0])),
            "stack takes bases, or priors.*got IdentityBasis, DiagonalPrior",
        ),
        ((IdentityBasis(2), IdentityBasis(3)), "same inputs; got 2, 3 columns.*SelectedColumns"),
    ],
)
def test_bad_parts_are_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        sgp.stack(*parts)


def test_which_features_are_constants(rng):
    X = rng.random((30, 2))
    centred = sgp.CentredBasis(X[:3], sgp.Matern32(0.5))
    season = sgp.SelectedColumns(sgp.PeriodicBasis(0.3, 2), [1], 2)
    for basis in (
        *(sgp.LinearBasis(2), sgp.LinearBasis(2, bias=False), sgp.PolynomialBasis(2, 2), centred, season),
        sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.5), 4, 2),
        sgp.stack(sgp.LinearBasis(2, bias=False), season, centred, sgp.PolynomialBasis(2, 1)),
    ):
        constant = basis.constant_features
        assert constant.dtype == bool
        np.testing.assert_array_equal(constant, np.ptp(basis.host_features(X), axis=0) == 0)
    rotated = sgp.sufficient_statistics(sgp.LinearBasis(2), X, X[:, 0]).rotate().basis
    assert rotated.constant_features.tolist() == [False] * 3


@pytest.mark.float64_only
def test_parts_may_have_names(fourier, X, tmp_path):
    named, plain = (
        sgp.stack(smooth=fourier, line=sgp.LinearBasis(X.shape[1])),
        sgp.stack(fourier, sgp.LinearBasis(X.shape[1])),
    )
    check_features(named, X)
    np.testing.assert_array_equal(named.host_features(X), plain.host_features(X))
    assert named.part_names == ("smooth", "line") and plain.part_names == ("part 0", "part 1")
    assert named.name_of(fourier.num_features + 1) == "feature 1 of LinearBasis ('line' of the stack)"
    stats = sgp.sufficient_statistics(named, X, X[:, 0])
    stats.save(tmp_path / "named.npz")
    assert sgp.SufficientStatistics.load(tmp_path / "named.npz").basis.part_names == ("smooth", "line")
    with pytest.raises(ValueError, match="with names all are bases, and each has one"):
        sgp.stack(fourier, line=sgp.LinearBasis(X.shape[1]))
    with pytest.raises(ValueError, match="must take the same inputs"):
        sgp.stack(smooth=fourier, line=sgp.LinearBasis(X.shape[1] + 1))
