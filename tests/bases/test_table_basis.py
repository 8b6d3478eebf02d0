"""Tables where arrays go, through a basis that has a recipe; the stack that is made of the columns of a table."""

import jax
import numpy as np
import pandas as pd
import pytest

import ppl_sgp as sgp
from tests.bases.frozen import check_features

pytestmark = pytest.mark.float64_only
N = 80
INPUTS = ["km", "line", "at", "late"]


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(1)
    at = np.datetime64("2023-03-01", "s") + np.sort(rng.integers(0, 30 * 24, N)) * np.timedelta64(1, "h")
    table = {
        "km": rng.exponential(3.0, N),
        "line": rng.choice(["red", "blue"], N),
        "at": at,
        "late": rng.random(N) < 0.3,
    }
    return pd.DataFrame(table | {"minutes": 20 + table["km"] + 3 * table["late"] + rng.normal(size=N)})


@pytest.fixture(scope="module")
def basis(frame):
    recipe = sgp.recipe(frame, INPUTS, "minutes", unseen="prior")
    return sgp.additive_basis(jax.random.key(0), recipe, joint_features=10)


@pytest.fixture(scope="module")
def stats(basis, frame):
    return sgp.sufficient_statistics(basis, frame)


DRAWS = {
    "intercept_scale": 20.0,
    "linear_scale": [1.0, 0.1],
    "km_amplitude": 1.0,
    "km_lengthscale": 1.0,
    "line_scale": 1.5,
    "at_amplitude": 1.0,
    "at_lengthscale": 9.0,
    "at day_amplitude": 0.5,
    "at day_lengthscale": 1.0,
    "at week_amplitude": 0.5,
    "at week_lengthscale": 1.0,
    "late_scale": 1.0,
    "joint_amplitude": 0.5,
    "noise_scale": 1.0,
}


@pytest.fixture(scope="module")
def posterior(stats):
    return sgp.posterior(sgp.models.additive(), {name: np.array([value]) for name, value in DRAWS.items()}, stats)


def same(left, right):
    np.testing.assert_allclose(left.moments.gram, right.moments.gram, rtol=0, atol=1e-8)
    np.testing.assert_allclose(left.moments.feature_output, right.moments.feature_output, rtol=0, atol=1e-8)
    assert left.num_rows == right.num_rows


def test_parts_follow_the_kinds_of_columns(basis):
    assert basis.part_names == ("intercept", "linear", "km", "line", "at", "at day", "at week", "late", "joint")
    sizes = [part.num_features for part in basis.parts]
    assert sizes == [1, 2, 30, 2, 100, 16, 24, 2, 10]
    assert basis.constant_features.sum() == 1


@pytest.mark.slow
def test_features_are_those_of_the_stack(basis, frame):
    X = basis.recipe(frame)
    check_features(basis, X)
    np.testing.assert_array_equal(basis.host_features(X), basis.basis.host_features(X))
    assert basis.parts[1].basis.host_features(X[:, [0, 2]]).shape == (N, 2)
    np.testing.assert_array_equal(basis.parts[3].host_features(X)[:, 1], frame["line"] == "red")


@pytest.mark.parametrize(
    "span, unit, seasons",
    [
        (10, "D", []),
        (20, "D", ["week"]),
        (800, "D", ["week", "year"]),
        (800, "h", ["day", "week", "year"]),
        (30, "h", ["day", "week"]),
    ],
)
def test_seasons_are_those_that_dates_have_seen(span, unit, seasons):
    day = np.datetime64("2020-01-01", "h") + np.arange(0, span * 24, 7 if unit == "h" else 24) * np.timedelta64(1, "h")
    basis = sgp.additive_basis(jax.random.key(0), sgp.recipe({"d": day}))
    assert [name for name in basis.part_names if " " in name] == [f"d {season}" for season in seasons]
    weeks = [
        part.basis.num_harmonics for name, part in zip(basis.part_names, basis.parts, strict=True) if "week" in name
    ]
    assert all(number == (3 if unit == "D" else 12) for number in weeks)  # days have three harmonics of a week


def test_tables_go_where_arrays_do(basis, stats, frame):
    X, y = basis.recipe(frame), frame["minutes"].to_numpy()
    same(stats, sgp.sufficient_statistics(basis, X, y))
    same(stats, sgp.sufficient_statistics(basis, frame, y))
    same(stats, sgp.sufficient_statistics(basis, frame, chunk_size=13))
    shuffled = [frame[:30], frame.loc[30:, ["minutes", "late", "km", "at", "line"]]]
    same(stats, sgp.sufficient_statistics(basis, shuffled))
    same(stats, sgp.sufficient_statistics(basis, (part for part in shuffled)))
    same(stats, sgp.sufficient_statistics(basis, [(X[:30], y[:30]), frame[30:]]))
    same(stats, sgp.sufficient_statistics(basis, frame[:30]).update(frame[30:]))
    same(sgp.sufficient_statistics(basis, frame[30:]), stats.forget(frame[:30]))


