"""The functions of some of the bases of a stack, of which f is the sum: a trend, a season, an effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..bases.basis import Basis
from ..bases.rotated import RotatedBasis
from ..bases.stack import StackedBasis
from .prediction import Prediction


class PartialPrediction(Prediction):
    """The posterior of the sum of some parts of f; made by :func:`~ppl_sgp.predict`. It has no noise, and no y.

    :param kept: whether each feature of the stack belongs to these parts, shape (m,).
    """

    has_noise = False

    def __init__(self, *of_all: Any, kept: np.ndarray) -> None:
        super().__init__(*of_all)
        self._kept = kept

    @property
    def noise_variance(self) -> Any:
        """Refused: y is the sum of all parts and noise."""
        self._with_noise(True)

    def _features_of(self, X_new: np.ndarray) -> np.ndarray:
        return _features(self._weights.basis, X_new, self._kept)


def chosen_parts(basis: Basis, parts: int | Sequence[int]) -> np.ndarray:
    """Whether each feature of a stack, rotated or not, belongs to the chosen of its bases, shape (m,)."""
    while isinstance(basis, RotatedBasis):
        basis = basis.basis
    if not isinstance(basis, StackedBasis):
        raise ValueError(
            f"predict: `parts` are of a basis made by `sgp.stack`; that of the statistics is a {type(basis).__name__}."
        )
    wanted = np.atleast_1d(np.asarray(parts))
    count = len(basis.bases)
    if wanted.ndim != 1 or wanted.size == 0 or wanted.dtype.kind not in "iu" or not np.isin(wanted, range(count)).all():
        raise ValueError(
            f"predict: `parts` must be positions in the stack, whole numbers from 0 to {count - 1}; got {parts!r}."
        )
    return np.repeat(np.isin(range(count), wanted), [each.num_features for each in basis.bases])


def _features(basis: Basis, X: Any, kept: np.ndarray) -> np.ndarray:
    """Features with those of the other parts at zero, before any rotation."""
    if isinstance(basis, RotatedBasis):
        return _features(basis.basis, X, kept) @ np.asarray(basis.rotation)
    return basis.host_features(X) * kept
