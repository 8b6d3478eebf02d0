"""Symmetric Toeplitz matrices, of stationary kernels on regular axes, multiplied by FFT."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .._internal.pytree import pytree_dataclass

#: Points of an axis from which O(m log m) by FFT is faster than a product with the matrix, which runs near the peak.
FASTER_FROM = 2048


@pytree_dataclass
class Toeplitz:
    """A symmetric Toeplitz matrix by its first column, embedded in a circulant of twice the size.

    O(m log m) a product, in place of O(m²).

    :param column: the first column, shape (m,).

    >>> import jax.numpy as jnp
    >>> from ppl_sgp.grids.kronecker import apply
    >>> [round(x, 4) for x in apply([Toeplitz(jnp.array([2.0, 1.0, 0.5]))], jnp.array([1.0, 2.0, 3.0])).tolist()]
    [5.5, 8.0, 8.5]
    """

    column: Any

    @property
    def matrix(self) -> jax.Array:
        """The matrix, (m, m)."""
        numbers = jnp.arange(len(self.column))
        return self.column[jnp.abs(numbers[:, None] - numbers[None, :])]

    def last(self, x: Any) -> jax.Array:
        """The product along the first axis, which becomes the last."""
        m = len(self.column)
        circulant = jnp.concatenate([self.column, self.column[:1], self.column[:0:-1]])
        x = jnp.moveaxis(x, 0, -1)
        spectrum = jnp.fft.rfft(circulant).reshape((1,) * (x.ndim - 1) + (-1,))
        return jnp.fft.irfft(spectrum * jnp.fft.rfft(x, 2 * m), 2 * m)[..., :m].astype(x.dtype)
