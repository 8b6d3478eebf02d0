"""Groups of rows left out together, and periods predicted from those before them, with exact joint densities.

Given a draw, let ``B = Ω^½ΦF/σ`` over the rows of a group, F a root of the posterior covariance of the weights, and
``B = UsVᵀ``. Without the group its rows have the predictive covariance ``σ²Ω^-½(I − BBᵀ)⁻¹Ω^-½`` and residuals
``Ω^-½(I − BBᵀ)⁻¹Ω^½(y − Φŵ)``: leave-one-out for a group (Rasmussen & Williams 2006, eqs 5.10-5.12), with no refit.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from tqdm.auto import tqdm

from ..bases.residual import Residual
from ..statistics.from_data import sufficient_statistics
from .functions import require_resolved
from .joint import joint_densities, joint_log_density
from .observed_data import training_rows
from .posterior import Posterior
from .site_draws import MarginalParameters
from .weights import SampledWeights, TrainingFeatures, WeightDraws

#: Inputs (n, d), outputs and row weights (n,).
WeightedRows = tuple[np.ndarray, np.ndarray, np.ndarray]


def leave_groups_out(
    posterior: Posterior,
    X: Any,
    y: Any,
    groups: Any,
    *,
    row_weights: Any = None,
    residual_variance: bool = True,
    progress: bool = True,
) -> xr.DataArray:
    """``log p(y_g | y_-g, θ_s)``, jointly for the rows of each group, at each draw: subjects, sites or blocks left out.

    Leaving out one row of a group tells little where the others of its group know it. Hyperparameters stay at their
    draws, which have seen all rows: ``az.loo`` corrects that if these are its log likelihood, and says (Pareto k) where
    a group moves them too far. No refit: O(k r min(k, r)) a draw and group of k rows, r at most the number of features.

    :param posterior: of statistics, with Gaussian noise; from :func:`~ppl_sgp.posterior`.
    :param X: the training inputs, all of them, shape (n, d); with ``y``, shape (n,) or (n, q).
    :param groups: the group of each row, shape (n,): numbers or text.
    :param row_weights: as they were compressed, if any.
    :param residual_variance: add what a basis of a frozen kernel lacks of it at the rows left out.
    :param progress: show a progress bar over the draws.
    :return: log densities in nats, (draw, group), of several outputs (draw, group, output).
    :raises ValueError: for other posteriors, rows or labels, or a group that knows a feature by itself so well that
        rounding hides the others.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> y = X[:, 0] + 0.1 * np.cos(77 * X[:, 0])
        >>> stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, y)
        >>> model = sgp.models.reweighted_basis(scale=np.ones(2))
        >>> posterior = sgp.posterior(model, {"noise_scale": np.array([0.1, 0.2])}, stats)
        >>> sgp.leave_groups_out(posterior, X, y, np.arange(40) // 10, progress=False).shape
        (2, 4)
    """
    training, labels, members = _grouped(posterior, X, y, groups, row_weights, "leave_groups_out")
    functions = posterior.functions
    given = [_at(functions, training, rows, residual_variance) for rows in members]
    found = np.empty((posterior.num_draws, len(labels), functions.num_outputs))
    done = 0
    with tqdm(total=posterior.num_draws, disable=not progress, desc="leave_groups_out", unit="draw") as bar:
        for draws in functions.batches():
            for index in range(len(draws.noise_scale)):
                one = draws.take(slice(index, index + 1))
                found[done] = [_without(one, rows) for rows in given]
                done += 1
                bar.update()
    return _labelled(found, labels, "group", training)


def leave_future_out(
    posterior: Posterior,
    X: Any,
    y: Any,
    periods: Any,
    *,
    row_weights: Any = None,
    residual_variance: bool = True,
    progress: bool = True,
) -> xr.DataArray:
    """``log p(y_t | y_<t, θ_s)``, jointly for the rows of each period given all periods before it, at each draw.

    What a forecast of each period would have been worth; the first period is given. Statistics of the past are sums of
    those of its periods. Hyperparameters stay at their draws, which have seen all rows: refit on a part of the series
    where they should not have. O(m³) a draw and period, as a posterior.

    :param posterior: of statistics, with Gaussian noise; from :func:`~ppl_sgp.posterior`.
    :param X: the training inputs, all of them, shape (n, d), in any order; with ``y``, shape (n,) or (n, q).
    :param periods: the period of each row, shape (n,), which are in ascending order: years, say.
    :param row_weights: as they were compressed, if any.
    :param residual_variance: add what a basis of a frozen kernel lacks of it at the rows of the future.
    :param progress: show a progress bar over the periods.
    :return: log densities in nats, (draw, period) of all periods but the first, of several outputs (draw, period,
        output). With ``residual_variance=False`` they sum to the difference of two log evidences.
    :raises ValueError: for other posteriors, rows or labels, or a single period.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> y = X[:, 0] + 0.1 * np.cos(77 * X[:, 0])
        >>> stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, y)
        >>> model = sgp.models.reweighted_basis(scale=np.ones(2))
        >>> posterior = sgp.posterior(model, {"noise_scale": np.array([0.1, 0.2])}, stats)
        >>> sgp.leave_future_out(posterior, X, y, np.arange(40) // 10, progress=False)["period"].values.tolist()
        [1, 2, 3]
    """
    training, labels, members = _grouped(posterior, X, y, periods, row_weights, "leave_future_out")
    X, y, omega = training
    past, found = None, []
    rounds = list(itertools.pairwise(members))
    for before, rows in tqdm(rounds, disable=not progress, desc="leave_future_out", unit="period"):
        more = sufficient_statistics(posterior.statistics.basis, X[before], y[before], row_weights=omega[before])
        past = more if past is None else past + more
        draws = copy.copy(posterior.draws)
        draws.data = past
        given = _at(posterior.functions, training, rows, residual_variance)
        found.append(np.concatenate([_ahead(each, given) for each in _of_past(draws, posterior.max_memory)]))
    return _labelled(np.stack(found, axis=1), labels[1:], "period", training)


def _of_past(draws: Any, max_memory: float) -> Any:
    """Posteriors of the weights given the rows of ``draws.data``."""
    return SampledWeights(draws, max_memory).batches()


def _ahead(draws: WeightDraws, rows: TrainingFeatures) -> np.ndarray:
    """Joint log densities of rows, (b, q)."""
    moments = draws.joint((rows.Phi, Residual.of_rows(rows.lacking)))
    scales = draws.noise_scale[..., None] ** 2 / rows.omega
    return np.stack([joint_densities(rows.y, each, noise) for each, noise in zip(moments, scales, strict=True)])


def _without(draws: WeightDraws, rows: TrainingFeatures) -> list[float]:
    """Joint log densities (q,) of rows given all others, of one draw."""
    (moments,) = draws.joint((rows.Phi, Residual.of_rows(np.zeros_like(rows.lacking))))
    own = (draws.residual_amplitude @ rows.lacking)[0]
    noise = draws.noise_scale[0, :, None] ** 2 / rows.omega
    return [
        _left_out_density(*each, rows.precision)
        for each in zip(rows.y - moments.mean, moments.root, own, noise, strict=True)
    ]


def _left_out_density(
    residual: np.ndarray, root: np.ndarray, own: np.ndarray, noise: np.ndarray, precision: np.finfo
) -> float:
    scale = np.sqrt(noise)
    e = residual / scale
    U, s, _ = np.linalg.svd(root / scale[:, None], full_matrices=False)
    kept = 1 - s**2
    require_resolved(kept, precision)
    left_out = scale * (e + U @ (s**2 / kept * (U.T @ e)))
    return joint_log_density(left_out, noise + own, scale[:, None] * U * (s / np.sqrt(kept)))


def _grouped(
    posterior: Posterior, X: Any, y: Any, labels: Any, row_weights: Any, owner: str
) -> tuple[WeightedRows, np.ndarray, list[np.ndarray]]:
    """The training rows, checked, labels in ascending order, and the numbers of the rows of each."""
    if not isinstance(posterior, Posterior):
        raise ValueError(f"{owner} needs what `sgp.posterior` makes; got {type(posterior).__name__}.")
    if posterior.outcomes is not None or not isinstance(posterior.draws.structure(), MarginalParameters):
        raise ValueError(
            f"{owner} is of models that marginalise the weights of statistics, with Gaussian noise; got a posterior of "
            f"{posterior.data!r}. Of others fit without the rows, and ask `predict` for densities of them."
        )
    training = training_rows(posterior.data, X, y, row_weights, owner)
    X, y, omega = training
    labels = np.asarray(labels)
    if labels.shape != (len(X),):
        raise ValueError(f"{owner}: labels must be one for each of the {len(X)} rows; got shape {labels.shape}.")
    if pd.isnull(labels).any():
        raise ValueError(f"{owner}: some labels are missing; give rows without a label one of their own.")
    distinct, positions = np.unique(labels, return_inverse=True)
    if len(distinct) < 2:
        raise ValueError(
            f"{owner}: all rows have the label {distinct.tolist()}; nothing would be left to predict from."
        )
    omega = np.ones(len(X)) if omega is None else omega
    return (X, y, omega), distinct, [np.flatnonzero(positions == index) for index in range(len(distinct))]


def _at(functions: Any, training: WeightedRows, rows: np.ndarray, residual_variance: bool) -> TrainingFeatures:
    X, y, omega = training
    outputs = np.atleast_2d(y.T)[:, rows]
    return functions.at_training_rows(rows, X[rows], outputs, omega[rows], residual_variance)


def _labelled(found: np.ndarray, labels: np.ndarray, dim: str, training: WeightedRows) -> xr.DataArray:
    """From (draws, labels, q)."""
    one_output = np.ndim(training[1]) == 1
    values = found[..., 0] if one_output else found
    coords = {"draw": np.arange(len(found)), dim: labels}
    return xr.DataArray(values, coords, ("draw", dim) if one_output else ("draw", dim, "output"))
