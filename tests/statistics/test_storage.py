"""Files: bit-exact, atomic, without pickle; whatever is not a whole file of ours is refused."""

from __future__ import annotations

import functools
import gc
import json
import os
import pickle
import sys

import jax
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp._internal.pytree import REGISTRY, file_name, pytree_dataclass, static
from ppl_sgp.statistics import storage
from tests.builders import PROBLEMS, IdentityBasis, by_lane, smooth_rows


@functools.cache
def fourier_statistics(rotated=False):
    """Statistics whose basis holds every kind of value: arrays, kernels, sums and products of kernels, shapes."""
    kernels = [
        sgp.RationalQuadratic(0.5, alpha=2.0),
        sgp.SquaredExponential(0.4) + sgp.Matern12(np.array([0.7]), amplitude=2.0),
        sgp.Matern32(0.3) * sgp.Matern52(0.9),
    ]
    basis = sgp.FourierBasis.sample(jax.random.key(3), kernels, 8, 1, centre=[0.5])
    stats = sgp.sufficient_statistics(basis, *smooth_rows(np.random.default_rng(0), 40))
    return stats.rotate() if rotated else stats


def assert_identical(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.asarray(a).dtype == np.asarray(b).dtype


@pytest.mark.parametrize(
    "make",
    [
        fourier_statistics,
        lambda: fourier_statistics(rotated=True),
        lambda: fourier_statistics(rotated=True).rotate(),
        lambda: PROBLEMS["outputs"](np.random.default_rng(0)).statistics(),
        lambda: PROBLEMS["row weights"](np.random.default_rng(0)).statistics(),
    ],
    ids=["fourier", "rotated", "rotated twice", "outputs", "weights"],
)
def test_round_trip_is_bit_exact(make, tmp_path):
    stats, path = make(), tmp_path / "stats.npz"
    stats.save(path)
    loaded = sgp.SufficientStatistics.load(path)
    assert_identical(loaded, stats)
    assert (stats + loaded).num_rows == 2 * stats.num_rows
    X = np.ones((3, stats.basis.input_dim))
    np.testing.assert_array_equal(loaded.basis.host_features(X), stats.basis.host_features(X))
    assert os.listdir(tmp_path) == ["stats.npz"]


def test_round_trip_of_simulated_data(tmp_path, rng):
    stats = PROBLEMS["tall"](rng).statistics()
    simulated = stats.with_projection(np.append(rng.standard_normal(6), 30.0))
    simulated.save(tmp_path / "simulated")
    loaded = sgp.SufficientStatistics.load(str(tmp_path / "simulated"))
    values = [sgp.log_evidence(s, sgp.DiagonalPrior(1.0), 0.5) for s in (loaded, simulated)]
    # The compressed form is computed again from the sums.
    np.testing.assert_allclose(values[0], values[1], rtol=by_lane(1e-12, 1e-5))


def test_a_loaded_basis_makes_the_same_prior(tmp_path):
    stats = fourier_statistics()
    stats.save(tmp_path / "s")
    basis = sgp.SufficientStatistics.load(tmp_path / "s").basis
    kernel = sgp.SquaredExponential(0.6)
    np.testing.assert_array_equal(basis.weight_prior(kernel).scale, stats.basis.weight_prior(kernel).scale)
    assert [type(k) for k in basis.proposal] == [type(k) for k in stats.basis.proposal]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_files_have_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    fourier_statistics().save(tmp_path / "stats")
    assert (tmp_path / "stats").stat().st_mode == (tmp_path / "plain").stat().st_mode


# Damage --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("content") / "stats"
    fourier_statistics().save(path)
    return path.read_bytes()


@pytest.mark.parametrize("seed", range(4))
def test_a_changed_byte_is_refused_or_means_nothing(content, tmp_path, seed):
    # Some bytes of an archive (dates, attributes) carry no data; all others must be noticed.
    rng, path, expected, refused = np.random.default_rng(seed), tmp_path / "damaged", fourier_statistics(), 0
    for position in rng.integers(len(content), size=150):
        damaged = bytearray(content)
        damaged[position] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            loaded = sgp.SufficientStatistics.load(path)
        except ValueError as error:
            assert str(path) in str(error)
            refused += 1
        else:
            assert_identical(loaded, expected)
    assert refused > 50


def test_bytes_that_zip_and_npy_readers_stumble_over_are_refused(content, tmp_path):
    # The flag "encrypted" in the first central directory entry, and a header of an array that is no longer Python.
    flags = bytearray(content)
    flags[content.index(b"PK\x01\x02") + 8] |= 1
    npy = bytearray(content)
    npy[content.index(b"{'descr'")] ^= 0xFF
    npy[content.index(b"'shape': (") + len("'shape': (") - 1] = ord("{")
    unclosed = bytearray(content)
    end = content.index(b"}", content.index(b"'shape'"))
    unclosed[end] = ord(" ")
    for damaged in (flags, npy, unclosed):
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged, truncated or foreign"):
            sgp.SufficientStatistics.load(tmp_path / "damaged")


def test_a_truncated_file_is_refused(content, tmp_path):
    for length in [0, 1, 100, len(content) // 2, len(content) - 100, len(content) - 1]:
        (tmp_path / "short").write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"(?s)short is not a complete ppl_sgp file.*restore a copy or compute"):
            sgp.SufficientStatistics.load(tmp_path / "short")
    gc.collect()  # an unclosed file would be reported here, and fail the test


def with_header(path, header, **arrays):
    np.savez(path, header=np.array(header), **arrays)
    return path


def node(name):
    return {"class": name, "fields": {}}


FOREIGN = {
    "text": (lambda p: p.write_text("hello"), "not a complete ppl_sgp file"),
    "pickle": (lambda p: p.write_bytes(pickle.dumps([1, 2])), "not a complete ppl_sgp file"),
    "npy": (lambda p: p.write_bytes(b"\x93NUMPY\x01\x00"), "not a complete ppl_sgp file"),
    "other npz": (lambda p: np.savez(p, a=np.ones(3)), "not a complete ppl_sgp file"),
    "npz with pickle": (lambda p: with_header(p, "{}", a=np.array([{}], object)), "not a complete ppl_sgp file"),
    "pickled header": (lambda p: np.savez(p, header=np.array([{}], object)), "not a complete ppl_sgp file"),
    "header no JSON": (lambda p: with_header(p, "{nonsense"), "not a complete ppl_sgp file"),
    "header a list": (lambda p: with_header(p, "[1]"), "was not written by ppl_sgp.*list"),
    "header a number": (lambda p: with_header(p, 3.0), "was not written by ppl_sgp|not a complete ppl_sgp file"),
    "other format": (lambda p: with_header(p, '{"format": "x"}'), "was not written by ppl_sgp.*'x'"),
    "newer": (
        lambda p: with_header(p, json.dumps({"format": "ppl_sgp", "version": storage.VERSION + 1, "parts": {}})),
        f"format version {storage.VERSION + 1}.*reads version {storage.VERSION}.*Install",
    ),
    "no version": (lambda p: with_header(p, '{"format": "ppl_sgp"}'), "format version None"),
    "no parts": (
        lambda p: with_header(p, json.dumps({"format": "ppl_sgp", "version": storage.VERSION})),
        "is damaged: its header does not fit",
    ),
    "parts missing": (
        lambda p: with_header(p, json.dumps({"format": "ppl_sgp", "version": storage.VERSION, "parts": {}})),
        "foreign|damaged|statistics",
    ),
    "array missing": (
        lambda p: with_header(
            p, json.dumps({"format": "ppl_sgp", "version": storage.VERSION, "parts": {"basis": {"array": "gone"}}})
        ),
        "is damaged: its header does not fit",
    ),
    "unknown class": (
        lambda p: with_header(
            p, json.dumps({"format": "ppl_sgp", "version": storage.VERSION, "parts": {"basis": node("Alien")}})
        ),
        "needs the class 'Alien'.*import the module",
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files_are_refused(name, tmp_path):
    make, message = FOREIGN[name]
    path = tmp_path / "foreign.npz"
    make(path)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        sgp.SufficientStatistics.load(path)
    gc.collect()


def test_an_archive_of_something_else_is_no_statistics(tmp_path):
    storage.write(tmp_path / "basis", {"basis": IdentityBasis(2)})
    assert storage.read(tmp_path / "basis")["basis"].dim == 2
    with pytest.raises(ValueError, match="moments|statistics"):
        sgp.SufficientStatistics.load(tmp_path / "basis")


def test_a_missing_file_is_reported_as_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        sgp.SufficientStatistics.load(tmp_path / "nowhere.npz")


def test_a_class_that_is_not_imported_is_named(tmp_path, monkeypatch):
    stats = PROBLEMS["tall"](np.random.default_rng(0)).statistics()
    stats.save(tmp_path / "s")
    monkeypatch.delitem(REGISTRY, file_name(IdentityBasis))
    with pytest.raises(ValueError, match=r"needs the class 'tests.builders.IdentityBasis': import the module"):
        sgp.SufficientStatistics.load(tmp_path / "s")


# Atomicity -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_write_that_fails_midway_leaves_the_old_file(existing, error, tmp_path, monkeypatch):
    path, old = tmp_path / "stats.npz", fourier_statistics()
    if existing:
        old.save(path)

    def failing(file, **arrays):
        file.write(b"PK half of an archive")
        raise error

    monkeypatch.setattr(np, "savez", failing)
    with pytest.raises(type(error)):
        (old + old).save(path)
    assert os.listdir(tmp_path) == (["stats.npz"] if existing else [])
    if existing:
        assert_identical(sgp.SufficientStatistics.load(path), old)


def test_saving_replaces_an_existing_file(tmp_path):
    old, path = fourier_statistics(), tmp_path / "s"
    path.write_text("something else")
    old.save(path)
    assert_identical(sgp.SufficientStatistics.load(path), old)


def test_what_needs_pickle_is_refused_before_anything_is_written(tmp_path):
    @pytree_dataclass
    class BasisWithFunction(IdentityBasis):
        function: object = None

    @pytree_dataclass
    class BasisWithStaticFunction(IdentityBasis):
        function: object = static(default=len)

    callable_basis = sgp.CallableBasis(lambda X: X, num_features=2, input_dim=2)
    for basis in (BasisWithFunction(2, len), BasisWithStaticFunction(2), callable_basis):
        stats = sgp.sufficient_statistics(basis, np.eye(2), np.ones(2))
        message = r"`basis.*` is a .*cannot be saved without pickle.*@sgp.pytree_dataclass"
        with pytest.raises(ValueError, match=message):
            stats.save(tmp_path / "s")
    assert os.listdir(tmp_path) == []


# Names, fields and versions ------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("version", [True, "2", [2], None, 2.0])
def test_a_version_that_is_no_integer_is_refused(version, tmp_path):
    with_header(tmp_path / "s.npz", json.dumps({"format": "ppl_sgp", "version": version, "parts": {}}))
    with pytest.raises(ValueError, match="has format version"):
        sgp.SufficientStatistics.load(tmp_path / "s.npz")
