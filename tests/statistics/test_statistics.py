"""SufficientStatistics: merging, rotation, simulated data, pytree, description of the rows."""

from __future__ import annotations

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp._internal.pytree import rebuild
from tests.builders import PROBLEMS, IdentityBasis, by_lane, smooth_rows
from tests.reference import exact_log_density


@pytest.fixture(scope="module")
def basis():
    return sgp.FourierBasis.sample(jax.random.key(1), sgp.Matern32(0.3), 10, 1)


@pytest.fixture
def parts(basis, rng):
    """Statistics of three parts of very different sizes, and of all of them."""
    X, y = smooth_rows(rng, 200)
    X = 50 + 3 * X[rng.permutation(200)]
    slices = [slice(0, 1), slice(1, 30), slice(30, 200)]
    return [sgp.sufficient_statistics(basis, X[s], y[s]) for s in slices], sgp.sufficient_statistics(basis, X, y)


def assert_close(left, right):
    for name, value in vars(left.moments.plain()).items():
        np.testing.assert_allclose(value, getattr(right.moments, name), rtol=1e-11, atol=1e-11, err_msg=name)


def test_merging_is_associative_and_commutative(parts):
    (a, b, c), everything = parts
    for merged in (a + b + c, a + (b + c), c + a + b, (c + b) + a):
        assert_close(merged, everything)
    assert (a + b + c).num_rows == 200


def test_update_appends(basis, parts, rng):
    X, y = smooth_rows(rng, 20)
    w = rng.random(20) + 0.5
    (a, _, _), _ = parts
    assert_close(a.update(X, y), a + sgp.sufficient_statistics(basis, X, y))
    assert_close(a.update(X, y, w), a + sgp.sufficient_statistics(basis, X, y, row_weights=w))
    assert a.num_rows == 1


def test_description_of_the_rows_merges(rng):
    X = rng.standard_normal((50, 2)) * [1.0, 1e-3] + [1e3, -5.0]
    y = rng.standard_normal(50) + 10
    basis = IdentityBasis(2)
    merged = sgp.sufficient_statistics(basis, X[:7], y[:7]) + sgp.sufficient_statistics(basis, X[7:], y[7:])
    # Deviations from a mean of 1000: three digits go to the subtraction.
    np.testing.assert_allclose(merged.input_scale, X.std(axis=0), rtol=1e-11)
    np.testing.assert_allclose(merged.output_scale, np.sqrt(np.mean(y**2)), rtol=1e-13)
    np.testing.assert_allclose(merged.moments.x_mean, X.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(merged.moments.y_mean, y.mean(), rtol=1e-13)
    np.testing.assert_array_equal(merged.moments.x_min, X.min(axis=0))
    np.testing.assert_array_equal(merged.moments.x_max, X.max(axis=0))


@pytest.mark.parametrize("constant", [0.0, 0.1, 2000.1])
def test_an_input_that_never_varies_has_scale_zero(constant):
    X = np.stack([np.arange(7.0), np.full(7, constant)], axis=1)
    stats = sgp.sufficient_statistics(IdentityBasis(2), X, np.arange(7.0))
    assert stats.input_scale[1] == 0
    assert (stats + stats).input_scale[1] == 0


def test_merging_needs_the_same_basis_and_outputs(basis, parts, rng):
    X, y = smooth_rows(rng, 5)
    (a, _, _), _ = parts
    other = sgp.FourierBasis.sample(jax.random.key(2), sgp.Matern32(0.3), 10, 1)
    with pytest.raises(ValueError, match=r"(?s)same basis.*these bases differ.*Keep one basis"):
        a + sgp.sufficient_statistics(other, X, y)
    with pytest.raises(ValueError, match=r"(?s)same basis"):
        a + a.rotate()
    with pytest.raises(ValueError, match=r"(?s)same outputs.*\(\) and \(2,\)"):
        a + sgp.sufficient_statistics(basis, X, np.stack([y, y], axis=1))
    with pytest.raises(TypeError, match="unsupported operand"):
        a + 1


def test_a_basis_drawn_again_from_the_same_key_is_the_same_basis(basis, parts, rng):
    (a, _, _), _ = parts
    again = sgp.FourierBasis.sample(jax.random.key(1), sgp.Matern32(0.3), 10, 1)
    assert (a + sgp.sufficient_statistics(again, *smooth_rows(rng, 5))).num_rows == 6


def test_billions_of_rows_are_counted_exactly(basis, rng):
    stats = sgp.sufficient_statistics(basis, *smooth_rows(rng, 30))
    moments = rebuild(type(stats.moments), {**vars(stats.moments), "num_rows": np.float64(3_000_000_001)})
    many = sgp.SufficientStatistics(basis, moments)
    assert many.num_rows == 3_000_000_001 and isinstance(many.num_rows, int)
    assert (many + stats).num_rows == 3_000_000_031
    assert "num_rows=3000000001" in repr(many)
    assert pickle.loads(pickle.dumps(many)).num_rows == 3_000_000_001


# Compression ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rank"), [("tall", 6), ("wide", 4), ("one row", 1), ("low rank", 4), ("duplicated columns", 4)]
)
def test_rank_and_cost(name, rank, rng):
    stats = PROBLEMS[name](rng).statistics()
    assert int(stats.compressed.rank) == rank == len(stats.projection) - 1
    assert stats.evidence_cost == ("O(m·rank²)" if 2 * rank <= stats.num_features else "O(m³)")
    assert stats.rotate().evidence_cost == "O(m)"
    assert int(stats.rotate().compressed.rank) == rank


