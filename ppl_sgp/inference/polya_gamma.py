"""Draws of Pólya-Gamma variables with any positive shapes, compiled, on any device.

``ω ~ PG(b, z)`` is ``Σₖ gₖ/(2π²(k − ½)² + z²/2)`` with ``gₖ ~ Gamma(b)`` (Polson, Scott & Windle 2013, eq 1). The first
:data:`TERMS` of these are drawn; all others together are a gamma variable plus a constant with the same first three
cumulants at z = 0, tilted by z as they are, so that ω is an exact draw of a law that is known in closed form: with it

    E exp(−ωη²/2) = cosh(η/2)⁻ᵇ exp(−b δ(η)),   0 ≤ δ(η) < 1e-9 for |η| ≤ 10, 3e-7 for 20, 6e-6 for 30.

A Gibbs sampler that draws ω so draws from the exact posterior of log likelihoods that are changed by ``b δ(η)`` nats a
row: far below what any number of draws can show.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import zeta

#: Terms that are drawn one by one. Each one more than halves the error about every second time.
TERMS = 16
_SIZES = 2 * np.pi**2 * (np.arange(TERMS) + 0.5) ** 2


def _remainder() -> tuple[float, float, float]:
    """Constant, gamma shape and scale that stand for all further terms, each for b = 1."""
    first, second, third = (zeta(2 * p, TERMS + 0.5) / (2 * np.pi**2) ** p for p in (1, 2, 3))
    scale = third / second  # cumulants are first, second, 2·third; of a gamma k s, k s², 2k s³
    shape = second / scale**2
    return first - shape * scale, shape, scale


CONSTANT, SHAPE, SCALE = _remainder()


def polya_gamma(key: jax.Array, shape: Any, tilt: jax.Array) -> jax.Array:
    """Draws of ``PG(b, z)``, one for each pair.

    :param key: a JAX random key.
    :param shape: b, positive, integers or not: an array of the shape of ``tilt``, or the number 1, for which gamma
        variables are exponential, some fifty times faster on a CPU.
    :param tilt: z, any sign.
    :return: positive numbers, of the shape and dtype of ``tilt``.

    .. doctest::

        >>> import jax, jax.numpy as jnp
        >>> from ppl_sgp.inference.polya_gamma import polya_gamma
        >>> draws = polya_gamma(jax.random.key(0), 1, jnp.zeros(2000))
        >>> bool(abs(draws.mean() - 0.25) < 0.02)
        True
    """
    one_each = isinstance(shape, int) and shape == 1
    b = jnp.broadcast_to(jnp.asarray(shape, tilt.dtype), tilt.shape)[..., None]
    half_square = tilt[..., None] ** 2 / 2
    sizes = jnp.asarray(_SIZES, tilt.dtype).reshape((1,) * tilt.ndim + (-1,))
    key_terms, key_rest = jax.random.split(key)
    each = (*tilt.shape, TERMS)
    if one_each:
        gammas = jax.random.exponential(key_terms, each, tilt.dtype)
    else:
        gammas = jax.random.gamma(key_terms, jnp.broadcast_to(b, each))
    rest = jax.random.gamma(key_rest, SHAPE * b) / (1 / SCALE + half_square)
    return jnp.sum(gammas / (sizes + half_square), axis=-1) + (CONSTANT * b + rest)[..., 0]
