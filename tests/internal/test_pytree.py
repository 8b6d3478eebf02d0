"""Frozen dataclasses that are pytrees."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppl_sgp._internal.pytree import REGISTRY, file_name, is_static, pytree_dataclass, rebuild, static
from ppl_sgp.bases.linear import LinearBasis


@pytree_dataclass
class Box:
    """Two children, two statics, and validation."""

    value: Any
    inner: Any = None
    size: int = static(default=3)
    name: str = static(default="box")

    def __post_init__(self):
        if isinstance(self.value, str):
            raise ValueError("no text")
        object.__setattr__(self, "value", np.asarray(self.value))


def test_children_are_leaves_and_statics_are_structure():
    box = Box([1.0, 2.0], {"a": 3.0}, size=5)
    leaves, structure = jax.tree.flatten(box)
    assert len(leaves) == 2
    np.testing.assert_array_equal(leaves[0], [1.0, 2.0])
    twin = structure.unflatten(leaves)
    assert type(twin) is Box and (twin.size, twin.name, twin.inner) == (5, "box", {"a": 3.0})
    assert jax.tree.structure(Box(0.0, size=5)) != jax.tree.structure(Box(0.0, size=6))
    assert jax.tree.structure(Box(0.0)) == jax.tree.structure(Box(1.0))


def test_paths_are_names_of_fields():
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(Box(1.0, Box(2.0)))[0]]
    assert paths == [".value", ".inner.value"]


def test_flattening_with_and_without_paths_agrees():
    box = Box(1.0, (2.0, Box(3.0)))
    with_paths, structure = jax.tree_util.tree_flatten_with_path(box)
    assert structure == jax.tree.structure(box)
    assert [leaf for _, leaf in with_paths] == jax.tree.leaves(box)


def test_instances_are_frozen_and_compare_by_identity():
    box = Box(1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        box.value = 2.0
    assert box == box and box != Box(1.0)
    assert hash(box) == hash(box)


def test_validation_runs_for_users_but_not_for_jax():
    with pytest.raises(ValueError, match="no text"):
        Box("text")
    placeholder = jax.tree.map(lambda leaf: "leaf", Box(1.0))
    assert placeholder.value == "leaf"


def test_jit_sees_tracers_and_retraces_only_for_other_statics():
    traced = []

    @jax.jit
    def double(box):
        traced.append(box.size)
        assert isinstance(box.value, jax.core.Tracer)
        return dataclasses_replace(box, value=2 * box.value)

    for size in (1, 1, 2):
        result = double(Box([1.0, 2.0], size=size))
        assert type(result) is Box and result.size == size
        np.testing.assert_array_equal(result.value, [2.0, 4.0])
    assert traced == [1, 2]


def dataclasses_replace(box, **changes):
    return rebuild(type(box), {**vars(box), **changes})


def test_vmap_and_grad():
    boxes = Box(np.arange(6.0).reshape(3, 2))
    sums = jax.vmap(lambda box: jnp.sum(box.value) * box.size)(boxes)
    np.testing.assert_array_equal(sums, [3.0, 15.0, 27.0])
    slope = jax.grad(lambda box: jnp.sum(box.value**2))(Box(jnp.array([1.0, -2.0])))
    assert type(slope) is Box
    np.testing.assert_array_equal(slope.value, [2.0, -4.0])


def test_pickle_round_trip():
    twin = pickle.loads(pickle.dumps(Box([1.0], Box(2.0), size=7)))
    assert jax.tree.structure(twin) == jax.tree.structure(Box([1.0], Box(2.0), size=7))
    np.testing.assert_array_equal(twin.value, [1.0])


def test_registry_and_static_marks():
    assert REGISTRY[file_name(Box)] is Box and file_name(Box) == f"{__name__}.Box"
    assert [field.name for field in dataclasses.fields(Box) if is_static(field)] == ["size", "name"]


def test_rebuild_bypasses_init():
    assert rebuild(Box, {"value": "text"}).value == "text"


def test_two_classes_of_ours_with_one_name_are_refused():
    assert REGISTRY["ppl_sgp.LinearBasis"] is LinearBasis
    kind = type("LinearBasis", (), {"__module__": "ppl_sgp.elsewhere", "__annotations__": {}})
    with pytest.raises(TypeError, match="bases.linear.LinearBasis is called ppl_sgp.LinearBasis in files already"):
        pytree_dataclass(kind)
    assert REGISTRY["ppl_sgp.LinearBasis"] is LinearBasis
