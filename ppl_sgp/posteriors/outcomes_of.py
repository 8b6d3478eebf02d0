"""Questions to a posterior whose y is not f with Gaussian noise: what the object asks its distributions of y."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._internal import checks
from .._internal.random import host_generator
from ..expansion.compressed_likelihood import CompressedLikelihood
from .arviz_compat import smoothed_log_weights
from .latents import given_weights, of_weights
from .likelihood_outcomes import LikelihoodOutcomes
from .outcome_prediction import OutcomePrediction
from .outcomes import NewRows, Outcomes
from .predict import prediction_inputs

if TYPE_CHECKING:
    from .posterior import Posterior


@functools.singledispatch
def outcomes_of(data: Any, posterior: Posterior) -> Outcomes | None:
    """The distributions of y for a posterior with such data; ``None`` where y is f with Gaussian noise."""
    return posterior.draws.row_outcomes()


@outcomes_of.register(CompressedLikelihood)
def _(data: CompressedLikelihood, posterior: Posterior) -> Outcomes:
    structure = posterior.draws.structure()
    batches = list(posterior.functions.batches())
    loc, factor, amplitude = (
        np.concatenate([np.asarray(getattr(batch, name))[:, 0] for batch in batches])
        for name in ("loc", "factor", "residual_amplitude")
    )
    known = structure.likelihood_parameters is not None
    if known:
        parameters = np.asarray(posterior.parameters().likelihood_parameters, dtype=np.float64)
        draws = given_weights(data, loc, parameters)
    else:
        draws = of_weights(data, loc, factor, amplitude)
    are_given = structure.are_given and (known or data.parameters is None)
    return LikelihoodOutcomes(data, draws, are_given=are_given)


def predicted_outcomes(
    posterior: Posterior, X_new: Any, offset: Any, given: Any, others: dict[str, Any]
) -> OutcomePrediction:
    """The prediction at new inputs.

    :param others: what only predictions with Gaussian noise take, by name.
    """
    outcomes = posterior.outcomes
    assert outcomes is not None
    passed = [name for name, value in others.items() if value is not None]
    if passed:
        raise ValueError(
            f"predict: `{'`, `'.join(passed)}` are of Gaussian noise, or of functions without a likelihood; leave them "
            "out. For the parts of a compressed likelihood's predictor see `sgp.variance_shares`, or predict at rows "
            "that differ in the inputs of one part."
        )
    X_new, _ = prediction_inputs(X_new, None, outcomes.input_dim)
    rows = NewRows(X_new, row_offsets(offset, len(X_new), "predict"), row_columns(given, len(X_new)))
    return _prediction(posterior, outcomes, lambda chosen: outcomes.at(rows.take(chosen)), len(X_new))


def left_out_outcomes(
    posterior: Posterior, X: Any, y: Any, row_weights: Any, offset: Any, rows: Any, owner: str
) -> tuple[OutcomePrediction, np.ndarray]:
    """The prediction of training rows, each from all others, and their outcomes."""
    outcomes = posterior.outcomes
    assert outcomes is not None
    X, y = outcomes.training_rows(X, y, owner)
    omega = None if row_weights is None else checks.row_precisions(row_weights, len(X), owner).astype(np.float64)
    offset = row_offsets(offset, len(X), owner)
    chosen = chosen_rows(len(X), rows, owner)
    needed = 8 * outcomes.num_draws * len(chosen)
    if needed > posterior.max_memory:
        raise ValueError(
            f"{owner}: {outcomes.num_draws} draws of {len(chosen)} densities take {needed / 1e9:.1f} GB, over "
            f"`max_memory` = {posterior.max_memory / 1e9:.1f} GB. Pass some draws, `posterior.spaced(100)`, some "
            "`rows` at a time, or raise `max_memory`."
        )
    offset, omega = (None if part is None else part[chosen] for part in (offset, omega))
    training = NewRows(X[chosen], offset, y[chosen], omega)
    prediction = _prediction(
        posterior, outcomes, lambda part: outcomes.at_training_rows(training.take(part)), len(chosen)
    )
    return prediction, y[chosen]


def outcome_pit(posterior: Posterior, X: Any, y: Any, row_weights: Any, offset: Any, key: jax.Array) -> np.ndarray:
    """Leave-one-out PIT values, (1, n); where y is discrete uniform between ``P(Y < y)`` and ``P(Y ≤ y)``."""
    prediction, y_rows = left_out_outcomes(posterior, X, y, row_weights, offset, None, "loo_pit")
    density = prediction.by_draw(y_rows)
    outcome = posterior.outcomes.outcome(y_rows)  # type: ignore[union-attr]
    below = prediction.by_draw(outcome, prediction.below(outcome))
    if prediction.is_discrete:
        uniform = host_generator(key, "loo_pit").random(outcome.shape)
        below = below - uniform * np.exp(density)
    log_weights = smoothed_log_weights(density.reshape(len(density), -1), "plot_loo_pit").reshape(density.shape)
    return np.sum(np.exp(log_weights) * below, axis=0).clip(0, 1).reshape(len(outcome), -1).T


def chosen_rows(num_rows: int, rows: Any, owner: str) -> np.ndarray:
    """Positions of rows wanted, a slice or indices; default all."""
    chosen = np.arange(num_rows)
    if rows is None:
        return chosen
    try:
        return np.atleast_1d(chosen[rows])
    except (IndexError, TypeError) as error:
        raise ValueError(f"{owner}: `rows` must be a slice or indices of the {num_rows} rows; got {rows!r}.") from error


def _prediction(posterior: Posterior, outcomes: Outcomes, at: Any, num_rows: int) -> OutcomePrediction:
    prediction = OutcomePrediction(outcomes, at, num_rows, posterior.weights, posterior.max_memory)
    prediction.shape  # noqa: B018 - rows that cannot be predicted are refused here, not when first asked of
    return prediction


def row_offsets(offset: Any, num_rows: int, owner: str) -> np.ndarray | None:
    """What the predictor of each row has beside f, checked, or ``None``."""
    if offset is None:
        return None
    values = checks.host_numbers("offset", offset, owner).astype(np.float64)
    if values.shape[:1] != (num_rows,):
        raise ValueError(f"{owner}: `offset` must have a value for each of {num_rows} rows; got shape {values.shape}.")
    checks.require_finite("offset", values, owner)
    return values


def row_columns(given: Any, num_rows: int) -> np.ndarray | None:
    """What is known of new rows in the columns that y has, checked, or ``None``."""
    if given is None:
        return None
    values = checks.host_numbers("given", given, "predict").astype(np.float64)
    if values.ndim != 2 or len(values) != num_rows:
        raise ValueError(
            f"predict: `given` must have shape ({num_rows}, columns), the columns that y has; got {values.shape}."
        )
    return values
