"""Recipes of tables: the inputs that are made by hand, from every library; refusals that name column and remedy."""

import datetime
import decimal
import pickle

import dask.dataframe
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
import xarray as xr

import ppl_sgp as sgp

pytestmark = pytest.mark.float64_only  # on the host, whatever the lane
N = 60
INPUTS = ["km", "line", "at", "late"]


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    start = np.datetime64("2023-03-01T06:00:00", "us")
    return pd.DataFrame(
        {
            "minutes": rng.normal(size=N),
            "km": rng.exponential(3.0, N),
            "line": rng.choice(["red", "blue", "green"], N),
            "at": start + np.sort(rng.integers(0, 40 * 24, N)) * np.timedelta64(1, "h"),
            "late": rng.random(N) < 0.3,
            "other": "x",
            "weight": rng.uniform(0.5, 2.0, N),
        }
    )


@pytest.fixture(scope="module")
def by_hand(frame):
    """The inputs, by the definitions in the docstring."""
    low, middle, high = np.quantile(frame["km"], [0.25, 0.5, 0.75])
    days = (frame["at"] - frame["at"].min()).dt.total_seconds() / 86400
    return np.stack(
        [
            (frame["km"] - middle) / ((high - low) / 1.3489795003921634),
            frame["line"].map({"blue": 0, "green": 1, "red": 2}),
            days,
            frame["late"].astype(float),
        ],
        axis=1,
    ).astype(float)


