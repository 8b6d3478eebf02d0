"""LaplaceBasis against closed forms, NumPyro's eigenfunctions and the kernels that it stands for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.contrib.hsgp.laplacian import eigenfunctions
from numpyro.contrib.hsgp.spectral_densities import (
    diag_spectral_density_matern,
    diag_spectral_density_squared_exponential,
)

import ppl_sgp as sgp
from tests.bases.frozen import check_copies, check_features, check_gradients, implied_kernel
from tests.builders import by_lane

SE, M32, M52 = sgp.SquaredExponential, sgp.Matern32, sgp.Matern52
BOXES = {1: ([6], [2.0], [1.5]), 2: ([4, 3], [2.0, -1.0], [1.5, 3.0])}


@pytest.fixture(params=BOXES)
def basis(request):
    return sgp.LaplaceBasis(*BOXES[request.param])


def inside(basis, rng, n=9):
    """Rows within nine tenths of the box."""
    return basis.centre + 0.9 * basis.boundary * rng.uniform(-1, 1, (n, basis.input_dim))


# Features and priors --------------------------------------------------------------------------------------------------


@pytest.mark.float64_only
def test_features_are_products_of_sines(basis, rng):
    X = inside(basis, rng)
    columns = []
    for order in np.ndindex(basis.num_functions):
        column = np.ones(len(X))
        for j, x, centre, L in zip(order, X.T, basis.centre, basis.boundary, strict=True):
            column *= np.sin((j + 1) * np.pi * (x - centre + L) / (2 * L)) / np.sqrt(L)
        columns.append(column)
    np.testing.assert_allclose(basis.host_features(X), np.stack(columns, axis=1), atol=1e-13)
    check_features(basis, X)


def test_functions_are_orthonormal_on_the_box_and_vanish_at_its_walls():
    basis = sgp.LaplaceBasis([5], [2.0], [1.5])
    x = np.linspace(0.5, 3.5, 401)[:, None]
    Phi = basis.host_features(x)
    np.testing.assert_allclose(Phi.T @ Phi * (3 / 400), np.eye(5), atol=1e-12)
    np.testing.assert_allclose(Phi[[0, -1]], 0, atol=1e-12)


@pytest.mark.relaxed_promotion
@pytest.mark.float64_only
def test_features_and_variances_are_those_of_numpyro(basis, rng):
    X, d = inside(basis, rng), basis.input_dim
    numbers, ell = list(basis.num_functions), list(basis.boundary)
    theirs = eigenfunctions(jnp.asarray(X - basis.centre), ell, numbers)
    np.testing.assert_allclose(basis.host_features(X), theirs, atol=by_lane(1e-12, 1e-5))
    length = jnp.asarray([0.6, 1.5][:d])
    density = diag_spectral_density_squared_exponential(0.7**2, length, ell, numbers, d)
    np.testing.assert_allclose(basis.weight_prior(SE(length, 0.7)).variance, density, rtol=by_lane(1e-11, 1e-4))
    density = diag_spectral_density_matern(1.5, 0.7**2, 0.6, ell, numbers, d)
    np.testing.assert_allclose(basis.weight_prior(M32(0.6, 0.7)).variance, density, rtol=by_lane(1e-11, 1e-4))


KERNELS = {
    "SE": SE(0.4, 1.3),
    "Matern32": M32(0.4, 1.3),
    "Matern52": M52(0.4),
    "RQ": sgp.RationalQuadratic(0.4, alpha=3.0),
    "sum": SE(0.4) + M52(0.8, 0.5),
    "product": SE(0.6) * M52(0.8),
}
# Of the variance, with a box so wide that the error of 40 functions is their missing tail; it falls as m^(-2ν).
ERROR = {"SE": 1e-5, "Matern32": 0.02, "Matern52": 0.01, "RQ": 0.01, "sum": 0.01, "product": 0.01}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.float64_only
def test_the_kernel_is_reached_with_many_functions(name):
    kernel, X = KERNELS[name], np.linspace(-1, 1, 31)[:, None]
    exact = np.asarray(kernel(X), np.float64)
    errors = [
        np.abs(implied_kernel(sgp.LaplaceBasis.from_data(X, m, 3.0), kernel, X) - exact).max() for m in (10, 20, 40)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < ERROR[name] * float(kernel.variance)


def test_the_kernel_of_two_inputs_with_a_number_for_each():
    # One input varies over many lengthscales, the other over few: 30 × 8 functions where 30 × 30 are not needed.
    X = np.stack(np.meshgrid(np.linspace(0, 5, 6), np.linspace(-1, 1, 4)), axis=-1).reshape(-1, 2)
    kernel = SE(np.array([0.8, 1.0]), 1.5)
    basis = sgp.LaplaceBasis.from_data(X, (30, 12), (1.8, 4.0))
    assert basis.num_features == 360 and basis.num_functions == (30, 12)
    np.testing.assert_allclose(implied_kernel(basis, kernel, X), np.asarray(kernel(X)), atol=1e-3)


def test_priors_under_transformations(basis):
    check_gradients(lambda length, amplitude: basis.weight_prior(M52(length, amplitude)).log_scale, 0.4, 1.3)
    lengths = jnp.asarray([0.3, 0.8])
    batch = jax.jit(jax.vmap(lambda length: basis.weight_prior(SE(length)).log_scale))(lengths)
    single = jax.jit(lambda basis, kernel: basis.weight_prior(kernel).log_scale)(basis, SE(lengths[1]))
    np.testing.assert_allclose(batch[1], single, rtol=by_lane(1e-12, 1e-5))
    assert basis.weight_prior(SE(jnp.float32(0.3))).log_scale.dtype == jnp.float32


def test_copies_are_equal(basis, rng, tmp_path):
    check_copies(basis, inside(basis, rng), M52(0.5), tmp_path)


# The box --------------------------------------------------------------------------------------------------------------


def test_new_inputs_never_move_the_box(rng):
    # Trained on [-5, 5], asked at [-5, 10], or at three points: features of a row are the row's.
    train = np.linspace(-5, 5, 101)[:, None]
    basis = sgp.LaplaceBasis.from_data(train, 20, boundary_factor=2.5)
    np.testing.assert_array_equal((basis.centre, basis.boundary), ([0.0], [12.5]))
    everything = basis.host_features(np.linspace(-5, 10, 151)[:, None])
    np.testing.assert_allclose(everything[:101], basis.host_features(train), atol=1e-13)
    np.testing.assert_allclose(basis.host_features(train[[3, 50, 97]]), everything[[3, 50, 97]], atol=1e-13)
    stats = sgp.sufficient_statistics(basis, train, np.sin(train[:, 0]))
    np.testing.assert_array_equal(stats.basis.centre, basis.centre)


def test_inputs_far_from_the_origin(rng):
    X = rng.uniform(-1, 1, (50, 1))
    near, far = (sgp.LaplaceBasis.from_data(Z, 20) for Z in (X, X + 2000))
    np.testing.assert_allclose(far.host_features(X + 2000), near.host_features(X), atol=1e-10)


def test_rows_outside_the_box_are_reported():
    basis = sgp.LaplaceBasis([5, 5], [0.0, 0.0], [1.0, 1.0])
    X = np.array([[0.0, 0.0], [0.5, 1.5], [-1.5, 0.0], [1.0, 1.0]])
    message = r"LaplaceBasis: 0.5 of the rows lie outside the box \(centre .*np.concatenate\(\[X, X_new\]\)"
    for call in (basis.host_features, basis, lambda X: basis(jnp.asarray(X))):
        with pytest.warns(UserWarning, match=message) as caught:
            call(X)
        assert caught[0].filename == __file__
    jax.jit(basis.__call__)(jnp.asarray(X))  # cannot be read, so not reported
    jax.jit(lambda basis: basis(np.zeros((1, 2))))(basis)


def test_from_data_takes_the_range():
    X = np.array([[1990.0, -1.0], [2020.0, 3.0], [2000.0, 0.0]])
    basis = sgp.LaplaceBasis.from_data(X, [3, 4], boundary_factor=[2.0, 1.25])
    np.testing.assert_allclose(basis.centre, [2005.0, 1.0])
    np.testing.assert_allclose(basis.boundary, [30.0, 2.5])
    assert sgp.LaplaceBasis.from_data(X, 3).num_functions == (3, 3)


# Choosing a size ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel, a, b", [(SE, 1.75, 3.2), (M32, 3.42, 4.5), (M52, 2.65, 4.1)])
def test_suggestions_follow_the_published_rules(kernel, a, b):
    X = np.array([[0.0, 0.0], [10.0, 100.0]])  # half-ranges 5 and 50
    numbers, factors = sgp.LaplaceBasis.suggest(X, [[0.5, 2.0], [4.0, 5.0]], kernel)
    assert factors == pytest.approx((b * 0.8, 1.2))
    assert numbers == (np.ceil(a * b * 0.8 / 0.1), np.ceil(a * 1.2 / 0.04))
    assert sgp.LaplaceBasis.suggest(X[:, :1], [0.5, 4.0], kernel) == (numbers[:1], factors[:1])


@pytest.mark.parametrize("kernel", [SE, M32, M52])
@pytest.mark.parametrize("length", [0.1, 0.5, 2.0])
@pytest.mark.float64_only
def test_suggestions_serve_their_lengthscales(kernel, length):
    X = np.linspace(-1, 1, 101)[:, None]
    basis = sgp.LaplaceBasis.from_data(X, *sgp.LaplaceBasis.suggest(X, [length], kernel))
    middle = X[[50]]
    error = implied_kernel(basis, kernel(length), middle, X) - np.asarray(kernel(length)(middle, X))
    assert np.abs(error).max() < 0.013
    # At the ends the variance lacks that of the mirror image behind the wall.
    L = float(basis.boundary[0])
    missing = float(kernel(length)(np.zeros((1, 1)), np.full((1, 1), 2 * (L - 1)))[0, 0])
    assert implied_kernel(basis, kernel(length), X[[0]])[0, 0] == pytest.approx(1 - missing, abs=0.02)


# Refusals -------------------------------------------------------------------------------------------------------------

X = np.array([[0.0, 5.0], [1.0, 5.0]])
REFUSED = {
    "centre": (lambda: sgp.LaplaceBasis(3, 0.0, [1.0]), r"`centre` must have shape \(d,\).*got shape \(\)"),
    "boundary": (
        lambda: sgp.LaplaceBasis(3, [0.0, 0.0], [1.0]),
        r"`boundary` must have shape \(2,\).*got shape \(1,\)",
    ),
    "negative": (lambda: sgp.LaplaceBasis(3, [0.0], [-1.0]), "`boundary` must be positive"),
    "NaN": (lambda: sgp.LaplaceBasis(3, [np.nan], [1.0]), "`centre` must be finite"),
    "none": (lambda: sgp.LaplaceBasis(0, [0.0], [1.0]), "`num_functions` must be an integer of 1 or more; got 0"),
    "fraction": (lambda: sgp.LaplaceBasis([2.5], [0.0], [1.0]), "`num_functions` must be an integer.*got 2.5"),
    "numbers": (lambda: sgp.LaplaceBasis([2, 3], [0.0], [1.0]), "or one for each of the 1 inputs of `centre`; got 2"),
    "factor": (
        lambda: sgp.LaplaceBasis.from_data(X[:, :1], 3, 1.0),
        "`boundary_factor` must be greater than 1.*suggest",
    ),
    "factors": (
        lambda: sgp.LaplaceBasis.from_data(X[:, :1], 3, [2.0, 2.0]),
        r"`boundary_factor` must have shape \(1,\)",
    ),
    "constant": (lambda: sgp.LaplaceBasis.from_data(X, 3), r"column 1 of `X` is constant \(5.0\).*Drop it"),
    "no rows": (lambda: sgp.LaplaceBasis.from_data(X[:0], 3), "`X` has no rows"),
    "infinite": (lambda: sgp.LaplaceBasis.from_data(X + np.inf, 3), "not finite.*drop or impute"),
    "vector": (lambda: sgp.LaplaceBasis.from_data(X[:, 0], 3), r"X\[:, None\]"),
    "rule": (
        lambda: sgp.LaplaceBasis.suggest(X[:, :1], [1.0], sgp.Matern12),
        "SquaredExponential, Matern32, Matern52; got",
    ),
    "instance": (lambda: sgp.LaplaceBasis.suggest(X[:, :1], [1.0], SE(1.0)), "got SquaredExponential. Pass the class"),
    "zero": (lambda: sgp.LaplaceBasis.suggest(X[:, :1], [0.0]), "`lengthscales` must be positive"),
    "columns": (lambda: sgp.LaplaceBasis.suggest(X[:, :1], [[1.0, 2.0]]), r"\(k,\) or \(k, 1\).*got \(1, 2\)"),
    "number": (
        lambda: sgp.LaplaceBasis(3, [0.0], [1.0]).weight_prior(1.0),
        "weight_prior needs a kernel; got float.*SquaredExponential",
    ),
    "no spectrum": (
        lambda: sgp.LaplaceBasis(3, [0.0], [1.0]).weight_prior(sgp.Linear()),
        "no spectral density for Linear.*Use stationary kernels",
    ),
    "lengthscales": (
        lambda: sgp.LaplaceBasis(3, [0.0], [1.0]).weight_prior(SE([1.0, 2.0])),
        "`lengthscale` has 2 entries but there are 1 inputs",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_remedy(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        call()
