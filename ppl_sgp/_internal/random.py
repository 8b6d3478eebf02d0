"""Keys of JAX, checked, and generators of NumPy that follow from them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def random_key(key: Any, owner: str) -> jax.Array:
    """One key of JAX, typed or as two words; anything else, such as an integer, is refused."""
    if isinstance(key, jax.Array):
        typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        if (typed and key.ndim == 0) or (key.dtype == jnp.uint32 and key.ndim == 1):
            return key
    shown = f"an array of {key.dtype} and shape {key.shape}" if isinstance(key, jax.Array) else repr(key)
    seed = key if isinstance(key, int) and not isinstance(key, bool) else 0
    raise ValueError(f"{owner}: `key` must be a random key of JAX, such as `jax.random.key({seed})`; got {shown}.")


def host_generator(key: Any, owner: str, *stream: int) -> np.random.Generator:
    """A generator of NumPy, in float64 whatever JAX's precision.

    :param stream: numbers that tell several generators of one key apart.
    """
    words = np.asarray(jax.random.key_data(random_key(key, owner))).ravel()
    return np.random.default_rng([*(int(word) for word in words), *stream])
