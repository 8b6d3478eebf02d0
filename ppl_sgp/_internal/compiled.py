"""Functions of a model and of data, compiled once for all data of the same shapes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .blas import largest_dimension, one_thread_if_small

#: What JAX raises where a program asks for the value of an argument while it is being compiled.
_WANTS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


class Compiled:
    """``function(*static, data, *arguments)`` of a function of a module, compiled for the shapes of data and arguments.

    Models may read values of their data, as NumPyro's samplers let them: such a program is compiled for these data
    alone. They may read variables from outside as well, which can change: what a model computes is looked at anew by
    each instance, and compiled anew only if it differs.

    :param function: the same object at every call: JAX remembers its programs.
    :param static: what the program is made for, such as a model and the name of a site.
    """

    def __init__(self, function: Callable[..., Any], *static: Any) -> None:
        self._function = function
        self._static = tuple(value if _hashable(value) else _Identity(value) for value in static)
        self._forget()

    def _forget(self) -> None:
        self._data: Any = None
        self._on_device: Any = None
        self._content: Any = None
        self._closed: Callable[..., Any] | None = None

    def __call__(self, data: Any, *arguments: Any) -> Any:
        """The value, on the device. Data that are the same object as before are not copied there again."""
        with one_thread_if_small(largest_dimension(data)):
            return jax.block_until_ready(self._evaluated(data, arguments))

    def _evaluated(self, data: Any, arguments: tuple[Any, ...]) -> Any:
        if self._data is not data:
            self._forget()
            self._data = data
            if all(map(_is_array, jax.tree.leaves(data))):
                self._on_device = jax.device_put(data)
        if self._closed is None and self._on_device is not None:
            try:
                if self._content is None:
                    self._content = _content(self._function, self._static, self._on_device, arguments)
                return _evaluate(self._function, self._static, self._content, self._on_device, arguments)
            except _WANTS_VALUES:
                pass
        if self._closed is None:
            self._closed = jax.jit(lambda *rest: _call(self._function, self._static, data, rest))
        return self._closed(*arguments)

    def __getstate__(self) -> dict[str, Any]:
        """Without programs and data."""
        return {**self.__dict__, "_data": None, "_on_device": None, "_content": None, "_closed": None}


class _Identity:
    """Something that cannot be hashed, as itself."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value


def _call(function: Callable[..., Any], static: tuple[Any, ...], data: Any, arguments: tuple[Any, ...]) -> Any:
    values = (each.value if isinstance(each, _Identity) else each for each in static)
    return function(*values, data, *arguments)


def _content(function: Callable[..., Any], static: tuple[Any, ...], data: Any, arguments: Any) -> tuple[str, bytes]:
    """What is computed: the program, and the arrays that it holds."""
    closed = jax.make_jaxpr(functools.partial(_call, function, static))(data, arguments)
    constants = b"".join(np.asarray(array).tobytes() for array in closed.consts)
    return re.sub("0x[0-9a-f]+", "", str(closed.jaxpr)), constants


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _evaluate(function: Callable[..., Any], static: Any, content: Any, data: Any, arguments: Any) -> Any:
    return _call(function, static, data, arguments)


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_array(leaf: Any) -> bool:
    try:
        jax.numpy.result_type(leaf)
    except TypeError:
        return False
    return True