@pytest.mark.parametrize("name", PROBLEMS)
def test_pseudo_rows_reproduce_the_sums(name, rng):
    problem = PROBLEMS[name](rng)
    stats, w = problem.statistics(), np.ones(len(problem.y)) if problem.row_weights is None else problem.row_weights
    R, c, rss = stats.compressed.factor, stats.projection[..., :-1], stats.projection[..., -1]
    # Columns are compared in their own units.
    size = np.sqrt(np.diag(stats.moments.gram))
    size[size == 0] = 1
    np.testing.assert_allclose(R.T @ R / np.outer(size, size), stats.moments.gram / np.outer(size, size), atol=1e-12)
    sum_squares = (w * problem.y.T**2).sum(axis=-1)
    np.testing.assert_allclose((c**2).sum(axis=-1) + rss, sum_squares, rtol=1e-12)
    root = np.sqrt(w)
    fit = np.linalg.lstsq((problem.Phi.T * root).T / size, (problem.y.T * root).T, rcond=1e-12)[0]
    residual = ((problem.y.T * root).T - (problem.Phi.T * root).T / size @ fit) ** 2
    np.testing.assert_allclose(rss, residual.sum(axis=0), rtol=1e-9, atol=1e-12 * sum_squares.max())


# Rotation ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tall", "wide", "low rank", "zero columns", "outputs", "row weights"])
def test_rotated_features_are_orthogonal_over_the_rows(name, rng):
    problem = PROBLEMS[name](rng)
    prior = sgp.DiagonalPrior(problem.scale)
    w = 1.0 if problem.row_weights is None else problem.row_weights[:, None]
    for rotated in (problem.statistics().rotate(), problem.statistics().rotate(prior)):
        Phi = rotated.basis.host_features(problem.Phi)
        size = np.abs(rotated.moments.gram).max()
        np.testing.assert_allclose(Phi.T @ (w * Phi), np.diag(rotated.moments.gram), atol=1e-12 * size)
        np.testing.assert_allclose((w * Phi).T @ problem.y, rotated.moments.feature_output, rtol=1e-9, atol=1e-9 * size)
        assert rotated.num_rows == len(problem.y)


