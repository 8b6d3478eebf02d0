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

    def __call__(self, X: Any) -> jax.Array:
        """Features in JAX, in the floating dtype of ``X``.

        :param X: inputs, shape (n, d).
        :return: features, shape (n, m). Row i depends on row i of ``X`` alone.
        :raises ValueError: if ``X`` has the wrong shape or is not of real numbers, or (where they can be read) if
            features are not finite.
        """
        X = jnp.asarray(checks.inputs_matrix(X, self.input_dim, type(self).__name__))
        self._check_domain(X)
        with full_precision():
            Phi = self._features(X.astype(checks.common_dtype(X)), jnp)
        if checks.is_concrete(Phi) and not jnp.isfinite(Phi).all():
            self.require_finite(np.asarray(Phi), np.asarray(X))
        return Phi

    @property
    def has_float32_features(self) -> bool:
        """Whether :meth:`fill_features` has a way in float32, which is faster."""
        return False

    def fill_features(self, X: np.ndarray, out: np.ndarray, single: bool = False) -> None:
        """Write features of valid inputs into memory that is there, float64, shape (n, m), finite or not.

        :param single: evaluate them in float32, if :attr:`has_float32_features`.
        """
        self._check_domain(X)
        out[...] = self._features(X, np)

    def host_features(self, X: Any) -> np.ndarray:
        """Features in float64 NumPy, whatever JAX's precision: what the pass over the data uses.

        :param X: inputs, shape (n, d).
        :return: features, shape (n, m).
        :raises ValueError: if ``X`` has the wrong shape or is not of real numbers, or if features are not finite.
        """
        X = np.asarray(checks.inputs_matrix(X, self.input_dim, type(self).__name__)).astype(np.float64, copy=False)
        self._check_domain(X)
        Phi = self._features(X, np)
        self.require_finite(Phi, X)
        return Phi

    def require_finite(self, Phi: np.ndarray, X: np.ndarray, first_row: int = 0, owner: str | None = None) -> None:
        """Refuse features (n, m) that are not finite, with the row and the basis.

        :param X: their inputs, shape (n, d).
        :param first_row: the number of the first of these rows among all.
        :param owner: who asks, for messages; default the class of the basis.
        """
        for start in range(0, len(Phi), checks.BLOCK):
            bad = ~np.isfinite(Phi[start : start + checks.BLOCK])
            if bad.any():
                row, feature = np.argwhere(bad)[0]
                row += start
                raise ValueError(
                    f"{owner or type(self).__name__}: {self._name_of(int(feature))} is {Phi[row, feature]} at row "
                    f"{first_row + row} of `X`, {np.asarray(X[row]).tolist()}. Leave such rows out, or make features "
                    "that are finite there."
                )

    def _name_of(self, feature: int) -> str:
        """A feature in messages: its number, and the basis that makes it."""
        return f"feature {feature} of {type(self).__name__}"
