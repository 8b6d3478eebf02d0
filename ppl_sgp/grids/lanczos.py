"""``zᵀ log(S) z`` by Lanczos quadrature, and vectors that its derivative is made of.

``S ≈ V T Vᵀ`` on the Krylov space of z after k steps gives ``‖z‖² e₁ᵀ log(T) e₁`` (Ubaru, Chen & Saad 2017). Its
derivative is that of the matrix logarithm, ``∫₀^∞ x_tᵀ dS x_t dt`` with ``x_t = (S + t)⁻¹z``, on the same space

    Σ_ab u_a u_b Φ_ab w_aᵀ dS w_b,   Φ_ab = (log λ_a − log λ_b)/(λ_a − λ_b),

for Ritz pairs (λ, w) and u the first components: a sum of squares ``Σ cᵀ dS c``. So values and gradients are of one
function, up to what Lanczos has not resolved; ``zᵀS⁻¹dS z``, whose mean is the same, is not the gradient of the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Quadrature(NamedTuple):
    """Of one probe z.

    :ivar value: ``zᵀ log(S) z``.
    :ivar truncation: how much the last step changed it.
    :ivar columns: c, shape (k, L), with derivative ``Σ cᵀ dS c``.
    :ivar images: what the operator made of them on the way to its product, (k, …).
    """

    value: jax.Array
    truncation: jax.Array
    columns: jax.Array
    images: jax.Array


def log_quadrature(
    operator: Callable[[jax.Array], tuple[jax.Array, jax.Array]], z: jax.Array, steps: int
) -> Quadrature:
    """k steps with full reorthogonalisation: k products with S, O(k²L) beside, and memory for k vectors and images.

    :param operator: S times a vector, (L,) to (L,), positive definite, and a linear image of the vector to be kept.
    :param z: the probe, (L,).
    :param steps: k, at most L.
    """
    tiny = 100 * jnp.finfo(z.dtype).eps
    norm = jnp.sqrt(jnp.sum(z**2))

    def step(state, index):
        basis, vector, before, size = state
        basis = basis.at[index].set(vector)
        image, kept = operator(vector)
        alpha = jnp.sum(image * vector)
        rest = image - alpha * vector - size * before
        for _ in range(2):  # twice is enough
            rest = rest - (basis @ rest) @ basis
        length = jnp.sqrt(jnp.sum(rest**2))
        # The space is exhausted: what follows has no weight.
        done = length <= tiny * jnp.maximum(jnp.abs(alpha), jnp.finfo(z.dtype).tiny)
        beta = jnp.where(done, 0, length)
        following = jnp.where(done, 0, rest / jnp.where(done, 1, length))
        return (basis, following, vector, beta), (alpha, beta, kept)

    start = jnp.zeros((steps, len(z)), z.dtype), z / norm, jnp.zeros_like(z), jnp.zeros((), z.dtype)
    (basis, *_), (alpha, beta, images) = jax.lax.scan(step, start, jnp.arange(steps))
    used = jnp.cumprod(jnp.concatenate([jnp.ones(1, z.dtype), (beta[:-1] > 0).astype(z.dtype)]))
    alpha = jnp.where(used > 0, alpha, 1)  # log 1 = 0
    T = jnp.diag(alpha) + jnp.diag(beta[:-1], 1) + jnp.diag(beta[:-1], -1)
    value, ritz, vectors = _gauss(T)
    before = _gauss(T[:-1, :-1])[0] if steps > 1 else jnp.zeros((), z.dtype)
    first = vectors[0]
    weights = first[:, None] * first[None, :] * _divided_logarithms(ritz)
    square, turns = jnp.linalg.eigh(weights)
    roots = turns * jnp.sqrt(jnp.maximum(square, 0))[None, :]
    combined = norm * (vectors @ roots).T
    columns, images = (jnp.tensordot(combined, each, 1) for each in (basis, images))
    return Quadrature(norm**2 * value, norm**2 * jnp.abs(value - before), columns, images)


def _gauss(T: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    ritz, vectors = jnp.linalg.eigh(T)
    ritz = jnp.maximum(ritz, jnp.finfo(T.dtype).tiny)
    return jnp.sum(vectors[0] ** 2 * jnp.log(ritz)), ritz, vectors


def _divided_logarithms(values: jax.Array) -> jax.Array:
    """Φ, also where values coincide."""
    a, b = values[:, None], values[None, :]
    ratio = (a - b) / b
    near = jnp.abs(ratio) < 1e-5
    quotient = jnp.log1p(jnp.where(near, 1.0, ratio)) / jnp.where(near, 1.0, a - b)
    return jnp.where(near, (1 - ratio / 2 + ratio**2 / 3) / b, quotient)
