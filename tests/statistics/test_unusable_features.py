"""Features that are not finite, or whose squares are not: refused with the row and the basis, and no sums are lost."""

from __future__ import annotations

import dask.array as da
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ppl_sgp as sgp
from tests.statistics.test_accumulate import assert_same

pytestmark = pytest.mark.float64_only  # on the host, whatever the lane


def logarithm(X):
    return jnp.concatenate([jnp.ones_like(X), jnp.log(X)], axis=1)


LOG = sgp.CallableBasis(logarithm, num_features=2, input_dim=1)
BAD = 17


@pytest.fixture
def rows(rng):
    X = rng.uniform(1.0, 2.0, (30, 1))
    spoilt = X.copy()
    spoilt[BAD] = -1.0
    return X, spoilt, rng.normal(size=30)


@pytest.mark.parametrize("method", ["gram", "qr"])
@pytest.mark.parametrize("workers", [1, 2])
def test_rows_before_the_refused_one_are_kept(rows, method, workers, monkeypatch):
    X, spoilt, y = rows
    monkeypatch.setattr("ppl_sgp.statistics.accumulate.BLOCK_BYTES", 8 * 2 * 5)  # blocks of five rows
    monkeypatch.setattr("ppl_sgp.statistics.side_by_side.cores", lambda: workers)
    message = r"feature 1 of CallableBasis is nan at row 17 of `X`, \[-1.0\]"
    remedy = r"first 15 rows.*update\(X\[15:\], y\[15:\]\)"
    with pytest.raises(sgp.ChunkError, match=f"^sufficient_statistics: {message}.*{remedy}") as caught:
        sgp.sufficient_statistics(LOG, spoilt, y, method=method)
    kept = caught.value.statistics
    assert kept.num_rows == 15
    assert_same(kept, sgp.sufficient_statistics(LOG, X[:15], y[:15], method=method))
    assert_same(kept.update(X[15:], y[15:]), sgp.sufficient_statistics(LOG, X, y, method=method))


def test_a_refused_first_block_has_nothing_to_keep(rows):
    _, spoilt, y = rows
    with pytest.raises(ValueError, match="row 17 of `X`") as caught:
        sgp.sufficient_statistics(LOG, spoilt, y)
    assert not isinstance(caught.value, sgp.ChunkError)


def test_a_refused_chunk_of_an_iterable_keeps_those_before_it(rows):
    X, spoilt, y = rows
    chunks = ((spoilt[i : i + 10], y[i : i + 10]) for i in range(0, 30, 10))
    with pytest.raises(sgp.ChunkError, match="^chunk 1: .*feature 1 of CallableBasis is nan at row 7 of `X`") as caught:
        sgp.sufficient_statistics(LOG, chunks)
    assert_same(caught.value.statistics, sgp.sufficient_statistics(LOG, X[:10], y[:10]))


def test_an_update_does_not_poison_good_sums(rows):
    X, spoilt, y = rows
    stats = sgp.sufficient_statistics(LOG, X, y)
    for change in (stats.update, stats.forget):
        with pytest.raises(ValueError, match="feature 1 of CallableBasis is nan at row 17"):
            change(spoilt, y)
    assert_same(stats, sgp.sufficient_statistics(LOG, X, y))


def test_workers_of_dask_refuse_their_block_alone(rows):
    X, spoilt, y = rows
    with pytest.raises(sgp.ChunkError, match="1 parts.*block 1 of rows.*is nan at row 7") as caught:
        sgp.sufficient_statistics(LOG, da.from_array(spoilt, chunks=(10, 1)), y)
    good = np.arange(30) // 10 != 1
    assert_same(caught.value.statistics, sgp.sufficient_statistics(LOG, X[good], y[good]))


@pytest.mark.parametrize("chunk_size", [None, 4])
def test_devices_refuse_by_the_row_among_all(rows, chunk_size):
    _, spoilt, y = rows
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:2]), ("rows",)), PartitionSpec("rows"))
    with pytest.raises(ValueError, match="features of CallableBasis are not finite at row 17 of `X`"):
        sgp.sufficient_statistics(LOG, jax.device_put(spoilt, sharding), y, chunk_size)
    with pytest.raises(ValueError, match="too large for float64. Rescale"):
        sgp.sufficient_statistics(sgp.LinearBasis(1), jax.device_put(spoilt * 1e155, sharding), y, chunk_size)


@pytest.mark.parametrize("method", ["gram", "qr"])
@pytest.mark.parametrize(
    ("scales", "name"),
    [
        ((1e155, 1.0, 1.0), "feature 2 of LinearBasis"),
        ((1.0, 1e160, 1.0), "`y`"),
        ((1e10, 1.0, 1e300), "feature 2 of LinearBasis"),  # finite alone, not with the row's weight
    ],
)
def test_sums_that_overflow_are_refused(scales, name, method):
    x_scale, y_scale, weight = scales
    X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, -6.0 * x_scale]])
    with pytest.raises(ValueError, match=f"squares of {name} are too large for float64.*row 2. Rescale"):
        sgp.sufficient_statistics(
            sgp.LinearBasis(2), X, y_scale * np.array([1.0, 2.0, 3.0]), row_weights=[1.0, 1.0, weight], method=method
        )


def test_sums_that_overflow_only_together_are_refused(monkeypatch):
    monkeypatch.setattr("ppl_sgp.statistics.accumulate.BLOCK_BYTES", 8 * 2)  # a row a block
    X = np.full((8, 1), 1e154)
    with pytest.raises(ValueError, match="sums of squares are too large"):
        sgp.sufficient_statistics(sgp.LinearBasis(1), X, np.ones(8))


@pytest.mark.parametrize(
    ("basis", "name"),
    [
        (LOG, "feature 1 of CallableBasis"),
        (sgp.stack(sgp.LinearBasis(1), LOG), r"feature 1 of CallableBasis \(part 1 of the stack\)"),
        (sgp.SelectedColumns(LOG, [1], 2), "feature 1 of CallableBasis"),
    ],
)
def test_features_of_new_rows_are_refused_too(basis, name):
    X = np.array([[1.0], [2.0], [-3.0]]) * np.ones(basis.input_dim)
    with pytest.raises(ValueError, match=rf"{name} is nan at row 2 of `X`, \[-3.0.*Leave such rows out"):
        basis.host_features(X)
    with pytest.raises(ValueError, match=f"{name} is nan at row 2"):
        basis(X)
    assert np.isnan(jax.jit(basis)(X)).any()  # where values cannot be read


def test_predictions_at_such_rows_are_refused(rows):
    X, spoilt, y = rows
    stats = sgp.sufficient_statistics(LOG, X, y)

    def model(stats):
        noise_scale = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
        sgp.observe("y", stats, sgp.DiagonalPrior(np.ones(2)), noise_scale)

    prediction = sgp.predict(model, {"noise_scale": jnp.ones(2)}, stats, spoilt)
    with pytest.raises(ValueError, match="feature 1 of CallableBasis is nan at row 17"):
        _ = prediction.mean
