"""Rows of derivatives and integrals: features against differences and quadrature, statistics against dense GPs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from scipy.integrate import quad_vec

import ppl_sgp as sgp
from tests.reference import dense_log_density, finite_difference

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 3, (12, 2))
BASIS = sgp.stack(
    sgp.ConstantBasis(2),
    sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern52([0.8, 1.5]), 20, 2),
)
SCALE = np.linspace(0.5, 1.0, BASIS.num_features)
NOISE = 0.3


@pytest.mark.parametrize("column", [0, 1])
def test_derivatives_of_features_are_those_of_differences(column, x64):
    slopes = sgp.DerivativeBasis(BASIS, column)
    step = 1e-5 * np.eye(2)[column]
    expected = (BASIS.host_features(X + step) - BASIS.host_features(X - step)) / 2e-5
    np.testing.assert_allclose(slopes.host_features(X), expected, atol=1e-8)
    tolerance = 1e-10 if x64 else 1e-4
    np.testing.assert_allclose(jax.jit(slopes)(X), slopes.host_features(X), atol=tolerance)
    second = sgp.DerivativeBasis(slopes, 0)
    step = np.array([1e-5, 0.0])
    expected = (slopes.host_features(X + step) - slopes.host_features(X - step)) / 2e-5
    np.testing.assert_allclose(second.host_features(X), expected, atol=1e-7)


@pytest.mark.parametrize("average", [False, True])
def test_integrals_of_features_are_those_of_adaptive_quadrature(average, x64):
    totals = sgp.IntegralBasis(BASIS, 1, average=average)
    inputs = np.column_stack([X, X[:, 1] + np.linspace(0.1, 6, 12)])
    expected = [quad_vec(lambda t, row=row: BASIS.host_features([[row[0], t]])[0], row[1], row[2])[0] for row in inputs]
    expected = np.array(expected) / ((inputs[:, 2] - inputs[:, 1])[:, None] if average else 1)
    np.testing.assert_allclose(totals.host_features(inputs), expected, atol=1e-8)
    np.testing.assert_allclose(jax.jit(totals)(inputs), expected, atol=1e-8 if x64 else 1e-4)


def mixed_rows():
    """Values, slopes and means seen through one set of weights: features, and outputs."""
    intervals = np.column_stack([X[:5], X[:5, 1] + 1.0])
    parts = [
        (BASIS, X, 1.0),
        (sgp.DerivativeBasis(BASIS, 0), X[:7], 2.0),
        (sgp.IntegralBasis(BASIS, 1, average=True), intervals, 0.5),
    ]
    rng = np.random.default_rng(1)
    return [(basis, inputs, rng.standard_normal(len(inputs)), weight) for basis, inputs, weight in parts]


def test_statistics_of_all_rows_are_a_sum(x64):
    rows = mixed_rows()
    stats = [sgp.sufficient_statistics(b, Z, y, row_weights=np.full(len(y), w)) for b, Z, y, w in rows]
    total = stats[0] + stats[1] + stats[2]
    assert total.basis is BASIS
    assert total.moments.x_mean.shape == (2,)
    root = [np.full(len(y), w) ** 0.5 for _, _, y, w in rows]
    Phi = np.concatenate([r[:, None] * b.host_features(Z) for (b, Z, _, _), r in zip(rows, root, strict=True)])
    y = np.concatenate([r * y for (_, _, y, _), r in zip(rows, root, strict=True)])
    expected = dense_log_density(Phi, y, SCALE, 0.0, NOISE) + sum(np.log(r).sum() for r in root)
    evidence = sgp.log_evidence(total, sgp.DiagonalPrior(jnp.asarray(SCALE)), NOISE)
    np.testing.assert_allclose(evidence, expected, rtol=1e-9 if x64 else 1e-4)


@pytest.mark.slow
@pytest.mark.float64_only
def test_each_kind_of_row_has_its_noise_scale():
    rows = mixed_rows()
    names, scales = ("values", "slopes", "means"), np.array([0.3, 0.7, 0.1])
    groups = sgp.GroupedStatistics.of(
        {name: sgp.sufficient_statistics(*row[:3]) for name, row in zip(names, rows, strict=True)}
    )

    def model(groups):
        sgp.observe_groups("y", groups, sgp.DiagonalPrior(jnp.asarray(SCALE)), jnp.asarray(scales))

    found, _ = numpyro.infer.util.log_density(model, (groups,), {}, {})
    Phi = np.concatenate([b.host_features(Z) / s for (b, Z, _, _), s in zip(rows, scales, strict=True)])
    y = np.concatenate([y / s for (_, _, y, _), s in zip(rows, scales, strict=True)])
    counts = np.array([len(row[1]) for row in rows])
    expected = dense_log_density(Phi, y, SCALE, 0.0, 1.0) - counts @ np.log(scales)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_chunks_and_files_keep_the_weights_basis(tmp_path):
    slopes = sgp.DerivativeBasis(BASIS, 0)
    whole = sgp.sufficient_statistics(slopes, X, X[:, 0], method="gram")
    chunks = sgp.sufficient_statistics(slopes, [(X[:6], X[:6, 0]), (X[6:], X[6:, 0])], method="gram")
    np.testing.assert_allclose(chunks.moments.gram, whole.moments.gram, atol=1e-12)
    whole.save(tmp_path / "slopes.sgp")
    loaded = sgp.SufficientStatistics.load(tmp_path / "slopes.sgp")
    assert (loaded + sgp.sufficient_statistics(BASIS, X, X[:, 0])).num_rows == 24


@pytest.mark.slow
def test_the_derivative_kernel_is_that_of_the_features(x64):
    kernel = sgp.FeatureKernel(BASIS, sgp.DiagonalPrior(jnp.asarray(SCALE)))
    codes = np.arange(12.0) % 3
    of_rows = [sgp.DerivativeBasis(BASIS, j) for j in (0, 1)]
    Phi = np.stack([BASIS.host_features(X), *(each.host_features(X) for each in of_rows)])[codes.astype(int), range(12)]
    coded = np.column_stack([X, codes])
    covariance = sgp.DerivativeKernel(kernel)(jnp.asarray(coded))
    expected = Phi * SCALE**2 @ Phi.T
    np.testing.assert_allclose(covariance, expected, rtol=1e-9 if x64 else 1e-3, atol=1e-9 if x64 else 1e-3)
    diagonal = sgp.DerivativeKernel(kernel).diag(jnp.asarray(coded))
    np.testing.assert_allclose(diagonal, np.diag(expected), rtol=1e-9 if x64 else 1e-3)


@pytest.mark.float64_only
@pytest.mark.parametrize(
    "kernel",
    [
        sgp.Matern32([0.8, 1.5], 1.3),
        sgp.Matern52(1.1),
        sgp.RationalQuadratic(0.9, alpha=1.7) * sgp.Linear(),
        sgp.OfColumns(sgp.Periodic(1.3, 0.7), [0]) + sgp.ArcCosine(order=1),
    ],
    ids=["matern32", "matern52", "product", "sum"],
)
def test_derivative_kernels_are_those_of_differences(kernel):
    inputs = X[:4]
    coded = np.concatenate([np.column_stack([inputs, np.full(4, code)]) for code in (0, 1, 2)])
    of_slopes = sgp.DerivativeKernel(kernel)
    found, diagonal = map(np.asarray, jax.jit(lambda X: (of_slopes(X), of_slopes.diag(X)))(coded))
    np.testing.assert_allclose(diagonal, np.diag(found), rtol=1e-9)
    np.testing.assert_allclose(found[:4, :4], kernel(inputs), rtol=1e-12)
    steps = 1e-4 * np.vstack([np.eye(2), -np.eye(2)])
    ends = (inputs[:, None, :] + steps[None]).reshape(-1, 2)
    D = np.kron(np.eye(4), np.hstack([np.eye(2), -np.eye(2)]) / 2e-4)
    order = [4 + row + 4 * j for row in range(4) for j in range(2)]
    np.testing.assert_allclose(found[np.ix_(order, range(4))], D @ np.asarray(kernel(ends, inputs)), atol=1e-6)
    # Of Matern32 a difference over a step h has an error of order h at coinciding inputs.
    np.testing.assert_allclose(found[np.ix_(order, order)], D @ np.asarray(kernel(ends)) @ D.T, rtol=2e-3, atol=2e-3)


@pytest.mark.slow
@pytest.mark.float64_only
def test_an_exact_gp_sees_slopes_as_rows():
    """The evidence, and its gradient in the lengthscale, which goes through three derivatives."""
    inputs = np.column_stack([X, np.arange(12.0) % 3])
    y = np.random.default_rng(3).standard_normal(12)

    def log_density(lengthscale):
        kernel = sgp.DerivativeKernel(sgp.Matern52(lengthscale))
        return sgp.ExactGP(sgp.rows(inputs, y), kernel, NOISE).log_prob(y)

    C = np.asarray(sgp.DerivativeKernel(sgp.Matern52(0.9))(inputs)) + NOISE**2 * np.eye(12)
    expected = -0.5 * (y @ np.linalg.solve(C, y) + np.linalg.slogdet(C)[1] + 12 * np.log(2 * np.pi))
    np.testing.assert_allclose(log_density(0.9), expected, rtol=1e-10)
    gradient = jax.jit(jax.grad(log_density))(jnp.asarray(0.9))
    np.testing.assert_allclose(gradient, finite_difference(jax.jit(log_density), 0.9), rtol=1e-6)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="`column` must be one of the 2 inputs"):
        sgp.DerivativeBasis(BASIS, 2)
    with pytest.raises(ValueError, match="codes of levels"):
        sgp.DerivativeBasis(sgp.CategoricalBasis(3), 0)
    with pytest.raises(ValueError, match="jax.numpy"):
        sgp.DerivativeBasis(sgp.CallableBasis(lambda X: np.asarray(X) ** 2, 1, 1), 0).host_features([[1.0]])
    totals = sgp.IntegralBasis(BASIS, 0)
    with pytest.raises(ValueError, match="above the lower end in column 0; row 1"):
        totals.host_features([[0.0, 0.0, 1.0], [1.0, 0.0, 1.0]])
    with pytest.raises(ValueError, match="32 nodes are too few"):
        totals.host_features([[0.0, 0.0, 500.0]])
    with pytest.raises(ValueError, match="even"):
        sgp.IntegralBasis(BASIS, 0, num_nodes=5)
    with pytest.raises(ValueError, match="smoother kernel"):
        sgp.DerivativeKernel(sgp.Matern52(1.0) + sgp.Matern12(1.0))
    with pytest.raises(ValueError, match="from 1 to 2"):
        sgp.DerivativeKernel(sgp.Matern52(1.0))(np.array([[0.0, 0.0, 3.0]]))
