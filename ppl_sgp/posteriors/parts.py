"""The functions of some of the bases of a stack, of which f is the sum: a trend, a season, an effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..bases.basis import Basis
from .prediction import Prediction


class PartialPrediction(Prediction):
    """The posterior of the sum of some parts of f; made by :func:`~ppl_sgp.predict`. It has no noise, and no y.

    :param kept: whether each feature of the stack belongs to these parts, shape (m,).
    """

    def __init__(self, *of_all: Any, kept: np.ndarray) -> None:
        super().__init__(*of_all)
        self._kept = kept

    @property
    def noise_variance(self) -> Any:
        """Refused: y is the sum of all parts and noise."""
        _require_no_noise(True)

    def _features_of(self, X_new: np.ndarray) -> np.ndarray:
        return self._draws.basis.host_features_of(X_new, self._kept)

    def _components_of(self, rows: slice, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        _require_no_noise(noise)
        return super()._components_of(rows, noise)

    def sample_draws(self, key: jax.Array, indices: np.ndarray, noise: bool = True) -> np.ndarray:
        """One joint draw for each of the given hyperparameter draws: with ``noise=False``, since y is of all parts."""
        _require_no_noise(noise)
        return super().sample_draws(key, indices, noise)


def chosen_parts(basis: Basis, parts: int | Sequence[int]) -> np.ndarray:
    """Whether each feature of a stack, rotated or not, belongs to the chosen of its bases, shape (m,)."""
    if not basis.parts:
        got = type(basis.unrotated).__name__
        raise ValueError(f"predict: `parts` are of a basis made by `sgp.stack`; that of the statistics is a {got}.")
    wanted = np.atleast_1d(np.asarray(parts))
    count = len(basis.parts)
    if wanted.ndim != 1 or wanted.size == 0 or wanted.dtype.kind not in "iu" or not np.isin(wanted, range(count)).all():
        raise ValueError(
            f"predict: `parts` must be positions in the stack, whole numbers from 0 to {count - 1}; got {parts!r}."
        )
    return np.repeat(np.isin(range(count), wanted), [each.num_features for each in basis.parts])


def _require_no_noise(noise: bool) -> None:
    if noise:
        raise ValueError(
            "A prediction of `parts` has no noise: y is the sum of all parts and noise. Pass `noise=False`, or predict "
            "without `parts` for densities and scores of y."
        )
