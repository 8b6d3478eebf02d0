"""The posterior predictive: a mixture over draws of the hyperparameters, never a plug-in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._internal import checks
from ..statistics.statistics import SufficientStatistics
from .augmentation import Augmentation, AugmentedPrediction, NewCentres
from .draws import Draws, KnownDraws
from .parts import PartialPrediction, chosen_parts
from .prediction import Prediction


def predict(
    model: Callable[..., Any],
    samples: dict[str, Any],
    statistics: SufficientStatistics,
    X_new: Any,
    *,
    row_weights: Any = None,
    site: str | None = None,
    augment: Augmentation | None = None,
    parts: int | Sequence[int] | None = None,
    max_memory: float = 2e9,
) -> Prediction:
    """Predict at new inputs, averaging over all draws (Evans 2022, eq 2.33).

    Each draw of the hyperparameters gives a Gaussian posterior of the weights; the predictive is
    their equal mixture, with ``mean = E[m_θ]`` and ``variance = E[v_θ] + Var[m_θ]``. Both moments
    come from averages over draws of the weights' moments, so they cost O(m³) a draw (O(m) on rotated
    statistics) plus O(m²) a row, not their product. Everything runs in float64 on the host once the
    draws are factorised.

    :param model: the NumPyro model, of one argument: the statistics.
    :param samples: draws with the draws along the first axis, as ``mcmc.get_samples()``.
    :param statistics: the statistics the model was fitted to.
    :param X_new: new inputs, shape (n_new, d).
    :param row_weights: known relative noise precisions of the new rows, shape (n_new,).
    :param site: name of the observed site, if the model has several.
    :param augment: a feature more at each new row, for bases whose variance vanishes away from the data.
    :param parts: positions of some bases of a :func:`~ppl_sgp.stack`: the sum of their functions is predicted alone,
        without noise, given all of y. Draws of several predictions with the same key go together.
    :param max_memory: bytes that intermediate results may take; draws are batched to fit.
    :raises ValueError: if the model, the draws and the inputs do not fit together.

    .. doctest::

        >>> import jax, jax.numpy as jnp, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 40)
        >>> stats = sgp.sufficient_statistics(basis, X, np.sin(6 * X[:, 0]) + 0.01 * np.cos(77 * X[:, 0]))
        >>> draws = {"lengthscale": jnp.array([0.2, 0.3]), "amplitude": jnp.ones(2), "noise_scale": jnp.full(2, 0.01)}
        >>> prediction = sgp.predict(sgp.models.fourier_gp(), draws, stats, [[0.5]])
        >>> bool(abs(prediction.mean[0] - np.sin(3.0)) < 0.02), bool(prediction.variance[0] < 1e-3)
        (True, True)
    """
    max_memory = checks.memory_cap(max_memory, "predict")
    draws = Draws(model, samples, statistics, site, max_memory)
    one_output = np.ndim(statistics.moments.sum_squares) == 0
    if parts is None:
        return from_draws(draws, X_new, row_weights, one_output, augment, max_memory)
    if augment is not None:
        raise ValueError("predict: the feature that `augment` adds belongs to no part; pass `augment` or `parts`.")
    if row_weights is not None:
        raise ValueError("predict: `row_weights` are of noise, and a prediction of `parts` has none; leave them out.")
    X_new, omega = prediction_inputs(X_new, row_weights, draws.basis.input_dim)
    kept = chosen_parts(statistics.basis, parts)
    return PartialPrediction(draws, X_new, omega, one_output, max_memory, kept=kept)


def from_draws(
    draws: Draws | KnownDraws,
    X_new: Any,
    row_weights: Any,
    one_output: bool,
    augment: Augmentation | None,
    max_memory: float,
) -> Prediction:
    """The prediction that posteriors of the weights make."""
    max_memory = checks.memory_cap(max_memory, "predict")
    X_new, omega = prediction_inputs(X_new, row_weights, draws.basis.input_dim)
    if augment is None:
        return Prediction(draws, X_new, omega, one_output, max_memory)
    centres = NewCentres(augment, draws, max_memory)
    return AugmentedPrediction(draws, X_new, omega, one_output, max_memory, centres=centres)


def prediction_inputs(X_new: Any, row_weights: Any, input_dim: int) -> tuple[np.ndarray, np.ndarray]:
    """New inputs and the weights of their rows, checked, in float64."""
    X_new = np.asarray(checks.inputs_matrix(X_new, input_dim, "predict", "X_new")).astype(np.float64, copy=False)
    checks.require_finite("X_new", X_new, "predict")
    if row_weights is None:
        return X_new, np.ones(len(X_new))
    return X_new, checks.row_precisions(row_weights, len(X_new), "predict").astype(np.float64, copy=False)
