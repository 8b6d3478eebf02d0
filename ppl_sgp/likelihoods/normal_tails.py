"""The normal distribution function and its derivatives, with all digits in both tails.

``d/dz log Φ(z) = h(z) = φ(z)/Φ(z)``, and ``h′ = −h(h + z)``. Far below zero h is ``−z + 1/|z|``, so that ``h + z``
cancels: there it is a continued fraction.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import erfcx, log_ndtr, ndtr

#: Below it the continued fraction has all digits, with so many terms.
FAR, TERMS = -6.0, 30


@jax.custom_jvp
def log_cdf(z: Any) -> jax.Array:
    """``log Φ(z)``."""
    return jnp.where(z > 0, jnp.log1p(-ndtr(-jnp.abs(z))), log_ndtr(z))


@jax.custom_jvp
def hazard(z: Any) -> jax.Array:
    """``h(z) = φ(z)/Φ(z)``."""
    return jnp.where(z < FAR, _continued_fraction(z) - z, _near(z))


@jax.custom_jvp
def excess(z: jax.Array) -> jax.Array:
    """``h(z) + z``."""
    return jnp.where(z < FAR, _continued_fraction(z), _near(z) + z)


def _near(z: jax.Array) -> jax.Array:
    """``h(z)`` above ``FAR``: below, in float32, JAX's ``erfcx`` is zero between -13.3 and -13.1."""
    z = jnp.maximum(z, FAR)
    return jnp.asarray((2 / jnp.pi) ** 0.5, z.dtype) / erfcx(-z * jnp.asarray(0.5**0.5, z.dtype))


def _continued_fraction(z: jax.Array) -> jax.Array:
    """``h(z) + z`` below ``FAR``."""
    t = jnp.where(z < FAR, -z, -FAR)

    def below(index: jax.Array, above: jax.Array) -> jax.Array:
        return t + (TERMS - index).astype(t.dtype) / above

    return 1 / jax.lax.fori_loop(0, TERMS - 1, below, t)


@log_cdf.defjvp
def _log_cdf_jvp(primals, tangents):
    (z,), (dz,) = primals, tangents
    return log_cdf(z), hazard(z) * dz


@hazard.defjvp
def _hazard_jvp(primals, tangents):
    (z,), (dz,) = primals, tangents
    h = hazard(z)
    return h, -h * excess(z) * dz


@excess.defjvp
def _excess_jvp(primals, tangents):
    (z,), (dz,) = primals, tangents
    e = excess(z)
    return e, (1 - hazard(z) * e) * dz


def log_one_minus_exp(x: jax.Array) -> jax.Array:
    """``log(1 − e⁻ˣ)`` for x > 0, with finite derivatives where x is zero or infinite only in what is not used."""
    near = x < 0.6931
    small = jnp.where(near, x, 0.5)
    large = jnp.where(near, 1.0, x)
    return jnp.where(near, jnp.log(-jnp.expm1(-small)), jnp.log1p(-jnp.exp(-large)))
