"""Packages that only some of what is here needs: imported when it is used."""

from __future__ import annotations

import importlib
from types import ModuleType


def optional_import(module: str, extra: str, owner: str) -> ModuleType:
    """A module of a package that an extra of ours brings along.

    :param extra: its name in ``pip install "ppl_sgp[extra]"``.
    :param owner: who asks, for messages.
    :raises ImportError: saying how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(
            f"{owner} needs {package}, which is not installed or not complete ({error}): `pip install "
            f'"ppl_sgp[{extra}]"`, or in a clone of the repository `pip install ".[{extra}]"`.'
        ) from error
