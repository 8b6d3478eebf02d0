"""Statistics by group of rows: what each holds, files, and what is refused."""

import numpy as np
import pytest

import ppl_sgp as sgp
from tests.builders import IdentityBasis

BASIS = IdentityBasis(3)


@pytest.fixture
def rows(rng):
    return rng.standard_normal((12, 3)), rng.standard_normal(12), np.repeat(["b", "a", "c"], 4)


def same(left, right):
    np.testing.assert_array_equal(left.moments.gram, right.moments.gram)
    np.testing.assert_array_equal(left.projection, right.projection)


def test_groups_hold_the_statistics_of_their_rows(rows, rng, tmp_path):
    X, y, groups = rows
    row_weights = rng.uniform(1, 2, 12)
    statistics = sgp.grouped_statistics(BASIS, X, y, groups, row_weights)
    assert statistics.names == ("a", "b", "c") and not statistics.same_rows
    for name in "abc":
        of = groups == name
        same(statistics.group(name), sgp.sufficient_statistics(BASIS, X[of], y[of], row_weights=row_weights[of]))
    statistics.save(tmp_path / "groups.npz")
    again = sgp.GroupedStatistics.load(tmp_path / "groups.npz")
    assert again.names == statistics.names
    same(again.group("b"), statistics.group("b"))
    columns = statistics.columns(y, groups)
    np.testing.assert_array_equal(columns[groups == "b", 1], y[groups == "b"])
    assert np.isnan(columns).sum() == 24


def test_outputs_hold_the_rows_where_they_are_known(rows):
    X, y, _ = rows
    both = np.stack([y, -y], axis=1)
    assert sgp.output_statistics(BASIS, X, both).same_rows
    both[:5, 1] = np.nan
    statistics = sgp.output_statistics(BASIS, X, both, names=["u", "v"])
    assert not statistics.same_rows
    np.testing.assert_array_equal(statistics.num_rows, [12, 7])
    same(statistics.group("v"), sgp.sufficient_statistics(BASIS, X[5:], -y[5:]))


def test_what_cannot_be_grouped_is_refused(rows, tmp_path):
    X, y, groups = rows
    stats = sgp.sufficient_statistics(BASIS, X, y)
    with pytest.raises(ValueError, match="by the name of their group"):
        sgp.GroupedStatistics.of([stats])
    with pytest.raises(ValueError, match="of one output"):
        sgp.GroupedStatistics.of({"a": sgp.sufficient_statistics(BASIS, X, np.stack([y, y], axis=1))})
    with pytest.raises(ValueError, match="rotated ones"):
        sgp.GroupedStatistics.of({"a": stats.rotate()})
    with pytest.raises(ValueError, match="differ as text"):
        sgp.GroupedStatistics.of({1: stats, "1": stats})
    with pytest.raises(ValueError, match=r"must have shape \(12,\)"):
        sgp.grouped_statistics(BASIS, X, y, groups[:5])
    with pytest.raises(ValueError, match="finite or NaN where missing"):
        sgp.output_statistics(BASIS, X, y)
    with pytest.raises(ValueError, match="output '1' is missing in all rows"):
        sgp.output_statistics(BASIS, X, np.stack([y, y * np.nan], axis=1))
    with pytest.raises(ValueError, match="3 names for 1 outputs"):
        sgp.output_statistics(BASIS, X, y[:, None], names="abc")
    grouped = sgp.GroupedStatistics.of({"a": stats})
    with pytest.raises(ValueError, match="no group 'z'"):
        grouped.group("z")
    with pytest.raises(ValueError, match="and groups"):
        grouped.columns(y, groups)
    stats.save(tmp_path / "plain.npz")
    with pytest.raises(ValueError, match="not grouped statistics"):
        sgp.GroupedStatistics.load(tmp_path / "plain.npz")
