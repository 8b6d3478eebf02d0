"""Sums over rows, a part at a time, in memory that does not grow with n; so are their gradients, in a second pass.

The sums are all that the rest of an evidence sees of the rows. Its derivatives in the sums are the same for all parts,
so the second pass evaluates each part again and adds up what it contributes: nothing of the first pass is kept.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.sharding import Mesh, PartitionSpec

from .._internal.constants import constant
from .._internal.pytree import pytree_dataclass, static
from ..kernels import Kernel

#: Pairs of rows and points at a time: 8 MB a matrix, for which products run at full speed.
PART_ENTRIES = 2**20


@pytree_dataclass
class Parts:
    """Inputs cut into parts of equally many rows, the last one filled up with rows that do not count.

    :ivar X: inputs, shape (n, d); ``None`` if they are read from ``source``.
    :ivar weights: row weights ω, shape (n,), or ``None``.
    :ivar members: numbers of the rows of each part, shape (parts, size), those that do not count negative; ``None``
        for rows in their order.
    :ivar source: reads the inputs of part i, in their order, as an array of NumPy, shape (size, d).
    :ivar spread: the mesh of devices that inputs are spread over, and its axes; ``None`` if they are in one place.
    :ivar first: the number of the first row, of the rows of one device among all.
    """

    X: Any
    weights: Any
    members: Any = None
    num_rows: int = static(default=0)
    input_dim: int = static(default=0)
    size: int = static(default=0)
    source: Callable[[Any], np.ndarray] | None = static(default=None)
    spread: tuple[Mesh, Any] | None = static(default=None)
    first: Any = 0

    @property
    def count(self) -> int:
        """The number of parts."""
        return -(-self.num_rows // self.size) if self.members is None else self.members.shape[0]

    def at(self, index: Any) -> Part:
        """The rows of one part."""
        if self.members is None:
            numbers = index * self.size + jnp.arange(self.size)
            counts, numbers = numbers < self.num_rows, jnp.minimum(numbers, self.num_rows - 1)
        else:
            numbers = jnp.asarray(self.members)[index]
            counts, numbers = numbers >= 0, jnp.maximum(numbers, 0)
        if self.source is None:
            X = jnp.asarray(self.X)[numbers]
            numbers = jnp.asarray(self.first, numbers.dtype) + numbers
        else:
            shape = jax.ShapeDtypeStruct((self.size, self.input_dim), jnp.float64)
            X = jax.pure_callback(self.source, shape, index, vmap_method="sequential")
        weights = jnp.ones(self.size) if self.weights is None else jnp.asarray(self.weights)[numbers]
        return Part(numbers, counts, X, weights)


class Part(NamedTuple):
    """The numbers of some rows, whether each counts, their inputs and their weights ω."""

    numbers: jax.Array
    counts: jax.Array
    X: jax.Array
    weights: jax.Array

    @property
    def counted(self) -> jax.Array:
        """The weights, zero for rows that do not count."""
        return jnp.where(self.counts, self.weights, 0)


def part_size(num_rows: int, num_points: int) -> int:
    """Rows of a part: as many as fit, but no more than there are."""
    return max(1, min(num_rows, PART_ENTRIES // num_points))


class Whitened(NamedTuple):
    """Sums over rows whitened by V = L⁻¹k(Z, X): ``VΩVᵀ`` (m, m), ``VΩy`` (m, q) and ``Σω k(x, x)``."""

    gram: jax.Array
    projection: jax.Array
    variance: jax.Array


@jax.custom_vjp
def whitened(parts: Parts, kernel: Kernel, Z: jax.Array, L: jax.Array, y: jax.Array) -> Whitened:
    """The sums for ``LLᵀ = k(Z, Z)`` and outputs (n, q).

    Products only, since those with L⁻¹ are as accurate as solves where L is a Cholesky factor, and twice as fast. With
    the derivatives written out a value with its gradient takes 3 products of n·m² and 2 evaluations of the kernel.
    """
    inverse = _inverse(L)

    def add(total: Whitened, part: Part) -> Whitened:
        V, weights = lower_product(inverse, kernel(Z, part.X)), part.counted
        weighted = V * weights[None, :]
        return Whitened(
            total.gram + lower_gram(weighted, V),
            total.projection + weighted @ y[part.numbers],
            total.variance + jnp.sum(weights * kernel.diag(part.X)),
        )

    m, q = len(Z), y.shape[1]
    sums = _over(parts, add, Whitened(jnp.zeros((m, m)), jnp.zeros((m, q)), jnp.zeros(())))
    return sums._replace(gram=sums.gram + jnp.tril(sums.gram, -1).T)


def _whitened_forward(parts: Parts, kernel: Kernel, Z: jax.Array, L: jax.Array, y: jax.Array) -> tuple[Whitened, Any]:
    sums = whitened(parts, kernel, Z, L, y)
    return sums, (parts, kernel, Z, L, y, sums)


def _whitened_backward(saved: Any, of: Whitened) -> tuple[Any, ...]:
    """With S = Ā + Āᵀ: ``(L⁻ᵀSL⁻¹ K + L⁻ᵀr̄ yᵀ)Ω`` for K, and ``−L⁻ᵀ(SA + r̄rᵀ)``, its lower triangle, for L."""
    parts, kernel, Z, L, y, sums = saved
    inverse, symmetric = _inverse(L), of.gram + of.gram.T
    along = inverse.T @ of.projection
    middle = inverse.T @ symmetric @ inverse

    def add(total: Any, part: Part) -> Any:
        weights = part.counted
        (K, _), pull = jax.vjp(lambda kernel, Z: (kernel(Z, part.X), kernel.diag(part.X)), kernel, Z)
        of_K = (middle @ K + along @ y[part.numbers].T) * weights[None, :]
        of_kernel, of_Z = pull((of_K, of.variance * weights))
        of_y = total[2].at[part.numbers].add(weights[:, None] * (K.T @ along))
        return jax.tree.map(jnp.add, total[0], of_kernel), total[1] + of_Z, of_y

    nothing = (jax.tree.map(jnp.zeros_like, kernel), jnp.zeros_like(Z), jnp.zeros_like(y))
    of_kernel, of_Z, of_y = _over(parts, add, nothing)
    of_L = -jnp.tril(inverse.T @ (symmetric @ sums.gram + of.projection @ sums.projection.T))
    return None, of_kernel, of_Z, of_L, of_y


whitened.defvjp(_whitened_forward, _whitened_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def summed(function: Callable[..., Any], parts: Parts, parameters: Any, y: jax.Array) -> Any:
    """The sum of ``function(parameters, part, y of its rows)`` over parts, a tree of arrays.

    :param function: a function of a module, whose terms vanish for rows that do not count.
    """
    first = jax.eval_shape(lambda: function(parameters, parts.at(0), y[parts.at(0).numbers]))

    def add(total: Any, part: Part) -> Any:
        return jax.tree.map(jnp.add, total, function(parameters, part, y[part.numbers]))

    return _over(parts, add, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), first))


def _summed_forward(function: Callable[..., Any], parts: Parts, parameters: Any, y: jax.Array) -> tuple[Any, Any]:
    return summed(function, parts, parameters, y), (parts, parameters, y)


def _summed_backward(function: Callable[..., Any], saved: Any, of: Any) -> tuple[Any, ...]:
    parts, parameters, y = saved

    def add(total: Any, part: Part) -> Any:
        _, pull = jax.vjp(lambda parameters, y: function(parameters, part, y), parameters, y[part.numbers])
        of_parameters, of_y = pull(of)
        return jax.tree.map(jnp.add, total[0], of_parameters), total[1].at[part.numbers].add(of_y)

    of_parameters, of_y = _over(parts, add, jax.tree.map(jnp.zeros_like, (parameters, y)))
    return None, of_parameters, of_y


summed.defvjp(_summed_forward, _summed_backward)


def _over(parts: Parts, add: Callable[[Any, Part], Any], nothing: Any) -> Any:
    """What adding all parts to nothing makes: of inputs spread over devices, of each device's rows, then of these."""

    def all_of(parts: Parts) -> Any:
        def step(total: Any, index: Any) -> tuple[Any, None]:
            return add(total, parts.at(index)), None

        return jax.lax.scan(step, nothing, jnp.arange(parts.count))[0]

    if parts.spread is None:
        return all_of(parts)
    mesh, axes = parts.spread

    def of_device(X: jax.Array) -> Any:
        first = len(X) * jax.lax.axis_index(axes)
        n, d = X.shape
        local = Parts(X, parts.weights, None, n, d, min(parts.size, n), first=first)
        return jax.lax.psum(all_of(local), axes)

    # Sums of a device depend on it, what is differentiated within them does not, and is meant for its rows alone.
    mapped = jax.shard_map(
        of_device, mesh=mesh, in_specs=PartitionSpec(axes), out_specs=PartitionSpec(), check_vma=False
    )
    return mapped(parts.X)


