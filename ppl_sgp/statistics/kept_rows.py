"""Rows kept as they are: what sites observe whose features move with their hyperparameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from .input_chunks import DaskChunks, InputChunks, Spread
from .partitions import is_partitioned
from .rows import as_float64, validated
from .sources import TableChunks, as_triple


class KeptOutputs:
    """Outputs and row weights in memory, and what follows from them."""

    y: Any
    row_weights: Any
    num_rows: int
    input_dim: int
    has_noise = True

    @property
    def num_outputs(self) -> int:
        """The number of output columns q; 1 also for a one-dimensional y."""
        return self.y.shape[1] if self.y.ndim == 2 else 1

    @property
    def values(self) -> Any:
        """What a site observes: y, shape (n,), or of several outputs its transpose, (q, n)."""
        return self.y.T

    @property
    def weights(self) -> Any:
        """The row weights ω, ones if there are none, shape (n,)."""
        return np.ones(self.num_rows) if self.row_weights is None else self.row_weights

    @property
    def output_scale(self) -> Any:
        """Root mean square of y about zero, over all outputs: the natural unit of amplitudes and noise."""
        return jnp.mean(self.output_scales**2) ** 0.5 if self.num_outputs > 1 else self.output_scales

    @property
    def output_scales(self) -> Any:
        """Root mean square of y about zero, each output's own: shape (q,), or () for a one-dimensional y."""
        mean = self.weights @ self.y**2 / self.num_rows
        return mean**0.5

    def _with_outputs(self, values: Any) -> Any:
        """Rows with other outputs, in the shape of :attr:`values`: a value of the site that observes them."""
        return dataclasses.replace(self, y=values.T)  # type: ignore[type-var]

    def __repr__(self) -> str:
        shape = f"num_rows={self.num_rows}, input_dim={self.input_dim}, num_outputs={self.num_outputs}"
        return f"{type(self).__name__}({shape})"


@pytree_dataclass
class Rows(KeptOutputs):
    """n rows of inputs and outputs, validated; made by :func:`rows`. A pytree: pass it to models as an argument.

    Summaries have the names and meanings that they have in :class:`~ppl_sgp.SufficientStatistics`.

    :param X: inputs, shape (n, d), float64.
    :param y: outputs, shape (n,) or (n, q), float64.
    :param row_weights: relative noise precisions ω, shape (n,): row i has noise variance ``σ²/ωᵢ``; ``None`` if all
        are one.
    """

    X: Any
    y: Any
    row_weights: Any = None

    @property
    def num_rows(self) -> int:  # type: ignore[override]
        """The number of rows n."""
        return self.X.shape[0]

    @property
    def input_dim(self) -> int:  # type: ignore[override]
        """The number of inputs d."""
        return self.X.shape[1]

    @property
    def input_scale(self) -> Any:
        """Standard deviation of each input, shape (d,); zero for one that never varies."""
        # Rounding gives a constant column a tiny spread, from which lengthscales must not be taken.
        scale = self.X.std(axis=0)
        return (self.X.max(axis=0) > self.X.min(axis=0)).astype(scale.dtype) * scale

    @property
    def input_range(self) -> tuple[Any, Any]:
        """Least and largest value of each input, shape (d,) each."""
        return self.X.min(axis=0), self.X.max(axis=0)

    @property
    def parts(self) -> dict[str, Any]:
        """What is written to a file, by name."""
        return {"rows": self}

    @classmethod
    def of_parts(cls, parts: dict[str, Any], path: Any) -> Rows:
        """The rows of a file.

        :raises ValueError: if they are not rows that could have been written.
        """
        found = parts.get("rows")
        if not isinstance(found, cls):
            raise ValueError(f"{path} holds {sorted(parts)}, and no rows.")
        return cls(*validated(None, found.X, found.y, found.row_weights, f"rows of {path}"))

    def require_same(self, X: Any, y: Any, row_weights: Any, owner: str) -> None:
        """Refuse rows that are not these, in their order, and say in what they differ.

        Each may be ``None``: then these are meant.
        """
        for name, given in (("X", X), ("y", y), ("row_weights", row_weights)):
            kept = getattr(self, name)
            if given is None:
                continue
            if kept is None or not np.array_equal(as_float64(checks.host_numbers(name, given, owner)), kept):
                raise ValueError(
                    f"{owner}: `{name}` is not that of the rows of this posterior, which knows them: leave it out."
                )

    __repr__ = KeptOutputs.__repr__


