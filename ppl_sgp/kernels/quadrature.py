"""Quadrature over a Gamma mixing variable, in the log domain.

These are the integrals behind the modified Bessel function ``K``: with ``t = log m`` a Gamma mixing density and a
Gaussian in a variance ``m`` or ``1 / m`` make integrands whose logarithm falls away from its peak as
``A (e^t - 1 - t) + B (e^-t - 1 + t)``. They are analytic in a strip around the real line, so the trapezoid rule
converges geometrically once the nodes cover the bulk. The nodes follow the hyperparameters and frequencies but are
not differentiated: a derivative of the sum is then the same rule applied to the derivative of the integrand.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

NUM_NODES = 128


class Peak(NamedTuple):
    """A peak at ``t = where`` from which the log integrand falls by ``A (e^t - 1 - t) + B (e^-t - 1 + t)``."""

    where: Array
    A: Array
    B: Array


def peak(order: Array | float, rate: Array, decay: Array) -> Peak:
    """The peak of ``order t - rate e^t - decay e^-t``, for positive ``rate`` and ``decay``."""
    root = jnp.sqrt(order**2 + 4 * rate * decay)
    # A - B = order; the larger of the two by addition, the other from the product A B = rate decay
    larger = (jnp.abs(order) + root) / 2
    smaller = rate * decay / larger
    A, B = jnp.where(order > 0, larger, smaller), jnp.where(order > 0, smaller, larger)
    return Peak(jnp.log(A) - jnp.log(rate), A, B)


def convolved_peak(alpha: Array, unit: Array, other: Array, xi2: Array) -> Peak:
    """Where a Gamma(alpha) mixing variable lies if it adds ``unit e^t`` to the variances ``other`` of a normal.

    :param alpha: shape parameter, scalar.
    :param unit: (..., d), positive.
    :param other: (..., d), positive.
    :param xi2: (..., d), squares of the normal variate.
    """

    def slope(t: Array) -> tuple[Array, Array]:
        total = other + unit * jnp.exp(t)[..., None]
        share = 1 - other / total
        pull = jnp.sum(share * xi2 / total, axis=-1) / 2
        return alpha * (1 - jnp.exp(t)) + pull - jnp.sum(share, axis=-1) / 2, pull

    def bisect(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (bracket[0] + bracket[1]) / 2
        rising = slope(middle)[0] > 0
        return jnp.where(rising, middle, bracket[0]), jnp.where(rising, bracket[1], middle)

    lower = jnp.log(alpha) - jnp.log(alpha + jnp.sum(unit / other, axis=-1) / 2)
    upper = jnp.log1p(jnp.sqrt(1 + 2 * jnp.sum(xi2 / unit, axis=-1) / alpha)) - math.log(2)
    where = jax.lax.fori_loop(0, 24, bisect, (lower, jnp.broadcast_to(upper, lower.shape)))[0]
    return Peak(where, alpha * jnp.maximum(1.0, jnp.exp(where)), slope(where)[1] + floor(where.dtype))


def floor(dtype: jnp.dtype) -> float:
    """A number next to nothing whose products with moderate ones do not underflow."""
    return float(jnp.finfo(dtype).tiny) ** 0.9


def trapezoid(core: Sequence[Peak], cover: Sequence[Peak] = ()) -> tuple[Array, Array]:
    """Nodes ``t`` and log weights (..., NUM_NODES) for integrands whose bulk lies between the ``core`` peaks.

    The nodes reach to where each peak, of ``cover`` too, has fallen below rounding. Far from the core their spacing
    grows exponentially, since a tail may be a slow exponential.
    """

    def most(values: list[Array]) -> Array:
        return functools.reduce(jnp.maximum, values)

    core = jax.lax.stop_gradient(core)
    cover = (*core, *jax.lax.stop_gradient(cover))
    drop = 3 - math.log(jnp.finfo(core[0].where.dtype).eps)
    scale = -most([-jnp.minimum(*_reach(p, 1.0)) for p in core])
    lower, upper = -most([scale - p.where for p in core]), most([p.where + scale for p in core])
    first = -most([_reach(p, drop)[0] - p.where for p in cover])
    last = most([p.where + _reach(p, drop)[1] for p in cover])
    centre, half = (lower + upper) / 2, (upper - lower) / 2
    # A spacing of 0.3, or half the scale of a narrow peak, for as far as the nodes allow; growth only beyond. The
    # error is about exp(-pi**2 / spacing), as the integrands are analytic for |Im t| < pi / 2.
    spacing = jnp.minimum(0.3, scale / 2)
    half = jnp.maximum(half, spacing * (NUM_NODES - 1) / jnp.arcsinh((last - first) / half))
    start, stop = jnp.arcsinh((first - centre) / half), jnp.arcsinh((last - centre) / half)
    step = ((stop - start) / (NUM_NODES - 1))[..., None]
    v = start[..., None] + step * jnp.arange(NUM_NODES, dtype=step.dtype).reshape((1,) * (step.ndim - 1) + (-1,))
    return centre[..., None] + half[..., None] * jnp.sinh(v), jnp.log(half[..., None] * step * jnp.cosh(v))


def _reach(p: Peak, drop: Array | float) -> tuple[Array, Array]:
    """Distances to the left and right of a peak by which the log integrand has fallen by ``drop`` or a little more."""

    def steep(q: Array) -> Array:  # e^t - 1 - t = q; the iteration falls towards the root from above
        t = jnp.sqrt(2 * q)
        for _ in range(3):
            t = jnp.log1p(q + t)
        return t

    def flat(q: Array) -> Array:  # e^-t - 1 + t = q, bounded from above
        return q + jnp.sqrt(2 * q)

    a, b = drop / p.A, drop / p.B
    return jnp.minimum(steep(b), flat(a)), jnp.minimum(steep(a), flat(b))


def log_gamma_law(t: Array, shape: Array) -> Array:
    """The log density of ``t = log m`` for ``m ~ Gamma(shape) / shape``, without cancellation for large shapes."""
    large = jnp.maximum(shape, 10.0)
    stirling = 0.5 * jnp.log(large / (2 * jnp.pi)) - (1 / 12 - (1 / 360 - 1 / (1260 * large**2)) / large**2) / large
    small = jnp.minimum(shape, 10.0)
    exact = small * (jnp.log(small) - 1) - gammaln(small)
    return shape * (t - jnp.expm1(t)) + jnp.where(shape > 10, stirling, exact)
