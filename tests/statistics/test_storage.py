"""Files: bit-exact, atomic, without pickle; whatever is not a whole file of ours is refused."""

from __future__ import annotations

import gc
import json
import os
import pickle
import sys

import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp._internal.pytree import REGISTRY, file_name, pytree_dataclass, static
from ppl_sgp.statistics import storage
from tests.builders import PROBLEMS, IdentityBasis, by_lane
from tests.statistics.saved_files import assert_identical, fourier_statistics, with_header


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
