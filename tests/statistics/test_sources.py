"""Tables of other libraries: the same sums as the arrays, missing values counted or refused."""

import decimal
import importlib

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


TEXT = {
    "text": lambda n: [str(i) for i in range(n - 1)] + ["1_0"],
    "text beside numbers": lambda n: [0.5] * (n - 1) + ["1_0"],
    "dates": lambda n: pd.date_range("2020-01-01", periods=n),
    "periods": lambda n: pd.to_timedelta(np.arange(n), unit="h"),
    "categories": lambda n: pd.Categorical(["a", "b"] * (n // 2) + ["a"]),
    "complex": lambda n: np.ones(n) + 1j,
}


@pytest.mark.parametrize("kind", TEXT)
def test_what_is_no_number_is_not_parsed(kind, frame):
    for changed in (frame.assign(a=TEXT[kind](N)), frame.assign(y=TEXT[kind](N))):
        with pytest.raises(ValueError, match="the column '[ay]' must hold numbers; got .*Encode|to_numeric"):
            list(sgp.table_chunks(changed, ["a"], "y"))
    text = pa.table({"a": pa.array(["1", "2"]), "y": [1.0, 2.0]})
    with pytest.raises(ValueError, match="the column 'a' must hold numbers; got str"):
        list(sgp.table_chunks(text, ["a"], "y"))


def test_numbers_as_categories_are_numbers_as_of_arrays(frame):
    codes = np.arange(N) % 3
    for values in (codes, codes + 0.5):
        changed = frame.assign(a=pd.Categorical(values))
        ((X, _),) = sgp.table_chunks(changed, ["a"], "y")
        np.testing.assert_array_equal(X[:, 0], values)
    changed.loc[4, "a"] = None
    with pytest.raises(ValueError, match="'a' is missing at row 4"):
        list(sgp.table_chunks(changed, ["a"], "y"))


@pytest.mark.parametrize("dtype", [bool, "boolean", object])
def test_a_boolean_output_is_refused_as_of_arrays(dtype, frame):
    frame["flag"] = (frame["y"] > 0).astype(dtype)
    for table in (frame, pa.Table.from_pandas(frame)):
        with pytest.raises(ValueError, match="the output 'flag' is Boolean.*compress_likelihood.*floating"):
            list(sgp.table_chunks(table, ["a"], "flag"))
        ((X, y),) = sgp.table_chunks(table, ["flag"], "y")  # an indicator among the inputs is 0 or 1, as of arrays
        np.testing.assert_array_equal(X[:, 0], y > 0)


def test_numbers_of_other_types(frame):
    table = pa.table(
        {
            "a": pa.array([decimal.Decimal("1.00"), None, decimal.Decimal("2.50")]),
            "y": pa.array([1, 2, None], pa.int16()),
        }
    )
    rows = sgp.table_chunks(table, ["a"], "y", missing="drop")
    ((X, y),) = rows
    assert (X.tolist(), y.tolist(), rows.num_dropped) == ([[1.0]], [1.0], 2)


def test_columns_of_one_name_are_refused(frame):
    table = pd.concat([frame, frame[["a"]]], axis=1)
    with pytest.raises(ValueError, match=r"several columns of the names \['a'\]. Rename"):
        sgp.table_chunks(table, ["a", "b"], "y")
    assert len(list(sgp.table_chunks(table, ["b"], "y"))) == 1  # others do not matter
    for inputs, output in ((["a", "a"], "y"), (["a", "y"], "y"), (["a"], ["y", "y"])):
        with pytest.raises(ValueError, match="asked for twice"):
            sgp.table_chunks(frame, inputs, output)


def test_names_that_are_no_text():
    table = pd.DataFrame(np.arange(6.0).reshape(3, 2))
    ((X, y),) = sgp.table_chunks(table, [0], 1)
    assert (X.tolist(), y.tolist()) == ([[0.0], [2.0], [4.0]], [1.0, 3.0, 5.0])


def test_a_missing_value_midway_costs_no_sums(frame):
    frame.loc[35, "a"] = np.nan
    rows = sgp.table_chunks(frame, ["a", "b"], "y", chunk_size=10)
    with pytest.raises(sgp.ChunkError, match="^chunk 3: table_chunks: 'a' is missing at row 35") as caught:
        sgp.sufficient_statistics(BASIS, rows)
    X, y = frame[["a", "b"]].to_numpy(), frame["y"].to_numpy()
    assert_same(caught.value.statistics, sgp.sufficient_statistics(BASIS, X[:30], y[:30]))


def test_the_remedy_for_one_missing_output_keeps_the_others(frame):
    frame.loc[3, "z"] = np.nan
    with pytest.raises(ValueError, match="'z' is missing at row 3.*chunks, and statistics, of each output alone"):
        list(sgp.table_chunks(frame, ["a", "b"], ["y", "z"]))
    X, Y = frame[["a", "b"]].to_numpy(), frame[["y", "z"]].to_numpy()
    with pytest.raises(ValueError, match=r"`y` has 1 of 53 rows.*statistics of each output j of its own") as caught:
        sgp.sufficient_statistics(BASIS, X, Y)
    assert "`known = np.isfinite(y[:, j])`, `X[known]`, `y[known, j]`" in str(caught.value)
    for j, name in enumerate("yz"):
        known = np.isfinite(Y[:, j])
        of_tables = sgp.table_chunks(frame, ["a", "b"], name, missing="drop")
        of_arrays = sgp.sufficient_statistics(BASIS, X[known], Y[known, j])
        assert_same(sgp.sufficient_statistics(BASIS, of_tables), of_arrays)
        assert of_arrays.num_rows == N - j


@pytest.mark.parametrize("error", [OSError("the disk is gone"), KeyError("b"), KeyboardInterrupt()])
def test_an_iterable_that_breaks_off_costs_no_sums(error, frame):
    X, y = frame[["a", "b"]].to_numpy(), frame["y"].to_numpy()

    def chunks():
        yield X[:20], y[:20]
        yield X[20:30], y[20:30]
        raise error

    expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else sgp.ChunkError
    with pytest.raises(expected) as caught:
        sgp.sufficient_statistics(BASIS, chunks())
    assert_same(caught.value.statistics, sgp.sufficient_statistics(BASIS, X[:30], y[:30]))
    if expected is KeyboardInterrupt:
        assert "2 chunks" in "".join(caught.value.__notes__)
    else:
        assert caught.value.__cause__ is error and "chunk 2" in str(caught.value)


@pytest.mark.parametrize(
    ("package", "extra", "call"),
    [
        ("pyarrow", "parquet", lambda frame: sgp.table_chunks("rows.parquet", ["a"], "y")),
        (
            "dask",
            "dask",
            lambda frame: sgp.sufficient_statistics(
                BASIS, sgp.table_chunks(dask.dataframe.from_pandas(frame, npartitions=2), ["a", "b"], "y")
            ),
        ),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_its_extra(package, extra, call, frame, monkeypatch):
    original = importlib.import_module

    def missing(name, *args):
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return original(name, *args)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(
        ImportError, match=rf"needs {package}, which is not installed.*pip install \"ppl_sgp\[{extra}\]\""
    ):
        call(frame)
