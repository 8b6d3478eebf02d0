"""The symmetric square root of a covariance, with derivatives also where eigenvalues coincide or vanish.

Differentiating ``FF = C`` gives the Sylvester equation ``F dF + dF F = dC``, which is solved in the eigenvectors V of
F, with eigenvalues s: ``(VᵀdFV)ᵢⱼ = (VᵀdCV)ᵢⱼ / (sᵢ + sⱼ)``. Only sums of roots are divided by, where the derivative of
an eigendecomposition divides by differences of eigenvalues. (Higham 2008, Functions of matrices, section 6.1.)
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .._internal.batching import full_precision


@jax.custom_jvp
def symmetric_root(covariance: jax.Array) -> jax.Array:
    """The symmetric F with ``FF = C``, shape (m, m); defined for singular C, where a Cholesky factor is not. O(m³).

    Derivatives of any order exist. Sums of roots below rounding, ``√(ε λ_max)``, are raised to it: there C is singular
    to rounding, F changes by no more than that, and a change of C that raises its rank would have no derivative.
    """
    values, vectors = jnp.linalg.eigh(covariance)
    with full_precision():
        return (vectors * jnp.sqrt(jnp.clip(values, 0))[None, :]) @ vectors.T


@symmetric_root.defjvp
def _symmetric_root_jvp(primals, tangents):
    (covariance,), (change,) = primals, tangents
    root = symmetric_root(covariance)
    return root, _root_change(root, (change + change.T) / 2)


def _root_change(root: jax.Array, change: jax.Array) -> jax.Array:
    """The symmetric X with ``FX + XF = B``, for symmetric B."""
    # A linear solve to JAX, which knows how to differentiate those: never through the eigenvectors.
    roots, vectors = jnp.linalg.eigh(jax.lax.stop_gradient(root))
    sums = roots[:, None] + roots[None, :]
    floor = jnp.sqrt(jnp.finfo(roots.dtype).eps) * jnp.max(roots)
    guarded = jnp.where(floor > 0, jnp.maximum(sums, floor), jnp.inf)

    def product(X: jax.Array) -> jax.Array:
        with full_precision():
            return root @ X + X @ root

    def solve(_: object, B: jax.Array) -> jax.Array:
        with full_precision():
            return vectors @ ((vectors.T @ B @ vectors) / guarded) @ vectors.T

    return jax.lax.custom_linear_solve(product, change, solve, symmetric=True)
