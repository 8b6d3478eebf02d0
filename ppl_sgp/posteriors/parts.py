"""The functions of some of the bases of a stack, of which f is the sum: a trend, a season, an effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..bases.basis import Basis
from ..bases.residual import Residual
from .weight_prediction import WeightPrediction


class PartialPrediction(WeightPrediction):
    """The posterior of the sum of some parts of f; made by :func:`~ppl_sgp.predict`. It has no noise, and no y.

    :param chosen: whether each basis of the stack is one of these parts.
    """

    has_noise = False

    def __init__(self, *of_all: Any, chosen: np.ndarray, residual_variance: bool) -> None:
        super().__init__(*of_all, residual_variance=residual_variance)
        self._chosen = chosen

    @property
    def noise_variance(self) -> Any:
        """Refused: y is the sum of all parts and noise."""
        self._with_noise(True)

    def _features_of(self, X_new: np.ndarray) -> np.ndarray:
        basis = self._functions.basis
        kept = np.repeat(self._chosen, [each.num_features for each in basis.parts])
        return basis.host_features_of(X_new, kept)

    def _residual_of(self, rows: slice) -> Residual:
        counts = [len(each.residual_variance(self._X_new[:0])) for each in self._functions.basis.parts]
        return super()._residual_of(rows).times(np.repeat(self._chosen, counts)[:, None])


def chosen_parts(basis: Basis, parts: int | str | Sequence[int | str]) -> np.ndarray:
    """Whether each basis of a stack, rotated or not, is chosen, by its name or its position."""
    if not basis.parts:
        got = type(basis.unrotated).__name__
        raise ValueError(f"predict: `parts` are of a basis made by `sgp.stack`; that of the statistics is a {got}.")
    names, count = basis.part_names, len(basis.parts)
    given = [parts] if isinstance(parts, str) or np.ndim(parts) == 0 else list(parts)  # type: ignore[arg-type]
    wanted = np.asarray([names.index(part) if part in names else part for part in given], dtype=object)
    whole = all(isinstance(part, (int, np.integer)) and not isinstance(part, bool) for part in wanted.flat)
    if wanted.ndim != 1 or wanted.size == 0 or not whole or not np.isin(wanted.astype(int), range(count)).all():
        raise ValueError(
            f"predict: `parts` must be positions in the stack, whole numbers from 0 to {count - 1}, or names, of "
            f"{', '.join(map(repr, names))}; got {parts!r}."
        )
    return np.isin(range(count), wanted.astype(int))
