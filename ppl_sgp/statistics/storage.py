"""Saving pytree dataclasses to one file: versioned, atomic, no pickle, damage detected.

The file is a NumPy ``.npz`` archive: one member per array (each with the CRC of the zip format)
and a JSON header that says which class each node is.
"""

from __future__ import annotations

import dataclasses
import json
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np

from .._internal.pytree import REGISTRY, file_name, is_static, rebuild
from .files import replace_file

FORMAT = "ppl_sgp"
VERSION = 3
_HEADER = "header"
Header = dict[str, Any]
Arrays = dict[str, np.ndarray]
#: What the readers of zip archives, of arrays and of JSON raise when they stumble over damaged or foreign bytes.
_DAMAGE = (
    AttributeError,
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def _from_2_to_3(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """Seasons have a constant, or none, since."""

    def visit(node: Any) -> None:
        if isinstance(node, list):
            for each in node:
                visit(each)
        elif isinstance(node, dict):
            if node.get("class") == "ppl_sgp.PeriodicBasis":
                node["fields"].setdefault("constant", {"static": True})
            for each in node.values():
                visit(each)

    visit(header["parts"])
    return header, arrays


#: By an older version, what makes of a header and arrays those of the next version: see docs/file_formats.md.
MIGRATIONS: dict[int | str, Callable[[Header, Arrays], tuple[Header, Arrays]]] = {2: _from_2_to_3}


def write(path: Any, parts: dict[str, Any]) -> None:
    """Write named pytree dataclasses to ``path``; a reader sees the old file or the new one, never half.

    :param path: the file to write.
    :param parts: objects of classes made with ``pytree_dataclass``.
    :raises ValueError: for an object that cannot be written without pickle.
    """
    arrays: dict[str, np.ndarray] = {}
    specification = {name: _encode(part, name, arrays) for name, part in parts.items()}
    header = json.dumps({"format": FORMAT, "version": VERSION, "parts": specification})

    def archive(file: BinaryIO) -> None:
        np.savez(file, allow_pickle=False, **{_HEADER: np.array(header)}, **arrays)  # type: ignore[arg-type]

    replace_file(path, archive)


def read(path: Any) -> dict[str, Any]:
    """Read what :func:`write` wrote.

    :param path: the file to read.
    :return: the named objects.
    :raises ValueError: if the file is damaged, foreign, of a newer format, or needs an unknown class.
    """
    header, arrays = _read_archive(Path(path))
    if header.get("format") != FORMAT:
        raise ValueError(f"{path} was not written by ppl_sgp (format {header.get('format')!r}).")
    version = header.get("version")
    version = version if type(version) is int else repr(version)
    while version in MIGRATIONS:
        try:
            header, arrays = MIGRATIONS[version](header, arrays)
        except _DAMAGE as error:
            raise ValueError(
                f"{path} is damaged: its content is not of format version {version} ({error!r})."
            ) from error
        version = int(version) + 1
    if version != VERSION:
        raise ValueError(
            f"{path} has format version {version}; this ppl_sgp reads version {VERSION}"
            + "".join(f", {old}" for old in sorted(MIGRATIONS, reverse=True))
            + ". Install the version that wrote it, or compute the statistics again."
        )
    try:
        return {name: _decode(node, arrays) for name, node in header["parts"].items()}
    except UnknownClass:
        raise
    except _DAMAGE as error:
        raise ValueError(f"{path} is damaged: its header does not fit its arrays ({error!r}).") from error


def _read_archive(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(str(arrays.pop(_HEADER)))
    except FileNotFoundError:
        raise
    except _DAMAGE as error:
        raise ValueError(
            f"{path} is not a complete ppl_sgp file ({error}). It is damaged, truncated or foreign: "
            "restore a copy or compute the statistics again."
        ) from error
    if not isinstance(header, dict):
        raise ValueError(f"{path} was not written by ppl_sgp (its header is a {type(header).__name__}).")
    return header, arrays


def _encode(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    known = file_name(type(value))
    if REGISTRY.get(known) is type(value):
        fields = {
            f.name: _encode_static(getattr(value, f.name), f"{name}.{f.name}")
            if is_static(f)
            else _encode(getattr(value, f.name), f"{name}.{f.name}", arrays)
            for f in dataclasses.fields(value)  # type: ignore[arg-type]
        }
        return {"class": known, "fields": fields}
    if isinstance(value, (tuple, list)):
        return {"tuple": [_encode(item, f"{name}.{i}", arrays) for i, item in enumerate(value)]}
    if value is None:
        return {"none": True}
    if isinstance(value, (bool, int, float, np.ndarray, np.generic, jax.Array)) and _is_numeric(np.asarray(value)):
        arrays[name] = np.asarray(value)
        return {"array": name}
    raise _unsaveable(name, value)


def _encode_static(value: Any, name: str) -> dict[str, Any]:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, tuple):
        return {"static": [_encode_static(item, f"{name}.{i}")["static"] for i, item in enumerate(plain)]}
    if plain is not None and not isinstance(plain, (bool, int, float, str)):
        raise _unsaveable(name, value)
    return {"static": plain}


def _unsaveable(name: str, value: Any) -> ValueError:
    shown = type(value).__name__
    if file_name(type(value)) in REGISTRY:
        return ValueError(f"`{name}` is of a class {shown} that has been defined again since. Make the object anew.")
    return ValueError(
        f"`{name}` is a {shown}, which cannot be saved without pickle. What is saved holds arrays and numbers in "
        "classes that have a name: instead of a function, derive a class from sgp.Basis or sgp.Kernel, decorate it "
        "with `@sgp.pytree_dataclass`, and define it in a module that can be imported."
    )


def _is_numeric(array: np.ndarray) -> bool:
    return array.dtype.kind in "biufc"


class UnknownClass(ValueError):
    """A file that needs a class which this process has not defined."""


def _decode(node: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    if "array" in node:
        array = arrays[node["array"]]
        if not _is_numeric(array):
            raise ValueError(f"{node['array']} is of {array.dtype}")
        return array
    if "tuple" in node:
        return tuple(_decode(item, arrays) for item in node["tuple"])
    if "none" in node:
        return None
    name, fields = node["class"], node["fields"]
    if name not in REGISTRY:
        raise UnknownClass(f"The file needs the class {name!r}: import the module that defines it, then load.")
    expected = {f.name: is_static(f) for f in dataclasses.fields(REGISTRY[name])}
    found = {key: "static" in value for key, value in fields.items()}
    if found != expected:
        raise ValueError(f"{name} has the fields {sorted(expected)}, but the file has {sorted(found)}")
    return rebuild(
        REGISTRY[name],
        {key: _static(sub["static"]) if expected[key] else _decode(sub, arrays) for key, sub in fields.items()},
    )


def _static(value: Any) -> Any:
    """Static fields are hashable, so a list in the header was a tuple."""
    if isinstance(value, dict):
        raise ValueError("a static field is a dictionary")
    return tuple(_static(item) for item in value) if isinstance(value, list) else value
