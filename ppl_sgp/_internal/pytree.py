"""Frozen dataclasses that are JAX pytrees and can be written to disk by name.

``@pytree_dataclass`` makes a class a frozen dataclass whose fields are pytree children, except
those declared with :func:`static`, which are hashable auxiliary data. Rebuilding from leaves
bypasses ``__init__`` (as JAX requires: leaves may be tracers or placeholders), so validation and
conversion belong in ``__post_init__`` and run for users only.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np

from .shown import fields_repr

T = TypeVar("T")
PACKAGE = __name__.split(".")[0]

#: Folders under whose name their classes are public, as a class of another folder may have the same name.
NAMESPACES = ("likelihoods",)

#: Classes by :func:`file_name`, for reading saved files without pickle.
REGISTRY: dict[str, type] = {}


def file_name(cls: type) -> str:
    """The name of a class in files.

    Of ours the public name, ``ppl_sgp.`` and its own, whatever its module, so that a file outlives a move; of others
    the module and the qualified name, so that no two classes of different origin have the same.
    """
    package, *folders = cls.__module__.split(".")
    if package == PACKAGE:
        return ".".join([PACKAGE, *(folder for folder in folders[:1] if folder in NAMESPACES), cls.__name__])
    return f"{cls.__module__}.{cls.__qualname__}"


def static(**kwargs: Any) -> Any:
    """Declare a field of a :func:`pytree_dataclass` as static: hashable, part of the tree structure, never traced.

    :param kwargs: as ``dataclasses.field`` takes them, such as ``default``.
    """
    return dataclasses.field(metadata={"static": True}, **kwargs)


def is_static(field: dataclasses.Field) -> bool:
    """Whether ``field`` was declared with :func:`static`."""
    return bool(field.metadata.get("static", False))


def rebuild(cls: type[T], values: dict[str, Any]) -> T:
    """An instance of ``cls`` with the given fields, without running ``__init__``."""
    instance = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(instance, name, value)
    return instance


def same_tree(left: Any, right: Any) -> bool:
    """Whether two pytrees have the same structure and equal arrays as leaves."""
    leaves_left, tree_left = jax.tree.flatten(left)
    leaves_right, tree_right = jax.tree.flatten(right)
    return tree_left == tree_right and all(map(np.array_equal, leaves_left, leaves_right))  # type: ignore[operator]


@dataclass_transform(frozen_default=True, eq_default=False)
def pytree_dataclass(cls: type[T]) -> type[T]:
    """Class decorator: a frozen dataclass that is a JAX pytree, and can be saved by name.

    Fields are leaves, but for those declared with :func:`static`. Rebuilding from leaves bypasses ``__init__``.

    .. doctest::

        >>> import jax, ppl_sgp as sgp
        >>> @sgp.pytree_dataclass
        ... class Line:
        ...     slope: float
        ...     degree: int = sgp.static(default=1)
        >>> jax.tree.map(lambda leaf: 2 * leaf, Line(3.0))
        Line(slope=6.0, degree=1)

    :raises TypeError: for a second class of another module with the same name in files. A class that is defined
        again, as by running a cell of a notebook twice, takes the place of the first.
    """
    cls = dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
    if cls.__repr__ is object.__repr__:
        cls.__repr__ = fields_repr  # type: ignore[method-assign, assignment]
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    children = tuple(f.name for f in fields if not is_static(f))
    statics = tuple(f.name for f in fields if is_static(f))

    def flatten_with_keys(instance: T):
        keyed = [(jax.tree_util.GetAttrKey(k), getattr(instance, k)) for k in children]
        return keyed, tuple(getattr(instance, k) for k in statics)

    def flatten(instance: T):
        return [getattr(instance, k) for k in children], tuple(getattr(instance, k) for k in statics)

    def unflatten(aux, leaves):
        return rebuild(cls, dict(zip(children + statics, (*leaves, *aux), strict=True)))

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    if cls.__eq__ is object.__eq__:
        cls.__eq__, cls.__hash__ = equal_tree, hash_tree  # type: ignore[method-assign, assignment]
    name = file_name(cls)
    if name in REGISTRY and _origin(REGISTRY[name]) != _origin(cls):
        raise TypeError(
            f"{_origin(REGISTRY[name])} is called {name} in files already; {_origin(cls)} needs another name."
        )
    REGISTRY[name] = cls
    return cls


def equal_tree(self: Any, other: Any) -> bool:
    """Whether it is the same, or all leaves are equal and none is an array.

    Caches put something hashable in the place of arrays (NumPyro's MCMC their ids, without which it compiles for each
    chain), and compare trees of these.
    """
    if self is other or type(self) is not type(other):
        return self is other
    (leaves, tree), (others, other_tree) = jax.tree.flatten(self), jax.tree.flatten(other)
    return not any(map(_is_array, leaves)) and (tree, leaves) == (other_tree, others)


def hash_tree(self: Any) -> int:
    leaves, tree = jax.tree.flatten(self)
    return object.__hash__(self) if any(map(_is_array, leaves)) else hash((type(self), tree, *leaves))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | jax.Array)


def _origin(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