def _bands(size: int) -> list[slice]:
    """Rows of a lower triangle in bands, with which its products take 5/8 of the operations of a square."""
    ends = [round(size * band / 4) for band in range(5)]
    return [slice(*pair) for pair in itertools.pairwise(ends) if pair[0] < pair[1]]


def lower_product(L: jax.Array, B: jax.Array) -> jax.Array:
    """``L @ B`` for L lower triangular."""
    return jnp.concatenate([L[band, : band.stop] @ B[: band.stop] for band in _bands(len(L))])


def lower_gram(A: jax.Array, B: jax.Array) -> jax.Array:
    """The lower triangle of ``A @ B.T``, symmetric; zeros above."""
    size = len(A)
    products = [A[band] @ B[: band.stop].T for band in _bands(size)]
    return jnp.tril(jnp.concatenate([jnp.pad(p, ((0, 0), (0, size - p.shape[1]))) for p in products]))


def _inverse(L: jax.Array) -> jax.Array:
    return solve_triangular(L, jnp.eye(len(L)), lower=True)


held = functools.partial(
    constant,
    "Inputs X of rows are constants of an evidence with inducing points; a derivative in them was asked for. "
    "Differentiate in the kernel, the points, the noise or y, and pass rows through `jax.lax.stop_gradient`.",
)
