"""The kernel that a basis and a prior of its weights imply, to be added to others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from .._internal import checks
from .._internal.batching import full_precision
from .._internal.pytree import pytree_dataclass
from ..kernels import Kernel
from ..priors import WeightPrior
from .basis import Basis


@pytree_dataclass
class FeatureKernel(Kernel):
    """``φ(x)ᵀ C φ(x\')``: the covariance of ``φ(x)ᵀw`` with weights ``w ~ N(0, C)``.

    For an exact GP with a part that is linear in known features, a trend or a season: add it to the kernel of the rest
    (Rasmussen & Williams 2006, section 2.7).

    :param basis: the features.
    :param prior: the prior of their weights, of mean zero.
    :raises ValueError: for other arguments, a prior with a mean, or of another number of weights.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> trend = sgp.FeatureKernel(sgp.LinearBasis(1), sgp.DiagonalPrior(np.array([10.0, 2.0])))
        >>> float((trend + sgp.Matern52(1.0))(np.array([[3.0]]))[0, 0])
        137.0
    """

    basis: Basis
    prior: WeightPrior

    def __post_init__(self) -> None:
        for name, kind in (("basis", Basis), ("prior", WeightPrior)):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(
                    f"FeatureKernel: `{name}` must be a {kind.__name__}; got {type(getattr(self, name)).__name__}."
                )
        weights = self.prior.num_weights
        if weights not in (None, 1, self.basis.num_features) or self.prior.batch_shape:
            raise ValueError(
                f"FeatureKernel: `prior` must be one prior of the {self.basis.num_features} weights of the basis; got "
                f"{weights} weights and batch shape {self.prior.batch_shape}."
            )
        if self.prior.mean is not None:
            raise ValueError(
                "FeatureKernel: `prior` must have mean zero, since a kernel has no mean. Subtract the features times "
                "that mean from y, and add it to predictions."
            )

    def __call__(self, X: ArrayLike, X2: ArrayLike | None = None) -> Array:
        Phi = self._features(X)
        with full_precision():
            return Phi @ self.prior.apply((Phi if X2 is None else self._features(X2)).T)

    def diag(self, X: ArrayLike) -> Array:
        Phi = self._features(X)
        with full_precision():
            return jnp.sum(Phi * self.prior.apply(Phi.T).T, axis=1)

    def _features(self, X: ArrayLike) -> Array:
        X = checks.inputs_matrix(X, self.basis.input_dim, "FeatureKernel")
        return self.basis(jnp.asarray(X, checks.common_dtype(*jax.tree.leaves(self.prior))))


def unit_weights(basis: Basis, X: ArrayLike) -> Array:
    """Standard deviations of weights with which each feature alone varies by one over some rows, shape (m,).

    Beside a constant each feature is taken about its mean, which the constant then has to make up for; without one,
    about zero. So neither units of inputs nor where they are counted from matters.

    :param X: inputs of the rows, shape (n, d).
    """
    Phi = basis(X)
    mean, spread = Phi.mean(axis=0), Phi.std(axis=0)
    root_mean_square = jnp.sqrt(jnp.mean(Phi**2, axis=0))
    constant = basis.constant_features
    if not constant.any():
        return 1 / _positive(root_mean_square)
    varies = (spread > 1e-9 * root_mean_square) & ~constant
    shift = jnp.sum(jnp.where(varies, mean / _positive(spread), 0) ** 2)
    own = jnp.where(varies, 1 / _positive(spread), 1 / _positive(root_mean_square))
    return own * jnp.where(np.asarray(constant), jnp.sqrt(1 + shift), 1)


def _positive(scale: Array) -> Array:
    """A feature that is zero at all rows cannot matter there."""
    return jnp.where(scale > 0, scale, 1)
