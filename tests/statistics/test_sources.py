"""Tables of other libraries: the same sums as the arrays, missing values counted or refused."""

import dask.dataframe
import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
import xarray as xr

import ppl_sgp as sgp

pytestmark = pytest.mark.float64_only  # on the host, whatever the lane
BASIS = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.5), 6, 2)
N = 53


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(N, 3)), columns=["a", "b", "other"])
    table["count"] = rng.integers(0, 9, size=N)  # whole numbers are numbers
    table["y"], table["z"], table["w"] = rng.normal(size=N), rng.normal(size=N), rng.uniform(0.5, 2.0, size=N)
    return table


def parquet(frame, path):
    for i, part in enumerate((frame[:20], frame[20:])):
        pa.parquet.write_table(pa.Table.from_pandas(part), path / f"{i}.parquet", row_group_size=7)
    return str(path)


def netcdf(frame, path):
    xr.Dataset.from_dataframe(frame).to_netcdf(path / "rows.nc", engine="h5netcdf")
    return xr.open_dataset(path / "rows.nc", engine="h5netcdf")


def zarr(frame, path):
    xr.Dataset.from_dataframe(frame).chunk(index=11).to_zarr(path / "rows.zarr", consolidated=False)
    return xr.open_zarr(path / "rows.zarr", consolidated=False)


TABLES = {
    "pandas": lambda frame, path: frame,
    "arrow table": lambda frame, path: pa.Table.from_pandas(frame),
    "arrow reader": lambda frame, path: pa.Table.from_pandas(frame).to_reader(max_chunksize=10),
    "arrow dataset": lambda frame, path: pa.dataset.dataset(parquet(frame, path)),
    "parquet folder": parquet,
    "xarray": lambda frame, path: xr.Dataset.from_dataframe(frame),
    "NetCDF": netcdf,
    "Zarr": zarr,
    "dask": lambda frame, path: dask.dataframe.from_pandas(frame, npartitions=4),
}


@pytest.fixture(params=TABLES)
def table(request, frame, tmp_path):
    made = TABLES[request.param](frame, tmp_path)
    yield made
    if hasattr(made, "close"):
        made.close()


def assert_same(left, right):
    for name, value in vars(left.moments.plain()).items():
        np.testing.assert_allclose(value, getattr(right.moments, name), rtol=1e-12, atol=1e-12, err_msg=name)


def test_sums_are_those_of_the_arrays(table, frame):
    rows = sgp.table_chunks(table, ["b", "count"], "y", row_weights="w", chunk_size=16)
    expected = sgp.sufficient_statistics(
        BASIS, frame[["b", "count"]].to_numpy(), frame["y"].to_numpy(), row_weights=frame["w"].to_numpy()
    )
    assert_same(sgp.sufficient_statistics(BASIS, rows), expected)
    assert rows.num_dropped == 0


def test_several_outputs_and_a_second_iteration(frame):
    rows = sgp.table_chunks(frame, ["a", "b"], ["y", "z"], chunk_size=10)
    assert [len(X) for X, _ in rows] == [10, 10, 10, 10, 10, 3]
    expected = sgp.sufficient_statistics(BASIS, frame[["a", "b"]].to_numpy(), frame[["y", "z"]].to_numpy())
    assert_same(sgp.sufficient_statistics(BASIS, rows), expected)


@pytest.mark.parametrize("kind", [kind for kind in TABLES if kind != "arrow reader"])
def test_missing_values_are_refused_or_dropped_and_counted(kind, frame, tmp_path):
    frame.loc[[3, 17, 40], "a"] = np.nan
    frame["count"] = frame["count"].astype("Int64" if kind in ("pandas", "arrow table") else float)
    frame.loc[17, "count"] = None
    made = TABLES[kind](frame, tmp_path)
    rows = sgp.table_chunks(made, ["a", "count"], "y", missing="drop", chunk_size=16)
    complete = frame.dropna()
    expected = sgp.sufficient_statistics(
        BASIS, complete[["a", "count"]].to_numpy(dtype=float), complete["y"].to_numpy()
    )
    assert_same(sgp.sufficient_statistics(BASIS, rows), expected)
    assert rows.num_dropped == 3
    with pytest.raises(ValueError, match="'a' is missing at row 3. Impute"):
        list(sgp.table_chunks(made, ["a", "count"], "y"))
    if hasattr(made, "close"):
        made.close()


def test_a_column_without_missing_values_is_not_affected_by_others(frame):
    frame.loc[3, "other"] = np.nan
    assert sgp.sufficient_statistics(BASIS, sgp.table_chunks(frame, ["a", "b"], "y")).num_rows == N


def test_a_checkpoint_works_with_tables(frame, tmp_path):
    rows = sgp.table_chunks(frame, ["a", "b"], "y", chunk_size=10)
    path = tmp_path / "pass.npz"
    first = sgp.sufficient_statistics(BASIS, rows, checkpoint=path)
    assert_same(sgp.sufficient_statistics(BASIS, rows, checkpoint=path), first)


@pytest.mark.parametrize(
    "match, make",
    [
        (r"lacks the columns \['c'\]; it has \['a', 'b'", lambda f: sgp.table_chunks(f, ["a", "c"], "y")),
        ("must be a list of names", lambda f: sgp.table_chunks(f, "a", "y")),
        ("`missing` must be one of", lambda f: sgp.table_chunks(f, ["a"], "y", missing="ignore")),
        ("`chunk_size` must be", lambda f: sgp.table_chunks(f, ["a"], "y", chunk_size=0)),
        ("Arrays go into sufficient_statistics", lambda f: sgp.table_chunks(f.to_numpy(), ["a"], "y")),
        ("'a' must hold numbers", lambda f: list(sgp.table_chunks(f.assign(a="text"), ["a"], "y"))),
        (
            "share one dimension",
            lambda f: list(sgp.table_chunks(xr.Dataset({"a": ("i", [1.0]), "y": ("j", [1.0])}), ["a"], "y")),
        ),
    ],
)
def test_refusals(match, make, frame):
    with pytest.raises(ValueError, match=match):
        make(frame)
