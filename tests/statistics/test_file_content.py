"""Names, fields and versions in files: classes load as what they were, and wrong content is refused."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp._internal.pytree import pytree_dataclass, static
from ppl_sgp.statistics import storage
from tests.builders import PROBLEMS, IdentityBasis
from tests.statistics.saved_files import assert_identical, fourier_statistics, with_header


@pytree_dataclass
class LinearBasis(sgp.Basis):
    """A user's class with the name of one of ours, and features that are negative."""

    dim: int = static()

    @property
    def num_features(self):
        return self.dim + 1

    @property
    def input_dim(self):
        return self.dim

    def features(self, X, xp):
        return -xp.concatenate([xp.ones_like(X[:, :1]), X], axis=1)


@pytest.mark.parametrize("kind", [sgp.LinearBasis, LinearBasis])
def test_classes_of_one_name_load_as_what_they_were(kind, tmp_path):
    stats = sgp.sufficient_statistics(kind(1), np.ones((2, 1)), np.ones(2))
    stats.save(tmp_path / "s")
    loaded = sgp.SufficientStatistics.load(tmp_path / "s")
    assert type(loaded.basis) is kind
    np.testing.assert_array_equal(loaded.basis.host_features([[3.0]]), kind(1).host_features([[3.0]]))


def test_names_of_our_classes_do_not_depend_on_their_module(content, tmp_path):
    (tmp_path / "s").write_bytes(content)
    with np.load(tmp_path / "s") as archive:
        header = json.loads(str(archive["header"]))
    assert header["parts"]["basis"]["class"] == "ppl_sgp.FourierBasis"
    assert header["parts"]["moments"]["class"].startswith("ppl_sgp.") and header["version"] == storage.VERSION


def test_an_object_of_a_class_that_was_defined_again_is_not_saved_as_the_new_one(tmp_path):
    def define():
        @pytree_dataclass
        class Twice(IdentityBasis):
            pass

        return Twice

    old, new = define(), define()
    sgp.sufficient_statistics(new(1), np.ones((2, 1)), np.ones(2)).save(tmp_path / "s")
    with pytest.raises(ValueError, match="`basis` is of a class Twice that has been defined again"):
        sgp.sufficient_statistics(old(1), np.ones((2, 1)), np.ones(2)).save(tmp_path / "s")


