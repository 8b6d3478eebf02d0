"""The pass over arrays whose rows are spread over devices, of one process or of several, where they are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .._internal import checks
from ..bases.basis import Basis
from .accumulate import default_chunk_size
from .moments import Moments

ROWS = "sufficient_statistics: with `X` spread over devices, "


def is_sharded(X: Any) -> bool:
    """Whether rows are spread over the devices of a mesh; other arrays of JAX are read by the host."""
    return isinstance(X, jax.Array) and checks.is_concrete(X) and row_axes(X.sharding) is not None


def row_axes(sharding: Any) -> Any:
    """Axes of the mesh that rows are spread over; ``None`` if they are not."""
    return sharding.spec[0] if isinstance(sharding, NamedSharding) and len(sharding.spec) else None


def sum_devices(basis: Basis, X: jax.Array, y: Any, row_weights: Any, chunk_size: int | None) -> Moments:
    """Sums over the rows of global arrays, in float64: each device sums its own rows, then all add up.

    O(n m²/devices) time, and O(m² + chunk·m) memory on each device beside the arrays. In programs of several processes
    all must call it, as any computation on global arrays, and all get the result.

    :param X: inputs (n, d), a global array whose rows are spread over devices, and its columns are not.
    :param y: outputs (n,) or (n, q), with rows spread alike; or an array of the host, the same in all processes.
    :param row_weights: precisions (n,), likewise, or ``None``.
    :raises ValueError: for shapes or shardings that do not fit, and for entries that are not finite; in all processes.
    """
    checks.inputs_matrix(X, basis.input_dim, "sufficient_statistics")
    sharding = X.sharding
    assert isinstance(sharding, NamedSharding)
    rows = row_axes(sharding)
    if len(sharding.spec) > 1 and sharding.spec[1] is not None:
        raise ValueError(f"{ROWS}its columns must not be; got {sharding.spec}. Use PartitionSpec(axis).")
    with jax.enable_x64(True):  # here alone: statistics are float64 whatever JAX's precision
        y = _spread("y", y, len(X), sharding, rows)
        omega = None if row_weights is None else _spread("row_weights", row_weights, len(X), sharding, rows)
        names = (rows,) if isinstance(rows, str) else tuple(rows)
        described = _over_devices(_describe, (names,), sharding.mesh, rows, basis, X, y, omega)
        _require_usable(described.pop("bad"))
        basis.check_domain(np.stack([described["x_min"], described["x_max"]]))
        size = default_chunk_size(basis) if chunk_size is None else chunk_size
        sums = _over_devices(_multiply, (names, size), sharding.mesh, rows, basis, X, y, omega)
    gram, feature_output, bad_row = sums
    if bad_row < len(X):
        raise ValueError(
            f"{ROWS}features of {type(basis).__name__} are not finite at row {bad_row} of `X`. Leave such rows out, or "
            "make features that are finite there."
        )
    if not (np.isfinite(np.diagonal(gram)).all() and np.isfinite(described["output_products"]).all()):
        raise ValueError(f"{ROWS}squares of features or of `y` are too large for float64. Rescale the inputs or `y`.")
    return Moments(gram=gram, feature_output=feature_output, **described)


def _spread(name: str, values: Any, num_rows: int, sharding: NamedSharding, rows: Any) -> jax.Array:
    if np.ndim(values) < 1 or np.shape(values)[0] != num_rows:
        raise ValueError(f"{ROWS}`{name}` must have {num_rows} rows as well; got shape {np.shape(values)}.")
    if not isinstance(values, jax.Array):
        values = np.asarray(values)
    if values.dtype.kind not in "iuf" or values.ndim > 2:
        raise ValueError(f"{ROWS}`{name}` must hold real numbers, (n,) or (n, q); got {values.dtype}, {values.shape}.")
    return jax.device_put(values, NamedSharding(sharding.mesh, PartitionSpec(rows)))


def _require_usable(bad: Any) -> None:
    for name, count in zip(("X", "y", "row_weights"), bad, strict=True):
        if count:
            wanted = "positive and finite" if name == "row_weights" else "finite"
            raise ValueError(
                f"{ROWS}`{name}` has {count:.0f} entries that are not {wanted}; drop or impute those rows first."
            )


def _over_devices(local: Callable[..., Any], options: tuple[Any, ...], *arguments: Any) -> Any:
    """What ``local`` makes of a basis and of each device's rows, the same on all devices, as NumPy arrays."""
    return jax.tree.map(lambda array: np.array(array.addressable_data(0)), _compiled(local, options, *arguments))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _compiled(
    local: Callable[..., Any], options: tuple[Any, ...], mesh: Mesh, rows: Any, basis: Basis, *arrays: Any
) -> Any:
    in_specs = (PartitionSpec(), *(PartitionSpec(rows) for _ in arrays))
    mapped = jax.shard_map(functools.partial(local, *options), mesh=mesh, in_specs=in_specs, out_specs=PartitionSpec())
    return mapped(basis, *arrays)


