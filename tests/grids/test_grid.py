"""What may be a grid, and what is refused."""

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import ppl_sgp as sgp

AXES = [np.array([1.0, 2.0]), np.array([0.0, 1.0, 4.0])]
VALUES = np.array([[1.0, np.nan, 3.0], [4.0, 5.0, 6.0]])


def test_observed_cells_are_in_row_major_order():
    grid = sgp.Grid(AXES, VALUES, gaps="nan")
    np.testing.assert_array_equal(grid.values, [1, 3, 4, 5, 6])
    np.testing.assert_array_equal(grid.X, [[1, 0], [1, 4], [2, 0], [2, 1], [2, 4]])
    assert (grid.num_cells, grid.num_rows, grid.num_gaps, grid.shape) == (6, 5, 1, (2, 3))
    np.testing.assert_array_equal(grid.gaps, np.isnan(VALUES))
    np.testing.assert_array_equal(grid.to_xarray(), VALUES)


def test_ways_to_say_the_same():
    grid = sgp.Grid(AXES, VALUES, gaps="nan", dims=("a", "b"))
    array = xr.DataArray(VALUES, {"a": AXES[0], "b": AXES[1]})
    rows = array.to_dataframe("y").dropna().reset_index().sample(frac=1, random_state=0)
    filled = np.where(np.isnan(VALUES), 7.0, VALUES)
    others = [
        sgp.Grid(AXES, filled, gaps=np.isnan(VALUES), dims=("a", "b")),
        sgp.Grid(AXES, np.ma.masked_array(filled, np.isnan(VALUES)), dims=("a", "b")),
        sgp.Grid.from_xarray(array, gaps="nan"),
        sgp.Grid.from_xarray(array.fillna(7.0), gaps=array.isnull().T),
        sgp.Grid.from_table(rows, "y", ["a", "b"]),
        sgp.Grid.from_table(rows, "y", ["a", "b"], points={"a": AXES[0]}),
    ]
    for other in others:
        assert repr(other) == repr(grid)
        assert jax.tree.structure(other) == jax.tree.structure(grid)
        assert all(map(np.array_equal, jax.tree.leaves(other), jax.tree.leaves(grid)))


def test_labels_and_dates_come_back():
    days = np.array(["2020-01-01", "2020-01-03", "2020-01-04"], "datetime64[ns]")
    array = xr.DataArray(np.ones((2, 3)), {"station": ["A", "B"], "day": days})
    grid = sgp.Grid.from_xarray(array)
    np.testing.assert_array_equal(grid.axes[1][:, 0], [0, 2, 3])
    np.testing.assert_array_equal(grid.axes[0][:, 0], [0, 1])
    xr.testing.assert_equal(grid.to_xarray(), array)
    assert grid.regular == (False, False)


def test_groups_of_columns():
    places = pd.DataFrame({"lon": [1.0, 1.0, 2.0], "lat": [5.0, 6.0, 5.0]})
    table = places.merge(pd.DataFrame({"t": [0.0, 1.0]}), how="cross").assign(y=np.arange(6.0))
    grid = sgp.Grid.from_table(table, "y", [["lon", "lat"], "t"])
    assert grid.shape == (3, 2) and grid.columns == ["lon_0", "lon_1", "t"]
    np.testing.assert_array_equal(grid.X, table[["lon", "lat", "t"]])
    np.testing.assert_array_equal(grid.values, table["y"])


REFUSED = {
    "nan": (dict(values=VALUES), r"1 of 6 cells.*not declared gaps \(first: \(0, 1\)\).*gaps='nan'"),
    "infinite": (dict(values=np.where(np.isnan(VALUES), np.inf, VALUES), gaps="nan"), "Infinite values are no gaps"),
    "inverted mask": (dict(values=VALUES, gaps=~np.isnan(VALUES)), "True at gaps.*pass `~mask`"),
    "transposed": (dict(values=VALUES.T, gaps="nan"), r"`values` must have shape \(2, 3\).*axes are in another order"),
    "mask shape": (dict(values=VALUES, gaps=np.isnan(VALUES).T), "`gaps` must be Boolean of shape.*another order"),
    "mask dtype": (dict(values=VALUES, gaps=np.isnan(VALUES).astype(int)), "`gaps` must be Boolean.*int64"),
    "all gaps": (dict(values=np.full((2, 3), np.nan), gaps="nan"), "all 6 cells are gaps"),
    "duplicates": (
        dict(axes=[[1, 1], [0, 1, 4]], gaps="nan"),
        r"`axes\[0\]` has 1 points that occur before, such as \[1.0\]",
    ),
    "nan on axis": (dict(axes=[[1, np.nan], [0, 1, 4]], gaps="nan"), r"`axes\[0\]` has 1 of 2 rows"),
    "scalar": (dict(axes=[[1, 2], 3.0], gaps="nan"), r"`axes\[1\]` must have points"),
    "no list": (dict(axes=np.zeros((2, 3)), gaps="nan"), "`axes` must be a list"),
    "dims": (dict(gaps="nan", dims=("a", "a")), "`dims` must be 2 different names"),
    "weights": (dict(gaps="nan", noise_weights=-np.ones((2, 3))), "relative noise precisions"),
    "features": (dict(gaps="nan", features=np.ones((2, 3))), "`features` must have shape"),
    "data array": (dict(values=xr.DataArray(VALUES)), "from_xarray"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    arguments, message = REFUSED[name]
    arguments = {"axes": AXES, "values": VALUES, **arguments}
    with pytest.raises(ValueError, match=message):
        sgp.Grid(arguments.pop("axes"), arguments.pop("values"), **arguments)


def test_tables_that_are_no_grid():
    rows = pd.DataFrame({"a": [1, 1, 2], "b": [0, 0, 1], "y": [1.0, 2.0, 3.0]})
    with pytest.raises(
        ValueError, match=r"1 cells have several rows, the first of them rows 0 and 1 at {'a': 1, 'b': 0}"
    ):
        sgp.Grid.from_table(rows, "y", ["a", "b"])
    with pytest.raises(ValueError, match=r"1 rows are off the grid.*row 2 with b = 1"):
        sgp.Grid.from_table(rows, "y", ["a", "b"], points={"b": [0, 5]})
    with pytest.raises(ValueError, match="no columns"):
        sgp.Grid.from_table(rows, "z", ["a", "b"])
    with pytest.raises(ValueError, match="1 rows without a number"):
        sgp.Grid.from_table(rows.assign(a=[1, 2, 3], y=[1, np.nan, 2]), "y", ["a", "b"])
    scattered = np.random.default_rng(0).normal(size=(1200, 2))
    with pytest.raises(ValueError, match="are no grid"):
        sgp.Grid.from_table({"a": scattered[:, 0], "b": scattered[:, 1], "y": scattered[:, 0]}, "y", ["a", "b"])