class Capsule:
    """A table of another library, of which only Arrow's PyCapsule protocol is known."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def parquet(frame, path):
    pa.parquet.write_table(pa.Table.from_pandas(frame), path / "rows.parquet", row_group_size=17)
    return str(path / "rows.parquet")


def polars(frame, path):
    return pytest.importorskip("polars").from_pandas(frame.assign(line=frame["line"].astype(object)))


TABLES = {
    "pandas": lambda frame, path: frame,
    "pandas categories": lambda frame, path: frame.assign(line=frame["line"].astype("category")),
    "pandas in Arrow": lambda frame, path: frame.convert_dtypes(dtype_backend="pyarrow"),
    "arrow table": lambda frame, path: pa.Table.from_pandas(frame),
    "arrow dictionary": lambda frame, path: pa.Table.from_pandas(frame.assign(line=frame["line"].astype("category"))),
    "arrow dataset": lambda frame, path: pa.dataset.dataset(parquet(frame, path)),
    "parquet": parquet,
    "PyCapsule": lambda frame, path: Capsule(pa.Table.from_pandas(frame)),
    "polars": polars,
    "xarray": lambda frame, path: xr.Dataset.from_dataframe(frame),
    "dask": lambda frame, path: dask.dataframe.from_pandas(frame, npartitions=3),
    "dictionary": lambda frame, path: {name: frame[name].to_numpy() for name in frame},
    "lists": lambda frame, path: {name: frame[name].tolist() for name in frame},
}


@pytest.mark.parametrize("library", TABLES)
def test_inputs_are_those_made_by_hand(library, frame, by_hand, tmp_path):
    table = TABLES[library](frame, tmp_path)
    recipe = sgp.recipe(table, INPUTS, "minutes", row_weights="weight")
    assert recipe.columns == tuple(INPUTS)
    np.testing.assert_allclose(recipe(table), by_hand, rtol=0, atol=1e-10)
    chunks = list(recipe.rows(table, chunk_size=25))
    X, y, omega = (np.concatenate(each) for each in zip(*chunks, strict=True))
    assert max(len(chunk[0]) for chunk in chunks) <= 25
    for found, expected in ((X, by_hand), (y, frame["minutes"]), (omega, frame["weight"])):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_a_recipe_of_several_tables_is_that_of_all_rows(frame, by_hand):
    recipe = sgp.recipe([frame[:7], frame[7:30], frame[30:]], INPUTS, "minutes")
    np.testing.assert_allclose(recipe(frame), by_hand, rtol=0, atol=1e-10)


def test_columns_go_by_name_and_nothing_is_learned_from_new_rows(frame, by_hand):
    recipe = sgp.recipe(frame, INPUTS, "minutes")
    new = frame.loc[[50, 3], ["late", "at", "line", "km"]]  # no output, another order
    np.testing.assert_array_equal(recipe(new), recipe(frame)[[50, 3]])
    assert recipe(frame[:0]).shape == (0, 4)


def test_all_other_columns_are_inputs_unless_named(frame):
    assert sgp.recipe(frame.drop(columns="other"), output="minutes").inputs == ("km", "line", "at", "late", "weight")


def test_units_of_dates_do_not_matter_and_zones_are_utc(frame):
    recipe = sgp.recipe(frame, ["at"], "minutes")
    for unit in ("s", "ms", "ns"):
        np.testing.assert_array_equal(recipe(frame.assign(at=frame["at"].astype(f"datetime64[{unit}]"))), recipe(frame))
    rome = frame.assign(at=frame["at"].dt.tz_localize("UTC").dt.tz_convert("Europe/Rome"))
    zoned = sgp.recipe(rome, ["at"], "minutes")
    np.testing.assert_array_equal(zoned(rome), recipe(frame))
    np.testing.assert_array_equal(zoned(pa.Table.from_pandas(rome)), recipe(frame))
    with pytest.raises(ValueError, match="'at' had no time zone.*now has one.*tz_localize"):
        recipe(rome)
    with pytest.raises(ValueError, match="'at' had a time zone"):
        zoned(frame)


def test_dates_of_python_are_dates():
    days = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 31), None]
    recipe = sgp.recipe({"day": days, "y": [1.0, 2.0, 3.0]}, output="y", missing="indicator")
    assert recipe.columns == ("day", "day is missing")
    assert recipe({"day": days}).tolist() == [[0, 0], [30, 0], [0, 1]]


def test_instants_keep_their_digits():
    at = np.datetime64("2024-05-05T10:00:00.000000001", "ns") + np.arange(3) * np.timedelta64(1, "s")
    encoded = sgp.recipe({"at": at})({"at": at})[:, 0]
    np.testing.assert_allclose(np.diff(encoded) * 86400, 1, rtol=1e-6)  # 86400 * eps * 2e4 days is 4e-7 seconds


@pytest.mark.parametrize(
    "values, levels",
    [
        ([3, 1, 3], (1, 3)),
        ([3.0, np.nan, 1.0], (1, 3, None)),
        (["b", None, "a"], ("a", "b", None)),
        ([True, False, True], (False, True)),
        (pd.array([3, None, 1], dtype="Int64"), (1, 3, None)),
        (pd.array(["b", pd.NA, "a"], dtype="string"), ("a", "b", None)),
        (pd.Categorical([2, 1, None]), (1, 2, None)),
        ([decimal.Decimal(2), decimal.Decimal(1), None], (1, 2, None)),
    ],
)
def test_levels(values, levels):
    table = pd.DataFrame({"group": values})
    recipe = sgp.recipe(table, kinds={"group": "category"}, missing="indicator")
    assert recipe.encodings[0].levels == levels
    assert recipe(table)[:, 0].tolist() == [levels.index(None if pd.isna(v) else v) for v in table["group"]]


def test_levels_may_be_given():
    table = {"size": ["S", "L"]}
    recipe = sgp.recipe(table, kinds={"size": ["S", "M", "L"]})
    assert recipe({"size": ["M", "L"]}).tolist() == [[1.0], [2.0]]
    with pytest.raises(ValueError, match=r"levels of 'size' in `kinds` lack \['L'\], which occur"):
        sgp.recipe(table, kinds={"size": ["S", "M"]})


def test_missing_values_are_refused_by_name_and_row(frame):
    for name in INPUTS:
        holes = frame.astype({"late": object}).copy()
        holes.loc[[41, 44], name] = None
        with pytest.raises(
            ValueError, match=f"{name!r} is missing in 2 rows, the first of them row 41.*drop.*indicator"
        ):
            sgp.recipe(holes, INPUTS, "minutes")
        with pytest.raises(ValueError, match=f"{name!r} is missing at row 41.*indicator"):
            sgp.recipe(frame, INPUTS, "minutes")(holes)


def test_missing_values_get_an_indicator(frame, by_hand):
    holes = frame.copy()
    holes.loc[41, "km"], holes.loc[[5, 6], "line"] = np.nan, None
    recipe = sgp.recipe(holes, ["km", "line"], "minutes", missing="indicator")
    X = recipe(holes)
    assert recipe.columns == ("km", "km is missing", "line")
    assert X[41, :2].tolist() == [0, 1] and X[:, 1].sum() == 1
    assert recipe.encodings[1].labels == ("blue", "green", "red", "missing") and X[5, 2] == 3
    assert recipe(frame)[41, 1] == 0  # frozen: nothing missing is no reason to drop the column


def test_rows_with_missing_values_are_dropped_and_counted(frame):
    holes = frame.copy()
    holes.loc[41, "km"], holes.loc[[5, 6], "line"], holes.loc[[5, 9], "minutes"] = np.nan, None, np.nan
    holes.loc[9, "line"] = "night"  # a level of rows that are left out is none
    recipe = sgp.recipe(holes, ["km", "line"], "minutes", missing="drop")
    rows = recipe.rows(holes, chunk_size=20)
    X, y = (np.concatenate(each) for each in zip(*rows, strict=True))
    kept = frame.drop(index=[5, 6, 9, 41])
    assert rows.num_dropped == 4 and recipe.encodings[1].levels == ("blue", "green", "red")
    np.testing.assert_array_equal(y, kept["minutes"])
    np.testing.assert_array_equal(X, sgp.recipe(kept, ["km", "line"], "minutes")(kept))
    with pytest.raises(ValueError, match="'km' is missing at row 41"):
        recipe(holes.assign(line="red"))  # rows to predict are never left out


def test_a_missing_output_is_refused_unless_dropped(frame):
    holes = frame.copy()
    holes.loc[33, "minutes"] = np.nan
    for missing in ("refuse", "indicator"):
        with pytest.raises(ValueError, match="'minutes' is missing at row 33.*drop"):
            list(sgp.recipe(holes, INPUTS, "minutes", missing=missing).rows(holes))


def test_unseen_levels(frame):
    recipe = sgp.recipe(frame, ["line"], "minutes")
    new = pd.DataFrame({"line": ["red", "night", "tram", "night"]})
    with pytest.raises(
        ValueError, match="'line' has levels .* not seen: night, tram, first at row 1; it knows blue, green"
    ):
        recipe(new)
    assert sgp.recipe(frame, ["line"], "minutes", unseen="prior")(new)[:, 0].tolist() == [2, 3, 4, 3]


@pytest.mark.parametrize(
    "column, values, match",
    [
        ("km", "far", "'km' holds numbers in the recipe; got text.*to_numeric"),
        ("km", np.datetime64("2024-01-01", "us"), "'km' holds numbers in the recipe; got dates"),
        ("km", np.inf, "'km' is inf at row 0"),
        ("line", 7, "'line' holds a category in the recipe; got numbers.*text, such as 'blue'"),
        ("line", 7.5, "'line' holds 7.5: levels of a category are text"),
        ("at", "2024-01-01", "'at' holds dates in the recipe; got text.*to_datetime"),
        ("at", 19_000.0, "'at' holds dates in the recipe; got numbers"),
        ("late", "yes", "'late' holds a category in the recipe; got text"),
    ],
)
def test_other_kinds_than_in_the_recipe_are_refused(column, values, match, frame):
    with pytest.raises(ValueError, match=match):
        sgp.recipe(frame, INPUTS, "minutes")(frame.assign(**{column: values}))


@pytest.mark.parametrize(
    "match, arguments",
    [
        (r"lacks the columns \['altitude'\]; it has \['at', 'km'", {"inputs": ["altitude"]}),
        (r"must be a list of names; got 'km'. Use \['km'\]", {"inputs": "km"}),
        ("'other' is x in all rows.*Leave it out", {"inputs": ["other"]}),
        (r"asked for twice", {"inputs": ["km", "minutes"]}),
        (r"`kinds` names \['late'\].* not among the inputs", {"inputs": ["km"], "kinds": {"late": "category"}}),
        ("kind of 'km' must be one of 'number'", {"inputs": ["km"], "kinds": {"km": "ordinal"}}),
        (
            "'line' must hold a number, as `kinds` says; got text.*to_numeric",
            {"inputs": ["line"], "kinds": {"line": "number"}},
        ),
        ("'km' holds .*: levels of a category", {"inputs": ["km"], "kinds": {"km": "category"}}),
        ("`missing` must be one of 'refuse'", {"inputs": ["km"], "missing": "ignore"}),
        ("`unseen` must be one of 'refuse'", {"inputs": ["km"], "unseen": "zero"}),
        ("no inputs", {"inputs": []}),
    ],
)
def test_refusals(match, arguments, frame):
    with pytest.raises(ValueError, match=match):
        sgp.recipe(frame, output="minutes", **arguments)


@pytest.mark.parametrize(
    "match, column",
    [
        ("'a' must hold numbers, text, Booleans or dates; got numbers and text", [1, "b", 2]),
        ("'a' must hold .*; got durations.*timedelta64", np.arange(3) * np.timedelta64(1, "s")),
        ("'a' has no values. Leave it out", [None, None, None]),
        ("'a' is 2.0 in all rows", [2.0, 2.0, 2.0]),
        ("'a' must hold .*; got bytes", [b"a", b"b", b"c"]),
    ],
)
def test_columns_that_cannot_be_inputs_are_refused(match, column):
    with pytest.raises(ValueError, match=match):
        sgp.recipe({"a": column, "b": [1.0, 2.0, 3.0]})


def test_names_are_no_category():
    with pytest.raises(ValueError, match="'id' has more than 1000 levels.*merge rare levels.*to_datetime"):
        sgp.recipe({"id": [f"N{i}" for i in range(1001)]})


def test_a_recipe_without_output_has_no_rows(frame):
    with pytest.raises(ValueError, match="made without an output"):
        sgp.recipe(frame, ["km"]).rows(frame)


def test_several_outputs_are_columns_of_y(frame):
    recipe = sgp.recipe(frame, ["line"], ["minutes", "km"])
    ((_, y),) = recipe.rows(frame)
    np.testing.assert_array_equal(y, frame[["minutes", "km"]])


def test_it_pickles_and_prints(frame):
    recipe = sgp.recipe(frame, INPUTS, "minutes")
    again = pickle.loads(pickle.dumps(recipe))
    np.testing.assert_array_equal(again(frame), recipe(frame))
    text = str(recipe)
    assert "line: a category, 3 levels" in text and "at: dates, days since 2023-03-0" in text


def test_medians_of_many_rows_are_those_of_a_sample(monkeypatch):
    monkeypatch.setattr("ppl_sgp.tables.summaries.SAMPLE", 2000)
    x = np.sort(np.random.default_rng(0).normal(5.0, 2.0, 50_000))  # in order: what comes first is not typical
    encoding = sgp.recipe([{"x": part} for part in np.split(x, 10)]).encodings[0]
    # Standard errors of a median and a quartile range of 2,000: 0.056 and 0.05.
    assert abs(encoding.centre - 5) < 0.25 and abs(encoding.spread - 2) < 0.25
    assert (encoding.low, encoding.high) == (x[0], x[-1])
