"""Saving pytree dataclasses to one file: versioned, atomic, no pickle, damage detected.

The file is a NumPy ``.npz`` archive: one member per array (each with the CRC of the zip format)
and a JSON header that says which class each node is.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._internal.pytree import REGISTRY, is_static, rebuild

FORMAT = "ppl_sgp"
VERSION = 1
_HEADER = "header"
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


def write(path: Any, parts: dict[str, Any]) -> None:
    """Write named pytree dataclasses to ``path``; a reader sees the old file or the new one, never half.

    :param path: the file to write.
    :param parts: objects of classes made with ``pytree_dataclass``.
    :raises ValueError: for an object that cannot be written without pickle.
    """
    path = Path(path)
    arrays: dict[str, np.ndarray] = {}
    specification = {name: _encode(part, name, arrays) for name, part in parts.items()}
    header = json.dumps({"format": FORMAT, "version": VERSION, "parts": specification})
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    try:
        with open(temporary, "xb") as file:
            np.savez(file, allow_pickle=False, **{_HEADER: np.array(header)}, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read(path: Any) -> dict[str, Any]:
    """Read what :func:`write` wrote.

    :param path: the file to read.
    :return: the named objects.
    :raises ValueError: if the file is damaged, foreign, of a newer format, or needs an unknown class.
    """
    header, arrays = _read_archive(Path(path))
    if header.get("format") != FORMAT:
        raise ValueError(f"{path} was not written by ppl_sgp (format {header.get('format')!r}).")
    if header.get("version") != VERSION:
        raise ValueError(
            f"{path} has format version {header.get('version')!r}; this ppl_sgp reads version {VERSION}. "
            "Install the version that wrote it, or compute the statistics again."
        )
    try:
        return {name: _decode(node, arrays) for name, node in header["parts"].items()}
    except (KeyError, TypeError, AttributeError) as error:
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
    if type(value).__name__ in REGISTRY and dataclasses.is_dataclass(value):
        fields = {
            f.name: {"static": getattr(value, f.name)}
            if is_static(f)
            else _encode(getattr(value, f.name), f"{name}.{f.name}", arrays)
            for f in dataclasses.fields(value)
        }
        return {"class": type(value).__name__, "fields": fields}
    if isinstance(value, (tuple, list)):
        return {"tuple": [_encode(item, f"{name}.{i}", arrays) for i, item in enumerate(value)]}
    if value is None:
        return {"none": True}
    if isinstance(value, (bool, int, float, np.ndarray, np.generic, jax.Array)):
        arrays[name] = np.asarray(value)
        return {"array": name}
    raise ValueError(
        f"`{name}` is a {type(value).__name__}, which cannot be saved without pickle. "
        "Derive it from ppl_sgp's Basis or Kernel classes with `pytree_dataclass`, holding arrays and numbers."
    )


def _decode(node: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    if "array" in node:
        return arrays[node["array"]]
    if "tuple" in node:
        return tuple(_decode(item, arrays) for item in node["tuple"])
    if "none" in node:
        return None
    if node["class"] not in REGISTRY:
        raise ValueError(f"The file needs the class {node['class']!r}: import the module that defines it, then load.")
    fields = node["fields"].items()
    values = {name: _static(sub["static"]) if "static" in sub else _decode(sub, arrays) for name, sub in fields}
    return rebuild(REGISTRY[node["class"]], values)


def _static(value: Any) -> Any:
    """Static fields are hashable, so a list in the header was a tuple."""
    return tuple(_static(item) for item in value) if isinstance(value, list) else value
