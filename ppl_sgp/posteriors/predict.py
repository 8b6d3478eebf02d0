"""From posteriors of the function to predictions: which kind, for what is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._internal import checks
from ..statistics.statistics import SufficientStatistics
from .augmentation import Augmentation, AugmentedPrediction, NewCentres
from .functions import FunctionPosteriors
from .inducing import InducingPosteriors, InducingPrediction
from .observed_data import COMPRESSED, Data
from .parts import PartialPrediction, chosen_parts
from .prediction import Prediction
from .runs import IN_PROGRAMS
from .weight_prediction import WeightPrediction
from .weights import WeightPosteriors


def predict_with(
    functions: FunctionPosteriors,
    data: Data,
    X_new: Any,
    row_weights: Any,
    max_memory: float,
    *,
    augment: Augmentation | None = None,
    parts: int | str | Sequence[int | str] | None = None,
    residual_variance: bool = True,
) -> Prediction:
    """The prediction that posteriors of the function make; :func:`~ppl_sgp.predict` has the arguments."""
    if parts is not None and row_weights is not None:
        raise ValueError("predict: `row_weights` are of noise, and a prediction of `parts` has none; leave them out.")
    X_new, omega = prediction_inputs(X_new, row_weights, functions.input_dim)
    common = (functions, X_new, omega, np.ndim(data.output_scales) == 0, max_memory)
    if not isinstance(functions, WeightPosteriors) or not isinstance(data, COMPRESSED):
        if augment is not None or parts is not None:
            raise ValueError(
                "predict: `augment` and `parts` are of features of a basis, and this posterior has none. Leave them "
                "out: a GP of rows keeps its variance away from the data; for parts observe the statistics of a stack."
            )
        if isinstance(functions, InducingPosteriors):
            return InducingPrediction(*common, residual_variance=residual_variance)
        return Prediction(*common)
    if augment is not None and parts is not None:
        raise ValueError("predict: the feature that `augment` adds belongs to no part; pass `augment` or `parts`.")
    if augment is not None:
        if not isinstance(data, SufficientStatistics):
            raise ValueError("predict: `augment` is for statistics of one group; leave it out for groups of rows.")
        centres = NewCentres(augment, data, max_memory)
        return AugmentedPrediction(*common, centres=centres, residual_variance=residual_variance)
    if parts is not None:
        chosen = chosen_parts(functions.basis, parts)
        return PartialPrediction(*common, chosen=chosen, residual_variance=residual_variance)
    return WeightPrediction(*common, residual_variance=residual_variance)


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
