"""A basis seen in other coordinates."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal.batching import full_precision
from .._internal.pytree import pytree_dataclass, static
from ..kernels import Kernel
from ..priors import DiagonalPrior, WeightPrior
from .basis import Basis, common_variance
from .residual import Residual
from .wrapped import WrappedBasis


@pytree_dataclass
class RotatedBasis(WrappedBasis):
    """Features ``Wᵀφ(x)`` of another basis, made by :meth:`SufficientStatistics.rotate`.

    New inputs go through the same W, so predictions are those of the rotated model.

    :param basis: the basis φ.
    :param rotation: W, shape (m, m).
    :param num_orthonormal: how many features, the first ones, have norm one over the rows; the others
        are orthogonal only.
    """

    basis: Basis
    rotation: Any
    num_orthonormal: int = static(default=0)

    @property
    def num_features(self) -> int:
        """The number of features m."""
        return self.rotation.shape[-1]

    @property
    def input_dim(self) -> int:
        """The number of input columns d."""
        return self.basis.input_dim

    @property
    def parts(self) -> tuple[Basis, ...]:
        """The parts of the basis before the rotation."""
        return self.basis.parts

    @property
    def part_names(self) -> tuple[str, ...]:
        """Names of the parts."""
        return self.basis.part_names

    def admissible(self, X: np.ndarray) -> np.ndarray:
        """Those of the basis."""
        return self.basis.admissible(X)

    def fill_features(self, X: np.ndarray, out: np.ndarray, single: bool = False) -> None:
        """Features as the basis fills them itself, rotated in float64."""
        features = np.empty((len(X), self.basis.num_features))
        self.basis.fill_features(X, features, single)
        np.matmul(features, np.asarray(self.rotation, dtype=np.float64), out=out)

    @property
    def unrotated(self) -> Basis:
        """The basis before this and any other rotation."""
        return self.basis.unrotated

    @property
    def centre_kernel(self) -> Kernel | None:
        """That of the basis."""
        return self.basis.centre_kernel

    def residual_variance(self, X: Any) -> np.ndarray:
        """That of the basis: a rotation loses nothing."""
        return self.basis.residual_variance(X)

    def residual(self, X: Any) -> Residual:
        """That of the basis."""
        return self.basis.residual(X)

    def residual_amplitude(self, prior: WeightPrior) -> jax.Array:
        """That of the basis under the prior of its own weights ``w = Wv``, shape ``batch + (p,)``.

        With variance s² of the rotated weights v that is ``s²WWᵀ``: ``s²I`` after a plain rotation, and after
        ``stats.rotate(prior)`` the covariance of that prior times s². Where it is not diagonal nothing is known.
        """
        shared = common_variance(prior)
        W = jnp.asarray(self.rotation, shared.dtype)
        variance = jnp.sum(W**2, axis=1)
        rows = W * jax.lax.rsqrt(jnp.where(variance > 0, variance, 1))[:, None]
        # WWᵀ is diagonal if the rows are orthogonal: two vectors at random tell, in O(m²).
        probes = jnp.asarray(np.random.default_rng(0).standard_normal((len(rows), 2)), shared.dtype)
        with full_precision():
            left = rows @ (rows.T @ probes) - jnp.where(variance[:, None] > 0, probes, 0)
        tolerance = jnp.finfo(shared.dtype).eps ** 0.5
        diagonal = jnp.max(jnp.abs(left)) <= tolerance * jnp.max(jnp.abs(probes))
        of_basis = shared[..., None] * jnp.where(diagonal, variance, 0).reshape((1,) * shared.ndim + (-1,))
        known = of_basis > 0
        log_variance = jnp.where(known, jnp.log(jnp.where(known, of_basis, 1)), -jnp.inf)
        return self.basis.residual_amplitude(DiagonalPrior.from_log_scale(log_variance / 2))

    def check_domain(self, X: Any) -> None:
        self.basis.check_domain(X)

    def features(self, X: Any, xp: ModuleType) -> Any:
        return self.basis.features(X, xp) @ xp.asarray(self.rotation, dtype=X.dtype)

    def not_finite_at(self, x: np.ndarray) -> str | None:
        return self.basis.not_finite_at(x)

    def host_features_of(self, X: Any, kept: np.ndarray) -> np.ndarray:
        """Host features with some of those before the rotation at zero, shape (n, m)."""
        return self.basis.host_features_of(X, kept) @ np.asarray(self.rotation)
