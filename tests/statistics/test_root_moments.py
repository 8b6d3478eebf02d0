"""Statistics by QR decompositions: the same evidence as by products, and right where those have lost their digits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ppl_sgp as sgp
from ppl_sgp.statistics.root_moments import RootMoments, joined
from tests.builders import PROBLEMS, IdentityBasis
from tests.reference import dense_weight_posterior, exact_log_density

pytestmark = pytest.mark.float64_only  # it is about the digits of float64
DEGREE = 9
#: Of the problems of tests/builders.py, those in which the two ways differ most.
NAMES = ["tall", "wide", "one row", "low rank", "duplicated columns", "all zero", "wild units, one prior", "constant y"]
NAMES += ["mean", "small noise", "row weights, outputs"]


def statistics(Phi, y, method="qr", **options):
    return sgp.sufficient_statistics(IdentityBasis(Phi.shape[1]), Phi, y, method=method, **options)


@pytest.fixture
def monomials(rng):
    """Powers of inputs up to 30: even with columns of norm one, the condition number is 3e6."""
    Phi = rng.uniform(0, 30, (40, 1)) ** np.arange(DEGREE + 1)
    unit = 1 / np.abs(Phi).max(axis=0)
    y = Phi @ (unit * rng.standard_normal(DEGREE + 1)) + 0.01 * rng.standard_normal(40)
    return Phi, y, unit


@pytest.mark.parametrize("name", NAMES)
def test_evidence_is_exact_in_value_and_gradient(name, rng):
    problem = PROBLEMS[name](rng)
    Phi, y, _, _, noise_scale, row_weights = problem
    stats, products = statistics(Phi, y, row_weights=row_weights, chunk_size=7), problem.statistics()
    prior, mean = problem.prior(), 0.0 if problem.mean is None else problem.mean
    value = np.atleast_1d(sgp.log_evidence(stats, prior, noise_scale))
    for found, column in zip(value, y.reshape(len(y), -1).T, strict=True):
        exact = exact_log_density(Phi, column, problem.scale, mean, noise_scale, row_weights)
        assert abs(found - exact) < 1e-9 * max(1, abs(exact), len(y))

    def gradient(stats):
        def total(log_scale, noise_scale):
            prior = sgp.DiagonalPrior.from_log_scale(log_scale, problem.mean)
            return jnp.sum(sgp.log_evidence(stats, prior, noise_scale))

        log_scale = jnp.log(jnp.broadcast_to(problem.scale, Phi.shape[1:]))
        return jax.grad(total, argnums=(0, 1))(log_scale, noise_scale)

    for found, expected in zip(gradient(stats), gradient(products), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * max(1, float(np.max(np.abs(expected)))))


@pytest.mark.parametrize("spread", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("noise_scale", [1e-2, 1e-4])
def test_ill_conditioned_features_keep_their_digits(monomials, spread, noise_scale):
    Phi, y, unit = monomials
    exact = exact_log_density(Phi, y, spread * unit, 0.0, noise_scale)
    stats, prior = statistics(Phi, y), sgp.DiagonalPrior(spread * unit)
    assert abs(sgp.log_evidence(stats, prior, noise_scale) - exact) < 2e-5
    dense = sgp.DensePrior(np.diag((spread * unit) ** 2))
    assert abs(sgp.log_evidence(stats, dense, noise_scale) - exact) < 2e-5
    rotated = stats.rotate(prior)
    assert abs(sgp.log_evidence(rotated, sgp.DiagonalPrior(1.0), noise_scale) - exact) < 1e-4
    if spread > 1 and noise_scale < 1e-2:
        # What it is for: products have lost nats here.
        with pytest.warns(UserWarning, match="nats are rounding"):
            lost = sgp.log_evidence(statistics(Phi, y, "gram"), prior, noise_scale)
        assert abs(lost - exact) > 0.1


@pytest.mark.parametrize("sizes", [(3, 2, 4), (9, 4, 30), (30, 0, 5), (9, 9, 9), (200, 7)])
def test_rows_below_a_triangle(sizes, rng):
    """Whatever is above: raw rows, a triangle, one with a row of zeros."""
    root, parts = np.zeros((0, 9)), [rng.standard_normal((size, 9)) for size in sizes]
    parts[0][:, 4] = parts[0][:, 2]  # duplicated columns
    for part in parts:
        root = joined(root, part)
        assert len(root) <= 9
    rows = np.concatenate(parts)
    np.testing.assert_allclose(root.T @ root, rows.T @ rows, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_weight_posterior_of_ill_conditioned_features(monomials):
    """Against least squares by QR on all rows: with a prior this wide the posterior mean is its solution."""
    Phi, y, unit = monomials
    expected = np.linalg.lstsq(Phi * unit, y, rcond=None)[0]
    posterior = sgp.weight_posterior(statistics(Phi, y), sgp.DiagonalPrior(1e9 * unit), 1e-2)
    np.testing.assert_allclose(posterior.mean / unit, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_predictions_are_those_of_the_rows(rng):
    X = rng.uniform(size=(30, 1))
    basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 8)
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(30)
    stats = sgp.sufficient_statistics(basis, X, y, method="qr")

    def model(stats):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        sgp.observe("y", stats, sgp.DiagonalPrior(scale), 0.1)

    prediction = sgp.predict(model, {"scale": np.array([0.7])}, stats, X[:5])
    mean, covariance = dense_weight_posterior(basis.host_features(X), y, 0.7, 0.0, 0.1)
    Phi = basis.host_features(X[:5])
    np.testing.assert_allclose(prediction.mean, Phi @ mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(prediction.variance, np.sum(Phi @ covariance * Phi, axis=1), rtol=1e-7)


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_sums_of_parts_are_those_of_the_whole(rng, outputs):
    Phi, y, w = rng.standard_normal((30, 4)), rng.standard_normal((30, *outputs)), rng.uniform(0.5, 2, 30)
    whole = statistics(Phi, y, row_weights=w)
    parts = [statistics(Phi[i : i + 10], y[i : i + 10], row_weights=w[i : i + 10]) for i in (0, 10, 20)]
    updated = parts[0].update(Phi[10:], y[10:], w[10:])
    products = statistics(Phi, y, "gram", row_weights=w)
    for stats in (whole, sum(parts), updated):
        assert stats.moments.root.shape == (4 + (outputs or (1,))[0],) * 2
        for name, value in vars(products.moments).items():
            np.testing.assert_allclose(getattr(stats.moments, name), value, rtol=1e-12, atol=1e-12, err_msg=name)


def test_files_and_checkpoints_keep_the_root(rng, tmp_path):
    Phi, y = rng.standard_normal((30, 4)), rng.standard_normal(30)
    stats = statistics(Phi, y, chunk_size=8, checkpoint=tmp_path / "pass.npz")
    resumed = statistics(Phi, y, chunk_size=8, checkpoint=tmp_path / "pass.npz")
    np.testing.assert_array_equal(resumed.moments.root, stats.moments.root)
    stats.save(tmp_path / "stats.npz")
    np.testing.assert_array_equal(
        sgp.SufficientStatistics.load(tmp_path / "stats.npz").moments.root, stats.moments.root
    )
    with pytest.raises(ValueError, match="made by another `method`"):
        statistics(Phi, y, "gram", chunk_size=8, checkpoint=tmp_path / "pass.npz")


def test_digits_are_not_lost_silently(rng):
    Phi, y = rng.standard_normal((30, 4)), rng.standard_normal(30)
    stats, products = statistics(Phi, y), statistics(Phi, y, "gram")
    for left, right in ((stats, products), (products, stats)):
        with pytest.raises(ValueError, match='comes from `method="qr"`.*Compute both alike'):
            left + right
    with pytest.raises(ValueError, match="forget: subtracting loses the digits"):
        stats.forget(Phi[:3], y[:3])
    with pytest.raises(ValueError, match="`method` must be one of auto, gram, qr; got 'svd'"):
        statistics(Phi, y, "svd")


# Where nothing is said ------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    """Roots are cheap up to four rows a column, and for no larger pass."""
    monkeypatch.setattr("ppl_sgp.statistics.root_moments.PRODUCTS", 0)


def is_root(stats):
    return isinstance(stats.moments, RootMoments)


@pytest.mark.usefixtures("small")
def test_a_root_is_kept_while_rows_are_few(rng):
    Phi, y = rng.standard_normal((60, 4)), rng.standard_normal(60)  # a root up to 20 rows

    def auto(rows):
        return statistics(Phi[rows], y[rows], "auto")

    few, many = auto(slice(10)), auto(slice(10, 60))
    assert is_root(few) and is_root(auto(slice(20))) and not is_root(many)
    assert is_root(few + few) and not is_root(few + few + few)
    assert is_root(few.update(Phi[:3], y[:3])) and not is_root(few.update(Phi[:30], y[:30]))
    assert not is_root(many.update(Phi[:3], y[:3])) and not is_root(few.forget(Phi[:3], y[:3]))
    chunks = ((Phi[i : i + 10], y[i : i + 10]) for i in range(0, 60, 10))
    whole = statistics(Phi, y, "gram")
    for stats in (few + many, many + few, sgp.sufficient_statistics(IdentityBasis(4), chunks)):
        assert not is_root(stats)
        for name, value in vars(whole.moments).items():
            np.testing.assert_allclose(getattr(stats.moments, name), value, rtol=1e-12, atol=1e-12, err_msg=name)
    root = statistics(Phi[:10], y[:10])
    assert root.moments.required and (few + root).moments.required and is_root(root.update(Phi, y))
    with pytest.raises(ValueError, match="Compute both alike"):
        root + many


@pytest.mark.usefixtures("small")
def test_dask_keeps_a_root_where_rows_are_few(rng):
    da = pytest.importorskip("dask.array")
    Phi, y = rng.standard_normal((60, 4)), rng.standard_normal(60)

    def summed(n, known=True):
        X, outputs = (da.from_array(array[:n], chunks=8) for array in (Phi, y))
        if not known:
            X, outputs = X[outputs > -9], outputs[outputs > -9]
        return sgp.sufficient_statistics(IdentityBasis(4), X, outputs)

    assert is_root(summed(16)) and not is_root(summed(60)) and not is_root(summed(60, known=False))
    for stats in (summed(60), summed(60, known=False)):
        np.testing.assert_allclose(stats.moments.gram, Phi.T @ Phi, rtol=1e-12, atol=1e-12)


def test_products_of_outputs_are_kept(rng):
    Phi, y, w = rng.standard_normal((30, 4)), rng.standard_normal((30, 2)), rng.uniform(0.5, 2, 30)
    for method in ("gram", "qr"):
        stats = statistics(Phi, y, method, row_weights=w)
        both = stats + statistics(Phi[:5], y[:5], method, row_weights=w[:5])
        expected = (y.T * w) @ y
        np.testing.assert_allclose(stats.moments.output_products, expected, rtol=1e-12)
        np.testing.assert_allclose(stats.moments.sum_squares, np.diag(expected), rtol=1e-12)
        np.testing.assert_allclose(both.moments.output_products, expected + (y[:5].T * w[:5]) @ y[:5], rtol=1e-12)
        np.testing.assert_allclose(stats.rotate().moments.output_products, expected, rtol=1e-12)
    left = statistics(Phi, y, "gram", row_weights=w).forget(Phi[:5], y[:5], w[:5])
    np.testing.assert_allclose(left.moments.output_products, (y[5:].T * w[5:]) @ y[5:], rtol=1e-11)


def test_simulated_data_of_the_same_inputs(monomials, key):
    Phi, y, unit = monomials
    stats, prior = statistics(Phi, y), sgp.DiagonalPrior(unit)
    projection = sgp.SparseGP(stats, prior, 0.1).sample(key)
    simulated = stats.with_projection(projection)
    expected = sgp.SparseGP(stats, prior, 0.1).log_prob(projection)
    np.testing.assert_allclose(sgp.log_evidence(simulated, prior, 0.1), expected, rtol=1e-12)