def altered(path, change, **new_arrays):
    """Rewrite a file with another header and other arrays: its checksums are right."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files} | new_arrays
    header = json.loads(str(arrays.pop("header")))
    change(header["parts"])
    np.savez(path, header=np.array(json.dumps(header)), **arrays)
    os.replace(f"{path}.npz", path)


def without(part, field):
    def change(parts):
        del parts[part]["fields"][field]

    return change


def with_static(part, field, value):
    def change(parts):
        parts[part]["fields"][field] = {"static": value}

    return change


def with_tuple(part, field):
    def change(parts):
        parts[part]["fields"][field] = {"tuple": []}

    return change


WRONG_CONTENT = {
    "a basis without a field": (without("basis", "frequencies"), {}, "FourierBasis has the fields .*but the file has"),
    "sums without a field": (without("moments", "x_min"), {}, "Moments has the fields"),
    "an unknown field": (with_tuple("moments", "more"), {}, "Moments has the fields"),
    "an array for a static field": (with_static("moments", "gram", 3), {}, "Moments has the fields"),
    "no array": (with_tuple("moments", "gram"), {}, "`gram` has shape"),
    "no kernels' numbers": (lambda parts: None, {"basis.frequencies": np.array(["a"])}, "basis.frequencies is of <U1"),
    "another number of frequencies": (
        lambda parts: None,
        {"basis.frequencies": np.ones((3, 1)), "basis.log_proposal": np.ones(3)},
        "`gram` has shape .*, not \\(6, 6\\)",
    ),
    "frequencies of another number of inputs": (
        lambda parts: None,
        {"basis.frequencies": np.ones((4, 2))},
        "`x_mean` has shape \\(1,\\), not \\(2,\\)",
    ),
    "inputs": (lambda parts: None, {"moments.x_min": np.ones(2)}, "`x_min` has shape \\(2,\\), not \\(1,\\)"),
    "outputs": (lambda parts: None, {"moments.y_mean": np.ones(2)}, "`y_mean` has shape"),
    "a NaN": (lambda parts: None, {"moments.gram": np.full((8, 8), np.nan)}, "sums are not those of rows"),
    "a NaN among the weights": (lambda parts: None, {"moments.log_weights": np.float64(np.nan)}, "sums are not those"),
    "a NaN in the root": (lambda parts: None, {"moments.root": np.full((9, 9), np.nan)}, "sums are not those of rows"),
    "another root": (lambda parts: None, {"moments.root": np.eye(9)}, "sums are not those of rows"),
    "a long root": (lambda parts: None, {"moments.root": np.eye(9)[[*range(9), 8]]}, "`root` has shape"),
    "no rows": (lambda parts: None, {"moments.num_rows": np.float64(0)}, "sums are not those of rows"),
}


@pytest.mark.parametrize("name", WRONG_CONTENT)
def test_files_with_the_wrong_content_are_refused_whatever_their_checksums(name, content, tmp_path):
    path = tmp_path / "wrong"
    path.write_bytes(content)
    altered(path, lambda parts: None)
    assert_identical(sgp.SufficientStatistics.load(path), fourier_statistics())  # rewriting alone changes nothing
    change, arrays, message = WRONG_CONTENT[name]
    altered(path, change, **arrays)
    with pytest.raises(ValueError, match=f"(?s)wrong is damaged.*{message}"):
        sgp.SufficientStatistics.load(path)


def test_sums_of_a_basis_of_another_size_are_refused(tmp_path):
    stats, path = PROBLEMS["tall"](np.random.default_rng(0)).statistics(), tmp_path / "s"
    stats.save(path)
    altered(path, with_static("basis", "dim", stats.num_features + 1))
    with pytest.raises(ValueError, match="`gram` has shape"):
        sgp.SufficientStatistics.load(path)


def test_files_of_an_older_version_are_brought_up_to_date(content, tmp_path, monkeypatch):
    path = tmp_path / "old"
    path.write_bytes(content)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(str(arrays.pop("header")))
    fields = header["parts"]["moments"]["fields"]
    fields["count"] = fields.pop("num_rows")  # what an older version called it
    header["version"] = storage.VERSION - 1
    with open(path, "wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)
    monkeypatch.setattr(storage, "MIGRATIONS", {})
    with pytest.raises(ValueError, match=f"format version {storage.VERSION - 1}; .*reads version {storage.VERSION}."):
        sgp.SufficientStatistics.load(path)

    def migrate(header, arrays):
        fields = header["parts"]["moments"]["fields"]
        fields["num_rows"] = fields.pop("count")
        return header, arrays

    monkeypatch.setitem(storage.MIGRATIONS, storage.VERSION - 1, migrate)
    assert_identical(sgp.SufficientStatistics.load(path), fourier_statistics())
    del fields["count"]
    with open(path, "wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)
    with pytest.raises(ValueError, match=f"its content is not of format version {storage.VERSION - 1}"):
        sgp.SufficientStatistics.load(path)


def test_seasons_of_version_2_have_their_constant(tmp_path):
    X = np.linspace(0, 20, 30)[:, None]
    season = sgp.SelectedColumns(sgp.PeriodicBasis(7.0, 2), [0], 1)
    stats = sgp.sufficient_statistics(sgp.stack(sgp.LinearBasis(1), season), X, X[:, 0])
    path = tmp_path / "new.npz"
    stats.save(path)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(str(arrays.pop("header")))
    text = json.dumps(header | {"version": 2})
    assert text.count(', "constant": {"static": true}') == 1
    with_header(tmp_path / "old.npz", text.replace(', "constant": {"static": true}', ""), **arrays)
    assert_identical(sgp.SufficientStatistics.load(tmp_path / "old.npz"), stats)


@pytest.mark.parametrize("version", [True, "2", [2], None, 2.0])
def test_a_version_that_is_no_integer_is_refused(version, tmp_path):
    with_header(tmp_path / "s.npz", json.dumps({"format": "ppl_sgp", "version": version, "parts": {}}))
    with pytest.raises(ValueError, match="has format version"):
        sgp.SufficientStatistics.load(tmp_path / "s.npz")
