"""Functions of single problems, mapped over batches that broadcast against each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp


def vectorize(function: Callable[..., Any], signature: str, arguments: Sequence[Any], dtype: Any) -> Any:
    """Apply ``function`` over the broadcast batch axes of ``arguments``, cast to ``dtype``.

    Batch axes are aligned explicitly, so that JAX's rank promotion may be "raise". An argument
    without a batch is not repeated: what depends on it alone is computed once. Matrix products run
    in :func:`full_precision`.

    :param signature: core dimensions, in the notation of ``jax.numpy.vectorize``.
    """
    core_ranks = [len([name for name in core.strip("()").split(",") if name]) for core in _inputs(signature)]
    arrays = [jnp.asarray(argument, dtype) for argument in arguments]
    batch_rank = max(array.ndim - core for array, core in zip(arrays, core_ranks, strict=True))
    aligned = [_pad(array, batch_rank + core) for array, core in zip(arrays, core_ranks, strict=True)]
    with full_precision():
        return jnp.vectorize(function, signature=signature)(*aligned)


def full_precision() -> AbstractContextManager[None]:
    """Matrix products in the precision of their operands: some accelerators keep 10 bits of float32 by default."""
    return jax.default_matmul_precision("highest")


def _inputs(signature: str) -> list[str]:
    return [part + ")" for part in signature.split("->")[0].rstrip(")").split("),")]


def _pad(array: jax.Array, rank: int) -> jax.Array:
    return array.reshape((1,) * (rank - array.ndim) + array.shape)
