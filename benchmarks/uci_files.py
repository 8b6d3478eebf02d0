"""Rows of the UCI sets, and files of results that a run goes on with. NumPy only: also for environments without JAX."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np


def read(folder: Path | None, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs (n, d), outputs (n,) and the test mask (n, splits); generated rows without a folder."""
    if folder is None:
        rng = np.random.default_rng(0)
        X = rng.uniform(size=(60, 3))
        y = np.sin(4 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(60)
        return X, y, rng.uniform(size=(60, 2)) < 0.2
    arrays = []
    for file in ("data.csv.gz", "test_mask.csv.gz"):
        with gzip.open(folder / name / file, "rt") as lines:
            arrays.append(np.loadtxt(lines, delimiter=",", ndmin=2))
    return arrays[0][:, :-1], arrays[0][:, -1], arrays[1] > 0


def done_before(path: Path | None, texts: Collection[str]) -> list[dict[str, Any]]:
    """Rows of a CSV file, if there is one: numbers as numbers, but for the columns in ``texts``."""
    if path is None or not path.exists():
        return []
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v if k in texts else float(v) for k, v in row.items()} for row in rows]


def append(path: Path | None, row: dict[str, Any]) -> None:
    """A row more, six digits a number, with a header line in a new file; nothing without a path."""
    if path is None:
        return
    new = not path.exists()
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(row))
        if new:
            writer.writeheader()
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