def test_refusals_of_chunks_name_the_column(basis, frame):
    with pytest.raises(sgp.ChunkError, match=r"chunk 1: .*lacks the columns \['km'\]") as caught:
        sgp.sufficient_statistics(basis, [frame[:30], frame[30:].drop(columns="km")])
    assert caught.value.statistics.num_rows == 30


@pytest.mark.slow
@pytest.mark.relaxed_promotion
def test_the_recipe_is_saved_with_the_statistics(stats, posterior, frame, tmp_path):
    stats.save(tmp_path / "stats.npz")
    again = sgp.SufficientStatistics.load(tmp_path / "stats.npz")
    same(again, stats)
    assert again.basis.recipe.columns == tuple(INPUTS)
    np.testing.assert_array_equal(again.basis.recipe(frame), stats.basis.recipe(frame))
    posterior.save(tmp_path / "posterior.npz")
    loaded = sgp.load_posterior(tmp_path / "posterior.npz")
    np.testing.assert_allclose(loaded.predict(frame[:3]).mean, posterior.predict(frame[:3]).mean, rtol=1e-10)


@pytest.mark.slow
def test_predictions_take_tables_in_any_order(stats, posterior, frame):
    X = stats.basis.recipe(frame)
    expected = posterior.predict(X)
    new = frame.drop(columns="minutes")[["late", "at", "line", "km"]]
    found = posterior.predict(new)
    np.testing.assert_array_equal(found.mean, expected.mean)
    np.testing.assert_array_equal(found.variance, expected.variance)
    np.testing.assert_array_equal(
        posterior.predict(new, parts=["km", "line"]).mean, posterior.predict(X, parts=[2, 3]).mean
    )
    one_line = sgp.predict(sgp.models.additive(), posterior.samples, stats, new)
    np.testing.assert_array_equal(one_line.mean, expected.mean)
    np.testing.assert_allclose(
        posterior.leave_one_out(frame), posterior.leave_one_out(X, frame["minutes"].to_numpy()), rtol=1e-10
    )


def test_parts_that_are_not_there_are_refused_with_their_names(posterior, frame):
    with pytest.raises(ValueError, match="names, of 'intercept', 'linear', 'km'.*got 'price'"):
        posterior.predict(frame, parts="price")


def test_new_levels_have_the_spread_of_the_others(posterior, frame):
    known, new = frame[:1], frame[:1].assign(line="night")
    prior = posterior.predict(new, parts="line")
    np.testing.assert_allclose([prior.mean[0], prior.variance[0]], [0.0, 1.5**2], atol=1e-12)
    assert posterior.predict(new).variance[0] > posterior.predict(known).variance[0] + 1


def test_rotated_statistics_keep_the_recipe_and_the_names(stats, frame):
    rotated = stats.rotate()
    assert rotated.basis.recipe is stats.basis.recipe and rotated.basis.part_names == stats.basis.part_names
    X, y = stats.basis.recipe(frame[:5]), frame["minutes"].to_numpy()[:5]
    same(rotated.update(frame[:5]), rotated.update(X, y))


def test_missing_values_have_an_effect_of_their_own(frame):
    holes = frame.copy()
    holes.loc[3:20, "km"], holes.loc[7, "line"] = np.nan, None
    recipe = sgp.recipe(holes, INPUTS, "minutes", missing="indicator")
    basis = sgp.additive_basis(jax.random.key(0), recipe, joint_features=0)
    linear = basis.parts[1].host_features(recipe(holes))
    assert basis.recipe.columns[:2] == ("km", "km is missing") and linear.shape[1] == 3
    assert linear[3:21].tolist()[0][:2] == [0.0, 1.0] and linear[:, 1].sum() == 18
    assert basis.parts[3].basis.labels == ("blue", "red", "missing")


def test_refusals(frame, basis):
    recipe = sgp.recipe(frame, INPUTS, "minutes")
    with pytest.raises(ValueError, match="takes 2 inputs, and the recipe makes 4: .*SelectedColumns"):
        sgp.TableBasis(sgp.LinearBasis(2), recipe)
    with pytest.raises(ValueError, match="`table_recipe` must be a Recipe; got dict"):
        sgp.TableBasis(sgp.LinearBasis(2), {})
    with pytest.raises(ValueError, match="`recipe` must be what sgp.recipe"):
        sgp.additive_basis(jax.random.key(0), frame)
    with pytest.raises(ValueError, match="column called 'linear' would be taken for a part"):
        sgp.additive_basis(jax.random.key(0), sgp.recipe({"linear": [1.0, 2.0]}))
    with pytest.raises(ValueError, match="must be real numbers|number"):
        sgp.sufficient_statistics(sgp.LinearBasis(1), frame[["line"]], frame["minutes"])


@pytest.mark.slow
@pytest.mark.relaxed_promotion
def test_a_report_takes_the_table_and_looks_at_each_part(posterior, frame):
    report = sgp.report(posterior, X=frame, X_new=frame[:2])
    assert not [each for each in report.findings if "nan" in each.symptom]
    few = [each for each in report.findings if each.check == "poor kernel"]
    assert all("Part 'joint'" in each.symptom for each in few)
