"""What every frozen feature map offers: features in JAX, and in float64 on the host."""

from __future__ import annotations

import abc
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.batching import full_precision
from ..kernels import Kernel
from ..priors import WeightPrior


class Basis(abc.ABC):
    """A frozen feature map ``φ: R^d → R^m``.

    Subclasses are pytree dataclasses: arrays are leaves, integers are static, and whatever was
    computed from training inputs is stored, never recomputed from new ones. They implement
    :meth:`_features` once, for both array namespaces.
    """

    @property
    @abc.abstractmethod
    def num_features(self) -> int:
        """The number of features m."""

    @property
    @abc.abstractmethod
    def input_dim(self) -> int:
        """The number of input columns d."""

    @property
    def feature_coords(self) -> dict[str, Any]:
        """Names of the features, as coordinates of xarray for results with a dimension ``feature``; empty if none."""
        return {}

    @abc.abstractmethod
    def _features(self, X: Any, xp: ModuleType) -> Any:
        """Features (n, m) of valid inputs (n, d), computed with ``xp`` (``numpy`` or ``jax.numpy``)."""

    def _check_domain(self, X: Any) -> None:  # noqa: B027 - most bases are good for all inputs
        """Warn of valid inputs (n, d) outside the domain of the features, or refuse them, where they can be read."""

    def weight_prior(self, kernel: Kernel) -> WeightPrior:
        """The prior over weights for which ``f(x) = φ(x)ᵀw`` has (approximately) the covariance ``kernel``.

        :param kernel: the target kernel.
        :raises ValueError: if the basis has no such prior.
        """
        raise ValueError(
            f"{type(self).__name__} has no weight prior for a kernel. Pass `DiagonalPrior(scale)` with the "
            "prior standard deviation of each weight, or use a basis that knows its kernels, such as FourierBasis."
        )

    def residual_variance(self, X: np.ndarray) -> np.ndarray:
        """The prior variance at inputs (n, d) that the features lack of a kernel of unit amplitude, shape (p, n).

        One row for each of the p parts of the basis that stand for a frozen kernel with its own amplitude, here 0.
        """
        return np.zeros((0, len(X)))

    def residual_amplitude(self, prior: WeightPrior) -> jax.Array:
        """The squared amplitude of each of these parts under a prior of the weights, shape ``batch + (p,)``."""
        return jnp.zeros((*prior.batch_shape, 0))

    def __call__(self, X: Any) -> jax.Array:
        """Features in JAX, in the floating dtype of ``X``.

        :param X: inputs, shape (n, d).
        :return: features, shape (n, m). Row i depends on row i of ``X`` alone.
        :raises ValueError: if ``X`` has the wrong shape.
        """
        checks.inputs_matrix(X, self.input_dim, type(self).__name__)
        X = jnp.asarray(X)
        self._check_domain(X)
        with full_precision():
            return self._features(X.astype(checks.common_dtype(X)), jnp)

    def fill_features(self, X: np.ndarray, out: np.ndarray, single: bool = False) -> None:
        """Write :meth:`host_features` of valid inputs into memory that is there, float64, shape (n, m).

        :param single: evaluate them in float32, where that is faster.
        """
        out[...] = self.host_features(X)

    def host_features(self, X: Any) -> np.ndarray:
        """Features in float64 NumPy, whatever JAX's precision: what the pass over the data uses.

        :param X: inputs, shape (n, d).
        :return: features, shape (n, m).
        :raises ValueError: if ``X`` has the wrong shape.
        """
        checks.inputs_matrix(X, self.input_dim, type(self).__name__)
        X = np.asarray(X, dtype=np.float64)
        self._check_domain(X)
        return self._features(X, np)
