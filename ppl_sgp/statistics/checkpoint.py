"""A file that remembers how far a pass over rows has come, so that it can go on after an interruption."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from .._internal.pytree import pytree_dataclass, same_tree, static
from ..bases.basis import Basis
from .consistency import require_consistent
from .files import require_file, try_lock
from .moments import Moments
from .storage import read, write

REMEDY = (
    "A pass goes on only with the same rows in the same chunks: use the same data, order and `chunk_size`, or another "
    "file."
)


@pytree_dataclass
class PassProgress:
    """Digests of the chunks that are in the sums, shape (k, 16), bytes; whether features were in float32."""

    digests: Any
    single: bool = static()


class CheckpointError(ValueError):
    """A checkpoint that does not belong to the pass."""


class Checkpoint:
    """Sums over the chunks so far, kept in a file that is replaced after each chunk; a context manager.

    :param path: the file; it need not exist.
    :param basis: the basis of the pass.
    :param single: whether features are evaluated in float32.
    :param kind: the class of the sums; ``None`` for any.
    :raises ValueError: on entering, if the file is damaged or of something else, was made with another basis, in
        another precision or by another method, or is in use by another pass.
    """

    def __init__(self, path: Any, basis: Basis, single: bool = False, kind: type[Moments] | None = None) -> None:
        self._path, self._basis, self._single, self._kind = Path(path), basis, single, kind
        self._digests: list[bytes] = []
        self._lock = contextlib.ExitStack()
        self.moments: Moments | None = None

    def __enter__(self) -> Checkpoint:
        with contextlib.ExitStack() as stack:
            self._take_lock(stack)
            if self._path.exists():
                self._resume()
            self._lock = stack.pop_all()
        return self

    def __exit__(self, *_: Any) -> None:
        self._lock.close()

    def _take_lock(self, stack: contextlib.ExitStack) -> None:
        require_file(self._path)
        file = stack.enter_context(open(self._path.with_name(self._path.name + ".lock"), "a"))
        if not try_lock(file):
            raise CheckpointError(
                f"checkpoint {self._path} is in use by another pass over data. Wait for it, or give each pass a file "
                "of its own."
            )

    def _resume(self) -> None:
        parts = read(self._path)
        moments, progress = parts.get("moments"), parts.get("progress")
        if not (isinstance(moments, Moments) and isinstance(progress, PassProgress)):
            raise CheckpointError(
                f"{self._path} holds {sorted(parts)}, not a checkpoint of a pass over data. Pass another file name."
            )
        if not same_tree(parts["basis"], self._basis):
            raise CheckpointError(
                f"checkpoint {self._path} was made with another basis, so its sums are of other features. Use that "
                "basis, or another file."
            )
        if progress.single != self._single:
            raise CheckpointError(
                f"checkpoint {self._path} was made with float32_features={progress.single}. Pass the same, or another "
                "file."
            )
        if self._kind not in (None, type(moments)):
            raise CheckpointError(
                f"checkpoint {self._path} was made by another `method`. Pass the same, or another file."
            )
        require_consistent(self._basis, moments, self._path)
        self.moments, self._digests = moments, [row.tobytes() for row in np.asarray(progress.digests, dtype=np.uint8)]

    def covers(self, index: int, *arrays: Any) -> bool:
        """Whether the sums have chunk ``index`` already.

        :raises CheckpointError: if another chunk was summed in its place.
        """
        if index >= len(self._digests):
            return False
        if self._digests[index] != digest(*arrays):
            raise CheckpointError(
                f"chunk {index} differs from the one that checkpoint {self._path} has summed. {REMEDY}"
            )
        return True

    def require_no_more(self, count: int) -> None:
        """Refuse a pass of ``count`` chunks that has ended before all chunks of the file have come again."""
        if len(self._digests) > count:
            raise CheckpointError(
                f"checkpoint {self._path} has summed {len(self._digests)} chunks, but these data have {count}. {REMEDY}"
            )

    def record(self, moments: Moments, *arrays: Any) -> None:
        """Write the sums, which now have one more chunk. O(m²)."""
        self._digests.append(digest(*arrays))
        digests = np.frombuffer(b"".join(self._digests), dtype=np.uint8).reshape(-1, 16)
        write(self._path, {"basis": self._basis, "moments": moments, "progress": PassProgress(digests, self._single)})


def digest(*arrays: Any) -> bytes:
    """16 bytes that tell chunks apart: of dtypes, shapes and values."""
    state = hashlib.blake2b(digest_size=16)
    for array in arrays:
        value = np.ascontiguousarray(np.zeros(0) if array is None else array)
        state.update(f"{value.dtype.str}{value.shape}".encode())
        state.update(value.data)
    return state.digest()
