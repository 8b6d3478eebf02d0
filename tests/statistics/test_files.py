"""Files that are replaced whole: links, permissions, devices, what killed writers leave, folders that do not exist."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time

import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.statistics import files
from ppl_sgp.statistics.files import replace_file

pytestmark = [
    pytest.mark.float64_only,  # no numbers
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX files"),
]


def put(path, content=b"new"):
    replace_file(path, lambda file: file.write(content))


def test_a_link_is_followed(tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to("there/target")
    put(link)
    assert link.is_symlink() and target.read_bytes() == b"new"
    target.unlink()
    put(link, b"again")  # a link to nothing yet
    assert link.is_symlink() and target.read_bytes() == b"again"
    assert os.listdir(tmp_path / "there") == ["target"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_the_permissions_of_an_existing_file_are_kept(mode, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    seen = []

    def write(file):
        seen.append(os.fstat(file.fileno()).st_mode & 0o777)
        file.write(b"new")

    replace_file(path, write)
    assert path.stat().st_mode & 0o777 == mode and path.read_bytes() == b"new"
    assert seen == [mode]  # before there is anything to read


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_replaced(make, tmp_path):
    path = tmp_path / "special"
    make(path)
    before = path.stat()
    (tmp_path / "link").symlink_to(path)
    for name in (path, tmp_path / "link"):
        with pytest.raises(ValueError, match="is a folder, a device or a pipe, not a file"):
            put(name)
    assert (path.stat().st_ino, path.stat().st_mode) == (before.st_ino, before.st_mode)
    assert sorted(os.listdir(tmp_path)) == ["link", "special"]


def test_a_folder_that_does_not_exist_is_named_with_the_remedy(tmp_path):
    stats = sgp.sufficient_statistics(sgp.LinearBasis(1), np.ones((2, 1)), np.ones(2))
    path = tmp_path / "results" / "stats.npz"
    message = (
        rf"{path} cannot be written: there is no folder {path.parent}. Make it first, with `os.makedirs\('(.*)'\)`"
    )
    with pytest.raises(FileNotFoundError, match=f"^{message}") as caught:
        stats.save(path)
    with pytest.raises(FileNotFoundError, match=message):
        sgp.sufficient_statistics(sgp.LinearBasis(1), np.ones((2, 1)), np.ones(2), checkpoint=path)
    os.makedirs(str(caught.value).split("'")[1])  # the remedy
    stats.save(path)
    assert os.listdir(path.parent) == ["stats.npz"]


def write_and_die(path):
    def write(file):
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    replace_file(path, write)


def leave_behind(path):
    """A process that is killed while it writes; the name of what it leaves."""
    before = set(os.listdir(path.parent))
    process = multiprocessing.get_context("fork").Process(target=write_and_die, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (left,) = set(os.listdir(path.parent)) - before
    return path.with_name(left)


@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_what_a_killed_writer_leaves_is_removed_by_a_later_one(tmp_path):
    path, other = tmp_path / "file", tmp_path / "file2"
    put(path, b"old")
    left, of_other = leave_behind(path), leave_behind(other)
    assert path.read_bytes() == b"old"
    put(path)
    assert left.exists()  # it is young: whoever has made it may not have locked it yet
    past = time.time() - 2 * files.STALE
    for name in (left, of_other):
        os.utime(name, (past, past))
    put(path)
    assert not left.exists() and of_other.exists() and path.read_bytes() == b"new"
    put(other)
    assert sorted(os.listdir(tmp_path)) == ["file", "file2"]


def test_what_another_writer_holds_is_left_alone(tmp_path):
    path = tmp_path / "file"

    def slow(file):
        past = time.time() - 2 * files.STALE
        os.utime(file.name, (past, past))
        put(path, b"quick")  # meanwhile
        file.write(b"slow")

    replace_file(path, slow)
    assert path.read_bytes() == b"slow"
    assert os.listdir(tmp_path) == ["file"]


def test_files_of_others_with_such_names_stay(tmp_path):
    names = [".file.backup", ".file.0123456789abcdef", "file.ppl_sgp-unfinished"]
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    put(tmp_path / "file")
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "file"])
