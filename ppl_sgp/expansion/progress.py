"""A file that keeps what passes over all rows have found, so that a compression can go on after an interruption."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np

from .._internal.pytree import pytree_dataclass, same_tree
from ..bases.basis import Basis
from ..likelihoods.likelihood import Likelihood
from ..statistics.checkpoint import CheckpointError, digest
from ..statistics.files import require_file, try_lock
from ..statistics.storage import read, write
from .quadratic import Quadratic
from .sources import Scan


@pytree_dataclass
class Saved:
    """The last expansion over all rows, the passes, and a digest of some of the rows."""

    centre: Any
    value: Any
    gradient: Any
    curvature: Any
    passes: Any
    rows: Any

    @classmethod
    def of(cls, joint: Quadratic, passes: list[tuple[float, float, float, float]], scan: Scan) -> Saved:
        """What is written after a pass."""
        parts = (joint.centre, np.float64(joint.value), joint.gradient, joint.curvature)
        return cls(*parts, np.array(passes), _digest(scan))


class Progress:
    """The file; a context manager that holds it for one compression.

    :param path: the file; it need not exist.
    :param basis: the basis.
    :param likelihood: the likelihood.
    :raises ValueError: on entering, if another compression holds it; see also :meth:`resume`.
    """

    def __init__(self, path: Any, basis: Basis, likelihood: Likelihood) -> None:
        self._path, self._basis, self._likelihood = Path(path), basis, likelihood
        self._lock = contextlib.ExitStack()

    def __enter__(self) -> Progress:
        require_file(self._path)
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open(self._path.with_name(self._path.name + ".lock"), "a"))
            if not try_lock(file):
                raise CheckpointError(f"checkpoint {self._path} is in use. Wait, or give each compression its own.")
            self._lock = stack.pop_all()
        return self

    def __exit__(self, *_: Any) -> None:
        self._lock.close()

    def resume(self, scan: Scan) -> tuple[list[tuple[float, float, float, float]], Quadratic | None]:
        """The passes so far and the last expansion, ``None`` if there is none.

        :raises ValueError: if the file is damaged, or of another basis, likelihood or other rows.
        """
        if not self._path.exists():
            return [], None
        parts = read(self._path)
        saved = parts.get("saved")
        if not isinstance(saved, Saved):
            raise CheckpointError(f"{self._path} holds {sorted(parts)}, not a compression. Pass another file name.")
        if not same_tree((parts["basis"], parts["likelihood"]), (self._basis, self._likelihood)):
            raise CheckpointError(
                f"checkpoint {self._path} was made with another basis or likelihood. Use those, or another file."
            )
        if not np.array_equal(saved.rows, _digest(scan)):
            raise CheckpointError(f"checkpoint {self._path} is of other rows. Use the same rows, or another file.")
        passes = [tuple(map(float, row)) for row in np.asarray(saved.passes)]
        return passes, Quadratic(saved.centre, float(saved.value), saved.gradient, saved.curvature)  # type: ignore[return-value]

    def write(self, saved: Saved) -> None:
        """Replace the file. O(m²)."""
        write(self._path, {"basis": self._basis, "likelihood": self._likelihood, "saved": saved})


def _digest(scan: Scan) -> np.ndarray:
    return np.frombuffer(digest(np.float64(scan.num_rows), *scan.some), dtype=np.uint8)
