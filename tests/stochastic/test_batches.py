"""Minibatches: of the right rows, all equally often, from wherever they are, and refused where they cannot be."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.stochastic import row_batches

X = np.arange(24.0).reshape(12, 2)
y = np.arange(12.0)


def chunks(sizes=(5, 0, 3, 4)):
    """The rows in chunks, of which one is empty."""
    edges = np.cumsum([0, *sizes])
    return [(X[a:b], y[a:b]) for a, b in itertools.pairwise(edges) if b > a]


@pytest.mark.parametrize("replace", [False, True])
def test_batches_of_arrays_are_rows_all_equally_often(key, replace):
    batches = row_batches(X, y, 5, replace=replace)
    drawn = [batches.draw(k) for k in jax.random.split(key, 400)]
    counts = np.bincount(np.concatenate([batch.rows for batch in drawn]), minlength=12)
    assert (batches.num_rows, batches.input_dim, drawn[0].scale) == (12, 2, 12 / 5)
    # Binomial counts of 2,000 rows in 12 cells, less varied still without replacement.
    assert np.abs(counts - 2000 / 12).max() < 5 * np.sqrt(2000 / 12)
    assert all(len(set(batch.rows.tolist())) == 5 for batch in drawn) is not replace
    np.testing.assert_array_equal(drawn[0].X, X[drawn[0].rows])
    np.testing.assert_array_equal(drawn[0].y, y[drawn[0].rows])
    assert drawn[0].X.dtype == jnp.result_type(float)
    np.testing.assert_array_equal(batches.draw(key).rows, batches.draw(key).rows)


def test_memory_maps_are_not_copied(key, tmp_path):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    batches = row_batches(mapped, y, 4)
    assert np.shares_memory(batches._X, mapped)
    batch = batches.draw(key)
    np.testing.assert_array_equal(batch.X, X[batch.rows])


@pytest.mark.parametrize("kind", ["list", "function", "parquet", "dask"])
def test_passes_over_chunks_have_every_row_once(key, tmp_path, kind):
    if kind == "list":
        batches = row_batches(chunks(), None, 3, buffer_size=6)
    elif kind == "function":
        batches = row_batches(lambda: iter(chunks()), None, 3, buffer_size=6)
    elif kind == "parquet":
        pd = pytest.importorskip("pandas")
        pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}).to_parquet(tmp_path / "rows.parquet")
        table = sgp.table_chunks(str(tmp_path / "rows.parquet"), ["a", "b"], "y", chunk_size=5)
        batches = row_batches(table, None, 3, buffer_size=6)
    else:
        array = pytest.importorskip("dask.array")
        batches = row_batches(array.from_array(X, (5, 2)), array.from_array(y, 5), 3, buffer_size=6)
    assert (batches.num_rows, batches.input_dim, batches.scale) == (12, 2, 4.0)
    for _ in range(3):  # three passes
        drawn = [batches.draw(k) for k in jax.random.split(key, 4)]
        np.testing.assert_array_equal(np.sort(np.concatenate([batch.y for batch in drawn])), y)
        assert all((batch.X[:, 0] == 2 * batch.y).all() for batch in drawn)
    some = batches.some(key, 7)
    assert len(set(some.y.tolist())) == 7 and (some.X[:, 0] == 2 * some.y).all()


def test_what_is_left_of_a_pass_goes_into_the_next(key):
    batches = row_batches(chunks(), None, 5, buffer_size=5)
    drawn = np.concatenate([batches.draw(k).y for k in jax.random.split(key, 12)])
    assert np.bincount(drawn.astype(int), minlength=12).min() >= 4  # 60 rows are five passes


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((X, y, 13), {}, "`batch_size` is 13, and there are only 12 rows"),
        ((chunks(), None, 13), {}, "`batch_size` is 13"),
        ((X, y, 0), {}, "`batch_size` must be an integer of 1 or more"),
        ((np.where(X == 4, np.nan, X), y, 3), {}, "`X` has 1 of 12 rows .* row 2"),
        ((X, np.where(y == 4, np.inf, y), 3), {}, "`y` has 1 of 12 rows"),
        ((X, y[:5], 3), {}, "`X` has 12 rows but `y` has 5"),
        ((X, y > 3, 3), {}, "`y` is Boolean"),
        ((X, np.stack([y, y], 1), 3), {}, "must have shape \\(n,\\)"),
        ((X, y, 3), {"likelihood": sgp.likelihoods.Bernoulli()}, "`y` must be"),
        ((X, None, 3), {}, "`y` is missing"),
        ((iter(chunks()), None, 3), {}, "iterator, which can be read once"),
        ((chunks(), None, 3), {"replace": True}, "without replacement"),
        (([], None, 3), {}, "no chunks"),
        (([(X, y, np.ones(12))], None, 3), {}, "row weights"),
        ((X, y, 3), {"input_dim": 3}, "\\(n, 3\\)"),
        ((X[:0], y[:0], 3), {}, "no rows"),
    ],
)
def test_refusals(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        row_batches(*arguments, **options)
