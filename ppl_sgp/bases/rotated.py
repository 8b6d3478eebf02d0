"""A basis seen in other coordinates."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from .._internal.pytree import pytree_dataclass, static
from .basis import Basis


@pytree_dataclass
class RotatedBasis(Basis):
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
    def has_float32_features(self) -> bool:
        """Whether the basis has a way in float32."""
        return self.basis.has_float32_features

    def fill_features(self, X: np.ndarray, out: np.ndarray, single: bool = False) -> None:
        """Features as the basis fills them itself, rotated in float64."""
        features = np.empty((len(X), self.basis.num_features))
        self.basis.fill_features(X, features, single)
        np.matmul(features, np.asarray(self.rotation, dtype=np.float64), out=out)

    def _check_domain(self, X: Any) -> None:
        self.basis._check_domain(X)

    def _features(self, X: Any, xp: ModuleType) -> Any:
        return self.basis._features(X, xp) @ xp.asarray(self.rotation, dtype=X.dtype)
