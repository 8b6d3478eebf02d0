"""GridEigenBasis: against the dense Nyström approximation, where the grid can be formed and where it cannot."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.bases.grid_eigen import largest_products
from tests.bases.frozen import check_copies, check_features, implied_kernel
from tests.builders import by_lane

SE = sgp.SquaredExponential
make = sgp.GridEigenBasis.from_kernel
BOX = (np.array([0.0, -1.0]), np.array([1.0, 2.0]))

# Of two inputs, each with the one-dimensional kernels it is (or stands for) the product of.
KERNELS = {
    "squared exponential": (SE([0.4, 1.1]), [SE(0.4), SE(1.1)]),
    "one lengthscale": (SE(0.7, amplitude=3.0), [SE(0.7), SE(0.7)]),
    "Matern12": (sgp.Matern12([0.4, 1.1]), [sgp.Matern12(0.4), sgp.Matern12(1.1)]),
    "Matern52": (sgp.Matern52(np.array([0.3, 2.0]), 0.1), [sgp.Matern52(0.3), sgp.Matern52(2.0)]),
    "rational quadratic": (
        sgp.RationalQuadratic([0.3, 0.9], alpha=1.7),
        [sgp.RationalQuadratic(0.3, alpha=1.7), sgp.RationalQuadratic(0.9, alpha=1.7)],
    ),
    "product": (
        SE([1.0, 2.0]) * sgp.Matern32(1.5, amplitude=4.0),
        [SE(1.0) * sgp.Matern32(1.5), SE(2.0) * sgp.Matern32(1.5)],
    ),
}


def inputs(rng, n=12):
    return BOX[0] + rng.random((n, 2)) * (BOX[1] - BOX[0])


def product_kernel(factors, X, Z):
    with jax.enable_x64(True):
        return np.prod([np.asarray(k(X[:, [i]], Z[:, [i]])) for i, k in enumerate(factors)], axis=0)


def dense_nystrom(factors, sizes, X, p):
    """Eqs 4.1-4.2 as they are written, and the leading eigenvalues."""
    axes = [np.linspace(low, high, size) for low, high, size in zip(*BOX, sizes, strict=True)]
    U = np.array(list(itertools.product(*axes)))
    values, Q = np.linalg.eigh(product_kernel(factors, U, U))
    Phi = product_kernel(factors, X, U) @ Q[:, ::-1][:, :p] / np.sqrt(values[::-1][:p])
    return Phi @ Phi.T, values[::-1][:p]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.float64_only
def test_is_the_truncated_nystrom_approximation_on_the_grid(name, rng):
    kernel, factors = KERNELS[name]
    X, sizes, p = inputs(rng), (5, 7), 11
    basis = make(kernel, BOX, p, sizes)
    expected, eigenvalues = dense_nystrom(factors, sizes, X, p)
    Phi = basis.host_features(X)
    assert (basis.num_features, basis.input_dim, Phi.shape) == (p, 2, (12, p))
    np.testing.assert_allclose(basis.log_eigenvalues, np.log(eigenvalues), rtol=1e-9)
    np.testing.assert_allclose(Phi @ Phi.T, expected, atol=1e-10)


@pytest.mark.filterwarnings("ignore:GridEigenBasis.from_kernel. between its points")
@pytest.mark.parametrize("name", ["Matern12", "product"])
@pytest.mark.float64_only
def test_with_all_eigenfunctions_is_the_full_nystrom_approximation(name, rng):
    kernel, factors = KERNELS[name]
    X = inputs(rng)
    basis = make(kernel, BOX, 10**9, (4, 6))
    assert basis.num_features == 24  # fewer than asked for: the grid has no more
    Phi = basis.host_features(X)
    np.testing.assert_allclose(Phi @ Phi.T, dense_nystrom(factors, (4, 6), X, 24)[0], atol=1e-9)
    on_grid = np.array(list(itertools.product(np.linspace(0, 1, 4), np.linspace(-1, 2, 6))))
    Phi = basis.host_features(on_grid)
    np.testing.assert_allclose(Phi @ Phi.T, product_kernel(factors, on_grid, on_grid), atol=1e-12)


def test_eigenvalues_at_rounding_level_are_cut():
    basis = make(SE(5.0), ([0.0], [1.0]), 40, 40)
    assert 4 < basis.num_features < 20
    assert np.ptp(basis.log_eigenvalues) < -np.log(1e-14)
    assert np.isfinite(basis.host_features(np.linspace(0, 1, 9)[:, None])).all()


# The search -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_search_agrees_with_enumeration(seed):
    rng = np.random.default_rng(seed)
    factors = [rng.normal(0, 4, rng.integers(1, 6)) for _ in range(rng.integers(1, 6))]
    count = int(rng.integers(1, 60))
    logs, indices = largest_products(factors, count)
    every = functools.reduce(np.add.outer, factors).ravel()
    np.testing.assert_allclose(logs, np.sort(every)[::-1][:count], atol=1e-12)
    assert indices.shape == (len(factors), min(count, every.size))
    np.testing.assert_allclose(sum(f[i] for f, i in zip(factors, indices, strict=True)), logs, atol=1e-12)
    assert len(set(map(tuple, indices.T))) == indices.shape[1]


@pytest.mark.parametrize("d", [33, 100])
@pytest.mark.float64_only
def test_grids_that_cannot_be_formed(d, rng):
    X = rng.random((20, d))
    kernel = SE(np.linspace(0.5, 3, d) * d**0.5)
    basis = make(kernel, X, 500)  # 10^d points
    Phi = basis.host_features(X)
    assert Phi.shape == (20, 500) and np.isfinite(Phi).all()
    # Eq 4.9: signs and sums of logarithms.
    sign, log_abs = np.ones_like(Phi), np.zeros_like(Phi)
    for i in range(d):
        points = basis.points[i]
        K = np.exp(-0.5 * ((X[:, i, None] - points) / kernel.lengthscale[i]) ** 2)
        B = (K @ basis.eigenvectors[i])[:, basis.indices[i]]
        sign, log_abs = sign * np.sign(B), log_abs + np.log(np.abs(B))
    np.testing.assert_allclose(Phi, sign * np.exp(log_abs - basis.log_eigenvalues / 2), atol=1e-10)
    # An approximation from below, and a good one: the Gram matrix is that of the kernel but for the lost eigenvalues.
    error = np.asarray(kernel(X)) - Phi @ Phi.T
    assert np.linalg.eigvalsh(error).min() > -by_lane(1e-9, 1e-5) and np.abs(error).max() < 0.05


@pytest.mark.slow
@pytest.mark.float64_only
def test_error_falls_with_the_number_of_features(rng):
    X, kernel = inputs(rng, 40), SE([0.4, 1.1], amplitude=1.5)
    errors = [np.abs(implied_kernel(make(kernel, X, p, 14), kernel, X) - kernel(X)).max() for p in (5, 15, 45, 130)]
    assert all(after < before / 3 for before, after in itertools.pairwise(errors))
    assert errors[-1] < 1e-3


# Features -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squared exponential", "product"])
def test_features_and_copies(name, rng, tmp_path):
    kernel, X = KERNELS[name][0], inputs(rng)
    basis = make(kernel, BOX, 9, 5)
    check_features(basis, X)
    check_copies(basis, X, kernel, tmp_path)


def test_features_do_not_exceed_one(rng):
    Phi = make(SE([0.4, 1.1]), BOX, 100).host_features(inputs(rng, 200))
    assert np.sum(Phi**2, axis=1).max() <= 1 + 1e-9


def test_a_constant_column_gets_one_point(rng):
    X = inputs(rng)
    with_constant = np.insert(X, 1, 7.0, axis=1)
    kernels = SE([0.4, 2.0, 1.1]), SE([0.4, 1.1])
    left, right = (make(k, Z, 15, 6).host_features(Z) for k, Z in zip(kernels, (with_constant, X), strict=True))
    np.testing.assert_allclose(left @ left.T, right @ right.T, atol=1e-12)


def test_bounds_and_inputs_give_the_same_grid(rng):
    X = inputs(rng)
    bases = [make(SE(1.0), source, 8) for source in (X, (X.min(axis=0), X.max(axis=0)))]
    np.testing.assert_array_equal(*(basis.host_features(X) for basis in bases))


@pytest.mark.float64_only
def test_gradients_in_inputs_are_finite_and_right():
    basis = make(SE([0.4, 1.1]), BOX, 12, 5)
    X = np.array([[0.5, 0.5], [0.0, -1.0], [0.3, 0.7]])  # the centre, where odd eigenfunctions vanish; a corner
    jacobian = np.asarray(jax.jit(jax.jacfwd(lambda x: basis(x[None, :])[0]))(jnp.asarray(X[0])))
    step = 1e-6
    differences = [(basis.host_features([X[0] + e]) - basis.host_features([X[0] - e]))[0] for e in step * np.eye(2)]
    np.testing.assert_allclose(jacobian, np.array(differences).T / (2 * step), atol=by_lane(1e-7, 1e-3))
    assert np.abs(jacobian).max() > 0.1
    for rows in (X, X + 1e3):  # also where all features underflow
        assert np.isfinite(jax.grad(lambda X: jnp.sum(basis.features(X, jnp)))(jnp.asarray(rows))).all()


def test_float32_features_resolve_what_float32_can(rng):
    kernel = SE([2.0, 6.0])  # eigenvalues over 14 decades
    basis, X = make(kernel, BOX, 60), inputs(rng, 50)
    in_float32 = np.asarray(basis(jnp.asarray(X, jnp.float32)), np.float64)
    np.testing.assert_allclose(in_float32, basis.host_features(X), atol=2e-3)
    np.testing.assert_allclose(in_float32 @ in_float32.T, kernel(X), atol=1e-4)


def test_rows_outside_the_grid_are_announced(rng):
    basis, X = make(SE([0.4, 1.1]), BOX, 12, 5), inputs(rng, 10)
    X[0, 1] = 2.5
    for call in (basis, basis.host_features):
        with pytest.warns(UserWarning, match=r"GridEigenBasis: 0\.1 of the rows lie outside the grid.*bounds"):
            Phi = call(X)
    assert np.isfinite(Phi).all()
    jax.jit(basis.__call__)(X)  # cannot be read


@pytest.mark.parametrize("where", ["rows", "bounds"])
def test_grids_too_coarse_for_the_lengthscale_are_announced(where, rng):
    X = rng.uniform(size=(300, 3))
    kernel, bounds = SE([2.0, 0.02, 0.5]), X if where == "rows" else (np.zeros(3), np.ones(3))
    with pytest.warns(UserWarning, match=r"loses the kernel.*input\(s\) \[1\].*points_per_dim") as caught:
        basis = sgp.GridEigenBasis.from_kernel(kernel, bounds, 10**4, 10)
    assert caught[0].filename == __file__
    probes = X if where == "rows" else (np.arange(10)[:, None] % 9 + 0.5) / 9 * np.ones(3)
    kept = np.sum(basis.host_features(probes) ** 2, axis=1).mean()
    assert f"{100 * kept:.2g}% of the prior" in str(caught[0].message)
    # 2 points a lengthscale suffice, and so do points on the only values an input takes.
    sgp.GridEigenBasis.from_kernel(SE([2.0, 0.2, 0.5]), bounds, 100, 10)
    levels = np.round(9 * X) / 9
    levels[:2] = [[0, 0, 0], [1, 1, 1]]
    sgp.GridEigenBasis.from_kernel(SE(0.03), levels, 100, 10)


# The prior ------------------------------------------------------------------------------------------------------------


def test_the_prior_is_the_amplitude_of_the_same_kernel(rng):
    kernel = KERNELS["product"][0]
    basis = make(kernel, BOX, 10, 5)
    prior = basis.weight_prior(SE([1.0, 2.0], 0.5) * sgp.Matern32([1.5, 1.5], amplitude=jnp.asarray(3.0)))
    assert isinstance(prior, sgp.DiagonalPrior) and prior.num_weights == 10
    np.testing.assert_allclose(prior.scale, 1.5, rtol=1e-6)

    def variance(basis, amplitude):  # features are leaves, and what they were made for is known all the same
        return basis.weight_prior(SE([1.0, 2.0], amplitude) * sgp.Matern32(1.5)).variance[0]

    value, gradient = jax.jit(jax.value_and_grad(variance, argnums=1))(basis, 3.0)
    assert (float(value), float(gradient)) == pytest.approx((9.0, 6.0), rel=1e-6)


def test_float32_hyperparameters_are_the_same_kernel():
    basis = make(SE([0.1, 0.7]), BOX, 5)
    assert basis.weight_prior(SE(jnp.array([0.1, 0.7], jnp.float32))).num_weights == 5
    assert make(SE([0.7, 0.7]), BOX, 5).weight_prior(SE(0.7)).num_weights == 5


REFUSED_PRIORS = {
    "lengthscale": (
        SE([0.4, 1.0]),
        r"made for `SquaredExponential.lengthscale` \[0.4 1.1\]; got \[0.4 1. \].*FourierBasis",
    ),
    "number of lengthscales": (SE([0.4, 1.1, 1.1]), "made for `SquaredExponential.lengthscale`"),
    "class": (
        sgp.Matern32([0.4, 1.1]),
        r"made for the kernel SquaredExponential; got Matern32.*DiagonalPrior\(scale\)",
    ),
    "product": (SE([0.4, 1.1]) * SE(1.0), "got SquaredExponential \\* SquaredExponential"),
    "no kernel": (1.0, "made for the kernel SquaredExponential; got float"),
}


@pytest.mark.parametrize("name", REFUSED_PRIORS)
def test_other_kernels_are_refused(name):
    kernel, message = REFUSED_PRIORS[name]
    with pytest.raises(ValueError, match=f"(?s)GridEigenBasis.*{message}"):
        make(SE([0.4, 1.1]), BOX, 5).weight_prior(kernel)


def test_traced_lengthscales_are_refused():
    basis = make(SE([0.4, 1.1]), BOX, 5)
    with pytest.raises(
        ValueError, match=r"`SquaredExponential.lengthscale` is traced, but must be \[0.4 1.1\].*frozen"
    ):
        jax.jit(lambda ell: basis.weight_prior(SE(ell)).log_scale)(jnp.array([0.4, 1.1]))


REFUSED = {
    "sum": (dict(kernel=SE(1.0) + SE(2.0)), "has a sum in it.*sgp.stack"),
    "sum in a product": (dict(kernel=(SE(1.0) + SE(2.0)) * SE(1.0)), "has a sum in it.*sgp.stack"),
    "no kernel": (dict(kernel=SE), "`kernel` must be a kernel .*got "),
    "no base kernel": (
        dict(kernel=sgp.ArcCosine(order=1)),
        "must be a squared exponential.*got ArcCosine.*NystromBasis",
    ),
    "lengthscales": (dict(kernel=SE([1.0, 1.0, 1.0])), "3 entries but there are 2 inputs"),
    "scalar bounds": (dict(X_or_bounds=(0.0, 1.0)), r"shape \(2,\).*X\[:, None\].*lower"),
    "no rows": (dict(X_or_bounds=np.ones((0, 2))), r"got shape \(0, 2\)"),
    "NaN": (dict(X_or_bounds=[[0.0, np.nan]]), "not finite.*drop or impute"),
    "num_features": (dict(num_features=0), "`num_features` must be an integer of 1 or more; got 0"),
    "points": (dict(points_per_dim=[3, 0]), r"`points_per_dim` must be .* or 2 of them; got \[3, 0\]"),
    "fractions of points": (dict(points_per_dim=2.5), "`points_per_dim` must be an integer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_requests_are_refused(name):
    change, message = REFUSED[name]
    arguments = dict(kernel=SE(1.0), X_or_bounds=BOX, num_features=5) | change
    with pytest.raises(ValueError, match=f"(?s){message}"):
        make(**arguments)


def test_traced_kernels_are_refused():
    with pytest.raises(ValueError, match="`kernel` is traced, but the basis is computed once.*outside `jit`"):
        jax.jit(lambda ell: make(SE(ell), BOX, 5).host_features(np.ones((1, 2))))(1.0)
