"""tensor: products of bases and of their priors, against products formed in full."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from tests.bases.frozen import check_copies, check_features, implied_kernel
from tests.builders import IdentityBasis, by_lane

SE, M32 = sgp.SquaredExponential, sgp.Matern32
RTOL = by_lane(1e-12, 1e-5)
ALONG = sgp.LaplaceBasis([5], centre=[0.5], boundary=[2.0])
KERNELS = (sgp.Categorical(1.5), SE(0.8))


def column(basis, index, input_dim=2):
    return sgp.SelectedColumns(basis, [index], input_dim)


def covariance_of(prior):
    return np.asarray(prior.covariance, dtype=np.float64)


@pytest.fixture
def X(rng):
    return np.column_stack([rng.integers(0, 3, 9), rng.random(9)]).astype(np.float64)


@pytest.fixture
def product():
    return sgp.tensor(column(sgp.CategoricalBasis(3), 0), column(ALONG, 1))


def products(left, right):
    return np.stack([np.kron(a, b) for a, b in zip(left, right, strict=True)])


@pytest.mark.slow
def test_features_are_products(product, X, tmp_path):
    assert (product.num_features, product.input_dim) == (15, 2)
    of_group, along = (basis.host_features(X) for basis in product.bases)
    np.testing.assert_array_equal(product.host_features(X), products(of_group, along))
    check_features(product, X)
    check_copies(product, X, KERNELS, tmp_path)


def test_three_bases_and_a_stack_among_them(X, rng):
    line = column(sgp.stack(sgp.ConstantBasis(1), IdentityBasis(1)), 1)
    basis = sgp.tensor(line, column(ALONG, 1), column(sgp.CategoricalBasis(3), 0))
    each = [part.host_features(X) for part in basis.bases]
    expected = products(products(each[0], each[1]), each[2])
    np.testing.assert_allclose(basis.host_features(X), expected, rtol=1e-15)
    # The pass writes into a part of a row, as of a stack.
    stacked = sgp.stack(IdentityBasis(2), basis)
    out = np.full((len(X), 40), np.nan)
    stacked.fill_features(X, out[:, 3:35])
    np.testing.assert_allclose(out[:, 5:35], expected, rtol=1e-15)
    assert np.isnan(out[:, :3]).all() and np.isnan(out[:, 35:]).all()
    prior = basis.weight_prior(((sgp.Constant(2.0), sgp.DiagonalPrior(3.0)), KERNELS[1], KERNELS[0]))
    along = ALONG.weight_prior(KERNELS[1]).variance
    np.testing.assert_allclose(prior.variance, np.kron(np.kron([4.0, 9.0], along), np.full(3, 2.25)), rtol=RTOL)


def test_the_kernel_is_the_product(product, X):
    of_group, along = (implied_kernel(b, k, X) for b, k in zip(product.bases, KERNELS, strict=True))
    np.testing.assert_allclose(implied_kernel(product, KERNELS, X), of_group * along, rtol=1e-5, atol=1e-12)
    as_product = product.weight_prior(KERNELS[0] * KERNELS[1])
    np.testing.assert_array_equal(as_product.log_scale, product.weight_prior(KERNELS).log_scale)


def test_hyperparameters_may_be_traced_and_batched(product):
    def total(amplitude, lengthscale):
        return jnp.sum(product.weight_prior((sgp.Categorical(amplitude), SE(lengthscale))).log_scale)

    gradient = jax.grad(total, (0, 1))(1.5, 0.8)
    of_laplace = jax.grad(lambda lengthscale: jnp.sum(ALONG.weight_prior(SE(lengthscale)).log_scale))(0.8)
    np.testing.assert_allclose(gradient, (15 / 1.5, 3 * of_laplace), rtol=1e-5)
    prior = jax.vmap(lambda a: product.weight_prior((sgp.Categorical(a), SE(0.8))))(jnp.array([1.0, 1.5]))
    assert prior.batch_shape == (2,)
    np.testing.assert_allclose(prior.log_scale[1], product.weight_prior(KERNELS).log_scale, rtol=1e-5, atol=1e-6)


def test_what_is_known_of_the_features(product, X):
    season = column(sgp.PeriodicBasis(1.0, 1), 1)
    levels = column(sgp.CategoricalBasis(3, labels=["a", "b", "c"]), 0)
    line = column(sgp.LinearBasis(1), 1)
    for basis in (sgp.tensor(season, sgp.LinearBasis(2)), product, sgp.tensor(levels, sgp.ConstantBasis(2))):
        np.testing.assert_array_equal(basis.constant_features, np.ptp(basis.host_features(X), axis=0) == 0)
    assert sgp.tensor(levels, line).feature_names(["g", "x"])[:3] == [
        "g = a × constant",
        "g = a × x",
        "g = b × constant",
    ]
    assert sgp.tensor(line, line).feature_coords["feature"][-1] == "input 1 × input 1"
    assert product.approximates_kernel and product.bounded
    assert not sgp.tensor(levels, season).approximates_kernel and not sgp.tensor(levels, season).bounded
    assert product.feature_coords == {}
    assert product.name_of(7) == "feature 1 of CategoricalBasis × feature 2 of LaplaceBasis"
    with pytest.warns(UserWarning, match="LaplaceBasis: 1 of the rows lie outside the box"):
        product.host_features(X + np.array([0.0, 5.0]))
    with pytest.raises(ValueError, match=r"Column 0: CategoricalBasis: 2 is none of its 2 levels"):
        sgp.tensor(column(sgp.CategoricalBasis(2), 0), column(ALONG, 1)).host_features([[2.0, 0.5]])


def test_shares_are_those_of_the_bases(key, X):
    kernel = SE(2.0)
    random = sgp.FourierBasis.sample(key, SE(0.5), 8, 1)
    basis = sgp.tensor(column(sgp.CategoricalBasis(3), 0), column(random, 1))
    expected = random.effective_share(random.weight_prior(kernel).log_variance)
    assert expected < 0.9
    share = basis.effective_share(basis.weight_prior((KERNELS[0], kernel)).log_variance)
    np.testing.assert_allclose(share, expected, rtol=1e-5)


# What a product lacks of its kernel -----------------------------------------------------------------------------------


def nystrom(index):
    return column(sgp.NystromBasis(np.array([[0.1], [0.9]]), M32(0.4)), index)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*rows lie")
def test_lost_variance_of_one_factor_goes_with_the_features_of_the_others():
    Z = np.array([[0.2, 0.3], [0.7, 0.5], [0.4, 1.4]])
    basis = sgp.tensor(nystrom(0), column(sgp.LinearBasis(1), 1))
    prior = basis.weight_prior((M32(0.4, amplitude=1.5), sgp.Linear(weight_scale=2.0, bias=0.5)))
    lost = basis.residual_amplitude(prior) @ basis.residual_variance(Z)
    whole = 1.5**2 * (0.25 + 4 * Z[:, 1] ** 2)
    implied = np.sum(basis.host_features(Z) ** 2 * np.asarray(prior.variance), axis=1)
    np.testing.assert_allclose(lost, whole - implied, rtol=by_lane(1e-9, 1e-4))
    unequal = sgp.DiagonalPrior(np.arange(1.0, 5.0))
    np.testing.assert_array_equal(basis.residual_amplitude(unequal), [0, 0])
    dense = sgp.tensor(sgp.DiagonalPrior([1.0, 1.0]), sgp.DensePrior([[2.0, 1.0], [1.0, 2.0]]))
    np.testing.assert_array_equal(basis.residual_amplitude(dense), [0, 0])
    batch = jax.vmap(lambda a: sgp.DiagonalPrior(a * jnp.ones(4)))(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(basis.residual_amplitude(batch), [[1, 1], [4, 4]], rtol=1e-6)


def test_lost_variance_of_two_factors_and_of_unseen_levels():
    Z = np.array([[0.2, 0.3], [0.7, 0.5]])
    basis = sgp.tensor(nystrom(0), nystrom(1))
    prior = basis.weight_prior((M32(0.4, amplitude=1.5), M32(0.4)))
    lost = basis.residual_amplitude(prior) @ basis.residual_variance(Z)
    implied = np.sum(basis.host_features(Z) ** 2 * np.asarray(prior.variance), axis=1)
    np.testing.assert_allclose(lost, 1.5**2 - implied, rtol=by_lane(1e-9, 1e-4))

    of_group = sgp.tensor(column(sgp.CategoricalBasis(2, unseen="prior"), 0), column(sgp.LinearBasis(1), 1))
    prior = of_group.weight_prior((sgp.Categorical(), sgp.Linear(weight_scale=2.0, bias=0.5)))
    lost = of_group.residual_amplitude(prior) @ of_group.residual_variance(np.array([[1.0, 3.0], [5.0, 3.0]]))
    np.testing.assert_allclose(lost, [0, 0.25 + 4 * 9], rtol=1e-6)


# Priors ---------------------------------------------------------------------------------------------------------------


def test_products_of_diagonals_are_diagonal():
    left, right = sgp.DiagonalPrior([1.0, 2.0]), sgp.DiagonalPrior(np.array([[3.0, 4.0, 5.0], [1.0, 1.0, 1.0]]))
    prior = sgp.tensor(left, right)
    assert isinstance(prior, sgp.DiagonalPrior) and (prior.batch_shape, prior.num_weights) == ((2,), 6)
    np.testing.assert_allclose(prior.scale, [[3, 4, 5, 6, 8, 10], [1, 1, 1, 2, 2, 2]], rtol=1e-6)
    tiny = sgp.tensor(sgp.DiagonalPrior.from_log_scale(jnp.array([-1e4])), left)
    np.testing.assert_allclose(tiny.log_scale, [-1e4, -1e4 + np.log(2)], rtol=1e-6)


def test_other_products_are_kronecker_priors():
    dense = sgp.DensePrior(np.array([[2.0, 1.0], [1.0, 2.0]]))
    prior = sgp.tensor(sgp.DiagonalPrior(np.array([1.0, 2.0, 3.0])), dense)
    assert isinstance(prior, sgp.KroneckerPrior)
    np.testing.assert_allclose(covariance_of(prior), np.kron(np.diag([1.0, 4.0, 9.0]), dense.matrix), rtol=RTOL)
    nested = sgp.tensor(prior, sgp.DensePrior(scale_tril=np.array([[1.0, 0.0], [0.5, 2.0]])))
    expected = np.kron(covariance_of(prior), [[1.0, 0.5], [0.5, 4.25]])
    np.testing.assert_allclose(covariance_of(nested), expected, rtol=RTOL)
    root = np.asarray(nested.apply_root(jnp.eye(12)))
    np.testing.assert_allclose(root @ root.T, expected, rtol=RTOL, atol=1e-5 * RTOL)
    blocks = sgp.tensor(sgp.stack(sgp.DiagonalPrior([2.0]), dense), sgp.DiagonalPrior([3.0]))
    assert blocks.independent.tolist() == [True, False, False]


UNSIZED = "must be a covariance, or a single prior of mean zero.*jnp.full"
REFUSED = {
    "nothing": ((), "got nothing"),
    "number": ((1.0,), "got float"),
    "mixture": ((IdentityBasis(2), sgp.DiagonalPrior([1.0])), "takes bases, or priors.*IdentityBasis, DiagonalPrior"),
    "inputs": ((IdentityBasis(2), IdentityBasis(3)), "tensor: bases.*same inputs; got 2, 3 columns.*SelectedColumns"),
    "size": ((sgp.DiagonalPrior([1.0]), sgp.DiagonalPrior(1.0)), r"prior 1 must have one entry.*jnp.full\(m, scale\)"),
    "mean": ((sgp.DiagonalPrior([1.0], [2.0]),), "prior 0 must have.*mean zero"),
    "dense size": ((sgp.DiagonalPrior(1.0), sgp.DensePrior(np.eye(2))), UNSIZED),
    "dense mean": ((sgp.DensePrior(np.eye(2), mean=np.ones(2)),), UNSIZED),
    "batch": ((sgp.DiagonalPrior(np.ones((3, 2))), sgp.DensePrior(np.eye(2))), UNSIZED),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_parts_are_refused(name):
    parts, message = REFUSED[name]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        sgp.tensor(*parts)


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        (SE(0.8), "TensorBasis.weight_prior needs a tuple of 2 kernels or priors.*got 1"),
        (KERNELS[0] * SE(0.8) * SE(0.8), "got 3"),
        (2.0, "got float"),
        ((KERNELS[0], sgp.DiagonalPrior(np.ones(4))), "the prior has 4 weights, but 5 are wanted"),
    ],
)
def test_bad_kernels_are_refused(product, kernels, message):
    with pytest.raises(ValueError, match=message):
        product.weight_prior(kernels)
