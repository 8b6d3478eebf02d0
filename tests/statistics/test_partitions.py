"""Dask as the engine of the pass: the same sums as NumPy, whatever the blocks and whoever dies."""

from __future__ import annotations

import os
import signal
import threading
import time

import dask
import dask.array as da
import dask.dataframe
import jax
import numpy as np
import pandas as pd
import pytest

import ppl_sgp as sgp

pytestmark = pytest.mark.float64_only  # on the host, whatever the lane
BASIS = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.5), 6, 2)
N = 90


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    return X, np.sin(X[:, 0]), rng.uniform(0.5, 2.0, size=N)


@pytest.fixture
def frame(rows):
    X, y, w = rows
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y, "w": w})


def assert_same(left, right):
    for name, value in vars(right.moments.plain()).items():
        np.testing.assert_allclose(getattr(left.moments, name), value, rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.mark.parametrize(
    "chunks", [(90, 2), (7, 1), ((30, 0, 60), (2,))], ids=["one block", "cut both ways", "an empty block"]
)
@pytest.mark.parametrize("options", [{}, {"method": "qr"}, {"float32_features": True}, {"chunk_size": 4}])
def test_arrays_in_blocks_give_the_sums_of_all_rows(rows, chunks, options):
    X, y, w = rows
    blocks = da.from_array(X, chunks=chunks), da.from_array(y, chunks=20)
    options = {**options, "row_weights": w}
    expected = sgp.sufficient_statistics(BASIS, X, y, **options)
    found = sgp.sufficient_statistics(BASIS, *blocks, **options)
    if "method" in options:  # a root is unique up to signs, which its products are not
        assert type(found.moments) is type(expected.moments)
        found, expected = (sgp.SufficientStatistics(BASIS, each.moments.plain()) for each in (found, expected))
    assert_same(found, expected)


def test_arrays_of_unknown_lengths_go_block_by_block(rows, frame):
    X, y, _ = rows
    parts = dask.dataframe.from_pandas(frame, npartitions=4)
    assert_same(
        sgp.sufficient_statistics(BASIS, parts[["a", "b"]].values, parts["y"].values),
        sgp.sufficient_statistics(BASIS, X, y),
    )
    with pytest.raises(ValueError, match="rows of Dask arrays must match.*compute_chunk_sizes"):
        sgp.sufficient_statistics(BASIS, parts[["a", "b"]].values, y)
    with pytest.raises(ValueError, match="rows of Dask arrays must match"):
        sgp.sufficient_statistics(BASIS, da.from_array(X), y[:-1])


def test_dataframes_count_what_they_leave_out(frame):
    frame.loc[[3, 50, 51], "b"] = np.nan
    frame.loc[0:29, "y"] = np.nan  # all of the first partition
    table = sgp.table_chunks(
        dask.dataframe.from_pandas(frame, npartitions=3), ["a", "b"], "y", row_weights="w", missing="drop"
    )
    kept = frame.dropna()
    expected = sgp.sufficient_statistics(BASIS, kept[["a", "b"]].values, kept["y"].values, row_weights=kept["w"].values)
    assert_same(sgp.sufficient_statistics(BASIS, table), expected)
    assert table.num_dropped == 32


def test_refused_rows_cost_nothing_of_the_other_partitions(rows):
    X, y, _ = rows
    bad = y.copy()
    bad[[35, 77]] = np.nan
    with pytest.raises(sgp.ChunkError, match=r"2 parts.*block 3 of rows.*`y` has 1 of 10 rows.*row 5") as caught:
        sgp.sufficient_statistics(BASIS, da.from_array(X, chunks=(10, 2)), bad)
    good = ~np.isin(np.arange(N) // 10, [3, 7])
    assert_same(caught.value.statistics, sgp.sufficient_statistics(BASIS, X[good], y[good]))


def test_missing_rows_are_refused_by_partition(frame):
    frame.loc[50, "b"] = np.nan
    table = sgp.table_chunks(dask.dataframe.from_pandas(frame, npartitions=3), ["a", "b"], "y")
    with pytest.raises(sgp.ChunkError, match="partition 1: table_chunks: 'b' is missing at row 20") as caught:
        sgp.sufficient_statistics(BASIS, table)
    assert caught.value.statistics.num_rows == 60


def test_nothing_but_refused_or_missing_rows(frame):
    frame["y"] = np.nan
    parts = dask.dataframe.from_pandas(frame, npartitions=2)
    with pytest.raises(ValueError, match="the partitions have no rows"):
        sgp.sufficient_statistics(BASIS, sgp.table_chunks(parts, ["a", "b"], "y", missing="drop"))
    with pytest.raises(sgp.ChunkError, match="2 parts") as caught:
        sgp.sufficient_statistics(BASIS, sgp.table_chunks(parts, ["a", "b"], "y"))
    assert caught.value.statistics is None


def test_a_checkpoint_is_not_of_dask(rows, tmp_path):
    X, y, _ = rows
    with pytest.raises(ValueError, match="summed by Dask do not go with `checkpoint`"):
        sgp.sufficient_statistics(BASIS, da.from_array(X), y, checkpoint=tmp_path / "pass.npz")


def test_progress_is_shown_when_asked_for(rows, capsys):
    X, y, _ = rows
    sgp.sufficient_statistics(BASIS, da.from_array(X), y)
    assert not capsys.readouterr().out
    sgp.sufficient_statistics(BASIS, da.from_array(X), y, progress=True)
    assert "Completed" in capsys.readouterr().out


@pytest.mark.end_to_end
def test_a_cluster_survives_a_worker_that_is_killed(rows, tmp_path):
    from dask.distributed import Client, LocalCluster

    X, y, _ = rows
    started = tmp_path / "started"
    started.mkdir()

    def slow(block, block_info=None):
        (started / f"{block_info[0]['chunk-location'][0]}-{os.getpid()}").touch()
        time.sleep(0.2)
        return block

    killed = []

    def kill():
        while len(blocks := sorted(started.iterdir(), key=lambda path: path.stat().st_mtime)) < 8:
            time.sleep(0.01)
        killed.append(int(blocks[-1].name.split("-")[1]))  # it is at work on this block
        os.kill(killed[0], signal.SIGKILL)

    with LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        killer = threading.Thread(target=kill)
        killer.start()
        blocks = da.from_array(X, chunks=(3, 2)).map_blocks(slow, dtype=float, meta=np.empty((0, 2)))
        found = sgp.sufficient_statistics(BASIS, blocks, y)
        killer.join()
    assert_same(found, sgp.sufficient_statistics(BASIS, X, y))
    assert len(list(started.iterdir())) > 30  # the block of the killed worker was computed again
