"""Files that are replaced whole: a reader sees the old content or the new, never half."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not on Windows: there, nobody knows who is using a file
    fcntl = None

#: The end of the names of files that are being written.
UNFINISHED = ".ppl_sgp-unfinished"
#: Seconds after which an unfinished file that nobody holds is taken for left behind. It is locked at once when made.
STALE = 60.0


def replace_file(path: Any, write: Callable[[BinaryIO], None]) -> None:
    """Write a new content beside a file, and then put it in its place, with the permissions that the file had.

    Through a symbolic link it is the target that is replaced. What writers that were killed have left beside it is
    removed.

    :param path: the file; it need not exist, but its folder must.
    :param write: writes the content.
    :raises FileNotFoundError: without a folder.
    :raises ValueError: for a folder, a device, or whatever is no plain file.
    """
    target = Path(os.path.realpath(path))
    mode = require_file(path)
    _remove_stale(target)
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(8)}{UNFINISHED}")
    try:
        with open(unfinished, "xb") as file:
            try_lock(file)
            if mode is not None:
                os.chmod(unfinished, mode)  # before there is anything to read
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def try_lock(file: Any) -> bool:
    """Take an open file for this process; whether nobody else has it. Given up when it is closed, or by its end."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def require_file(path: Any) -> int | None:
    """The permissions of a file that exists; refuses a folder that does not, and what is no file."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"{os.fspath(path)} cannot be written: there is no folder {target.parent}. Make it first, with "
            f"`os.makedirs({str(target.parent)!r})`."
        )
    try:
        found = target.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{os.fspath(path)} is a folder, a device or a pipe, not a file. Pass the name of a file.")
    return stat.S_IMODE(found.st_mode)


def _remove_stale(target: Path) -> None:
    if fcntl is None:
        return
    for name in os.listdir(target.parent):
        if name.startswith(f".{target.name}.") and name.endswith(UNFINISHED):
            # Another process may remove or finish it in the meantime.
            with contextlib.suppress(OSError), open(target.with_name(name), "rb") as file:
                if time.time() - os.fstat(file.fileno()).st_mtime > STALE and try_lock(file):
                    os.unlink(file.name)