@pytree_dataclass
class ChunkedRows(KeptOutputs):
    """Rows whose inputs are read anew, a chunk at a time, whenever they are needed; made by :func:`rows`.

    Outputs and row weights are in memory, inputs are not. Summaries are those of :class:`Rows`.

    :param y: outputs, shape (n,) or (n, q), float64.
    :param row_weights: relative noise precisions, shape (n,), or ``None``.
    :param input_scale: standard deviation of each input, shape (d,); zero for one that never varies.
    :param input_range: least and largest value of each input, shape (d,) each.
    :param inputs: what reads the inputs.
    """

    y: Any
    row_weights: Any
    input_scale: Any
    input_range: tuple[Any, Any]
    inputs: InputChunks = static()

    @property
    def num_rows(self) -> int:  # type: ignore[override]
        """The number of rows n."""
        return self.inputs.num_rows

    @property
    def input_dim(self) -> int:  # type: ignore[override]
        """The number of inputs d."""
        return self.inputs.input_dim

    @property
    def parts(self) -> dict[str, Any]:
        """What is written to a file: nothing can be."""
        raise ValueError(
            "Inputs of chunks are not in memory, so that no file can hold them. Save a posterior of `sgp.rows(X, y)`, "
            "with X an array; or save the draws, and make the posterior again."
        )

    def in_memory(self) -> Rows:
        """These rows with their inputs as an array, for what asks each of them anyway."""
        return Rows(self.inputs.at(np.arange(self.num_rows)), self.y, self.row_weights)

    __repr__ = KeptOutputs.__repr__


def rows(X: Any, y: Any = None, row_weights: Any = None) -> Rows | ChunkedRows:
    """Rows for sites that need all of them: exact GPs, and inducing points that are free.

    Inputs of chunks stay where they are: only outputs, and row weights, are kept in memory, and sites with inducing
    points read the chunks again twice for each value with its gradient. Arrays of JAX that are spread over devices are
    collected by the host.

    :param X: inputs, shape (n, d), an array of NumPy, JAX or Dask; or chunks ``(X, y)`` or ``(X, y, row_weights)`` that
        can be iterated again: a list, :func:`~ppl_sgp.table_chunks`, or an object of yours.
    :param y: outputs, shape (n,) or (n, q); ``None`` if ``X`` is chunks.
    :param row_weights: relative noise precisions, shape (n,): row i has noise variance ``σ²/ωᵢ``.
    :return: :class:`Rows`, or of chunks and Dask :class:`ChunkedRows`.
    :raises ValueError: for shapes that do not fit, no rows, entries that are not finite numbers, and chunks that can be
        read only once.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> sgp.rows(X, np.sin(6 * X[:, 0]))
        Rows(num_rows=30, input_dim=1, num_outputs=1)
        >>> sgp.rows([(X[:20], np.zeros(20)), (X[20:], np.ones(10))])
        ChunkedRows(num_rows=30, input_dim=1, num_outputs=1)
    """
    if is_partitioned(X) and not isinstance(X, TableChunks):
        return _read(DaskChunks(X, y, row_weights))
    if y is None and not hasattr(X, "shape") and isinstance(X, Iterable):
        if row_weights is not None:
            raise ValueError("rows: with chunks, `row_weights` go into the chunks, (X, y, row_weights).")
        return _read(X)
    if y is None:
        raise ValueError("rows: `y` is missing. Pass arrays `X, y`, or chunks (X, y) that can be iterated again.")
    return Rows(*validated(None, X, y, row_weights, "rows"))


def _read(chunks: Iterable[Any]) -> ChunkedRows:
    """One pass, which checks all rows and keeps their outputs."""
    if iter(chunks) is chunks:
        raise ValueError(
            f"rows: chunks are read again for each evaluation, but a {type(chunks).__name__} can be iterated only "
            "once. Pass a list, sgp.table_chunks(...), or an object whose `__iter__` starts anew."
        )
    ys: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    spread = Spread()
    for index, chunk in enumerate(chunks):
        X, y, omega = as_triple(chunk)
        X, y, omega = validated(None, X, y, omega, f"rows: chunk {index}")
        columns_fit = not ys or (X.shape[1] == spread.mean.size and y.shape[1:] == ys[0].shape[1:])
        if not columns_fit or (ys and (omega is None) != (not weights)):
            raise ValueError(
                f"rows: chunk {index} differs from those before: `X` has shape {X.shape}, `y` {y.shape}, "
                f"{'no ' if omega is None else ''}row weights. All must have the same columns, and weights or none."
            )
        ys.append(y.copy())
        weights += [] if omega is None else [omega.copy()]
        spread.add(X)
    if not ys:
        raise ValueError("rows: there were no chunks.")
    inputs = InputChunks(chunks, spread.count, spread.mean.size)
    row_weights = np.concatenate(weights) if weights else None
    return ChunkedRows(np.concatenate(ys), row_weights, spread.scale, spread.range, inputs)