def _describe(names: tuple[str, ...], _: Basis, X: Any, y: Any, omega: Any) -> dict[str, jax.Array]:
    """What needs no features, and how many entries cannot be used."""
    X, y, weight = X.astype(jnp.float64), y.astype(jnp.float64), _precisions(X, omega)

    def total(array):
        return jax.lax.psum(jnp.sum(array, axis=0), names)

    num_rows = total(jnp.ones_like(weight))
    x_mean = total(X) / num_rows
    bad = (~jnp.isfinite(X), ~jnp.isfinite(y), ~((weight > 0) & jnp.isfinite(weight)))
    return {
        "output_products": total(_products(_scaled(y, weight), y)),
        "num_rows": num_rows,
        "log_weights": total(jnp.log(weight)),
        "y_mean": total(y) / num_rows,
        "x_mean": x_mean,
        "x_square": total((X - x_mean[None, :]) ** 2),
        "x_min": jax.lax.pmin(X.min(axis=0), names),
        "x_max": jax.lax.pmax(X.max(axis=0), names),
        "bad": jnp.stack([total(entries.ravel().astype(jnp.float64)) for entries in bad]),
    }


def _multiply(names: tuple[str, ...], size: int, basis: Basis, X: Any, y: Any, omega: Any) -> tuple[Any, Any, Any]:
    """ΦᵀΩΦ and ΦᵀΩy, a chunk of rows of each device at a time; and the first row with features that are not finite.

    Rows count over all devices, n if there is none.
    """
    size, num_rows = min(size, len(X)), len(X) * jax.lax.axis_size(names)
    row_numbers = jnp.arange(size, dtype=jnp.int32) + len(X) * jax.lax.axis_index(names)

    def add(total, index):
        # The last chunk begins earlier, to be as long as the others; rows that have been summed have weight zero.
        start = jnp.minimum(index * size, len(X) - size)
        X_rows, y_rows, omega_rows = jax.tree.map(
            lambda array: jax.lax.dynamic_slice_in_dim(array, start, size), (X, y, omega)
        )
        fresh = start + jnp.arange(size) >= index * size
        Phi = basis.features(X_rows.astype(jnp.float64), jnp)
        bad_rows = jnp.where(jnp.isfinite(Phi).all(axis=1), num_rows, row_numbers + start.astype(jnp.int32))
        weighted = _scaled(Phi, _precisions(X_rows, omega_rows) * fresh.astype(jnp.float64))
        gram, feature_output, earlier = total
        product = weighted.T @ y_rows.astype(jnp.float64)
        return (gram + weighted.T @ Phi, feature_output + product, jnp.minimum(earlier, bad_rows.min())), None

    m = basis.num_features
    nothing = (jnp.zeros((m, m)), jnp.zeros((m, *y.shape[1:])), jnp.array(num_rows, jnp.int32))
    total, _ = jax.lax.scan(add, jax.lax.pcast(nothing, names, to="varying"), jnp.arange(-(-len(X) // size)))
    gram, feature_output, bad_row = total
    return *jax.lax.psum((gram, feature_output), names), jax.lax.pmin(bad_row, names)


def _products(left: jax.Array, right: jax.Array) -> jax.Array:
    """Of the outputs of each row, (n,) or (n, q, q)."""
    return left * right if left.ndim == 1 else left[:, :, None] * right[:, None, :]


def _precisions(X: Any, omega: Any) -> jax.Array:
    return jnp.ones_like(X[:, 0], dtype=jnp.float64) if omega is None else omega.astype(jnp.float64)


def _scaled(rows: jax.Array, weight: jax.Array) -> jax.Array:
    return rows * weight.reshape(-1, *[1] * (rows.ndim - 1))