def test_rotation_of_rotated_statistics_and_further_rows(rng):
    problem = PROBLEMS["tall"](rng)
    stats, prior = problem.statistics(), problem.prior()
    expected = exact_log_density(problem.Phi, problem.y, np.exp(np.float64(prior.log_scale)), 0.0, problem.noise_scale)
    once = stats.rotate(prior)
    tolerance = dict(rtol=by_lane(1e-9, 1e-5))
    unit = sgp.DiagonalPrior(1.0)
    np.testing.assert_allclose(sgp.log_evidence(once.rotate(unit), unit, problem.noise_scale), expected, **tolerance)
    part = sgp.sufficient_statistics(stats.basis, problem.Phi[:25], problem.y[:25]).rotate(prior)
    whole = part.update(problem.Phi[25:], problem.y[25:])
    assert not whole.is_diagonal and whole.num_rows == 40
    np.testing.assert_allclose(sgp.log_evidence(whole, unit, problem.noise_scale), expected, **tolerance)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (sgp.DiagonalPrior(np.ones(5)), "must have 6 weights; got 5"),
        (sgp.DiagonalPrior(np.ones((2, 6))), "must be a single prior of mean zero"),
        (sgp.DiagonalPrior(1.0, mean=np.ones(6)), "must be a single prior of mean zero.*subtract"),
        (2.0, "must be a weight prior"),
    ],
)
def test_rotation_refuses_other_priors(prior, message, rng):
    with pytest.raises(ValueError, match=f"rotate: `prior` {message}"):
        PROBLEMS["tall"](rng).statistics().rotate(prior)


# Simulated data ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("name", ["tall", "wide", "low rank", "zero columns", "outputs", "row weights"])
def test_with_projection_is_other_data_at_the_same_inputs(name, rotated, rng):
    problem = PROBLEMS[name](rng)
    other = problem._replace(y=rng.standard_normal(problem.y.shape))
    turn = (lambda stats: stats.rotate(problem.prior())) if rotated else (lambda stats: stats)
    stats, expected = turn(problem.statistics()), turn(other.statistics())
    simulated = stats.with_projection(expected.projection)
    np.testing.assert_array_equal(simulated.projection, expected.projection)
    for key in ("feature_output", "sum_squares", "gram", "num_rows"):
        left, right = (getattr(s.moments, key) for s in (simulated, expected))
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9, err_msg=key)
    prior = sgp.DiagonalPrior(1.0) if rotated else problem.prior()
    values = [sgp.log_evidence(s, prior, 0.4) for s in (simulated, expected, simulated + simulated)]
    np.testing.assert_allclose(values[0], values[1], rtol=by_lane(1e-9, 1e-5))
    np.testing.assert_allclose(values[2], sgp.log_evidence(expected + expected, prior, 0.4), rtol=by_lane(1e-9, 1e-5))


def test_with_projection_needs_the_right_shape(rng):
    stats = PROBLEMS["tall"](rng).statistics()
    with pytest.raises(ValueError, match=r"`projection` must have shape \(7,\); got \(6,\).*SparseGP"):
        stats.with_projection(np.ones(6))


# Pytree --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rotated", [False, True])
def test_pytree_pickle_and_copies_keep_everything(rotated, parts):
    _, stats = parts
    stats = stats.rotate() if rotated else stats
    leaves, structure = jax.tree.flatten(stats)
    for twin in (structure.unflatten(leaves), pickle.loads(pickle.dumps(stats)), copy.deepcopy(stats)):
        assert jax.tree.structure(twin) == structure
        for left, right in zip(jax.tree.leaves(twin), leaves, strict=True):
            np.testing.assert_array_equal(left, right)
        assert repr(twin) == repr(stats)
    through = jax.jit(lambda s: s)(stats)
    np.testing.assert_allclose(through.moments.gram, stats.moments.gram, rtol=by_lane(0, 1e-6), atol=by_lane(0, 1e-4))
    paths = {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(stats)[0]}
    assert {".moments.gram", ".compressed.factor", ".compressed.projection"} <= paths


def test_under_jit_sizes_are_known_and_rows_are_counted(parts):
    _, stats = parts
    seen = []

    @jax.jit
    def rows(stats):
        seen.append((stats.num_features, stats.num_outputs, stats.is_diagonal, stats.evidence_cost, repr(stats)))
        return jnp.asarray(stats.num_rows)

    assert int(rows(stats)) == 200
    assert seen[0][:4] == (10, 1, False, stats.evidence_cost)
