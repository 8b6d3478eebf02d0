"""From posteriors of the weights to predictions: which kind, for what is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._internal import checks
from ..statistics.statistics import SufficientStatistics
from .augmentation import Augmentation, AugmentedPrediction, NewCentres
from .parts import PartialPrediction, chosen_parts
from .prediction import Prediction
from .runs import IN_PROGRAMS
from .weights import WeightPosteriors


def predict_with(
    weights: WeightPosteriors,
    statistics: SufficientStatistics,
    X_new: Any,
    row_weights: Any,
    max_memory: float,
    *,
    augment: Augmentation | None = None,
    parts: int | Sequence[int] | None = None,
    residual_variance: bool = True,
) -> Prediction:
    """The prediction that posteriors of the weights make; :func:`~ppl_sgp.predict` has the arguments."""
    if parts is not None and row_weights is not None:
        raise ValueError("predict: `row_weights` are of noise, and a prediction of `parts` has none; leave them out.")
    X_new, omega = prediction_inputs(X_new, row_weights, weights.basis.input_dim)
    one_output = np.ndim(statistics.moments.sum_squares) == 0
    common = (weights, X_new, omega, one_output, max_memory, residual_variance)
    if augment is not None and parts is not None:
        raise ValueError("predict: the feature that `augment` adds belongs to no part; pass `augment` or `parts`.")
    if augment is not None:
        return AugmentedPrediction(*common, centres=NewCentres(augment, statistics, max_memory))
    if parts is not None:
        return PartialPrediction(*common, chosen=chosen_parts(weights.basis, parts))
    return Prediction(*common)


def prediction_inputs(
    X_new: Any, row_weights: Any, input_dim: int, owner: str = "predict"
) -> tuple[np.ndarray, np.ndarray]:
    """New inputs and the weights of their rows, checked, in float64."""
    X_new = checks.inputs_matrix(X_new, input_dim, owner, "X_new")
    X_new = checks.on_host("X_new", X_new, owner, IN_PROGRAMS).astype(np.float64, copy=False)
    checks.require_finite("X_new", X_new, owner)
    if row_weights is None:
        return X_new, np.ones(len(X_new))
    return X_new, checks.row_precisions(row_weights, len(X_new), owner).astype(np.float64, copy=False)
