"""Whether predictions of counts mean what they say: randomised PIT, rootogram, ranked probability score, dispersion."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import xarray as xr

from .._internal import checks
from .._internal.random import host_generator
from ..posteriors.outcome_prediction import OutcomePrediction

#: The most counts that a rootogram has by itself.
MOST_COUNTS = 200


def calibrate_counts(
    prediction: OutcomePrediction,
    y: Any,
    *,
    levels: Any = (0.5, 0.8, 0.9, 0.95),
    largest: int | None = None,
    key: jax.Array | None = None,
) -> xr.Dataset:
    """Score predictions of held-out counts: are they calibrated, and how sharp are they?

    For counts, ordered classes and any y from zero on in whole numbers. The randomised PIT is uniform between
    ``P(Y < y)`` and ``P(Y ≤ y)``, and so on [0, 1] if predictions are calibrated (Czado, Gneiting & Held 2009); its
    coverage of central intervals needs no intervals of counts. The rootogram sets the number of rows with each count
    beside the number expected, ``Σᵢ P(Yᵢ = k)`` (Kleiber & Zeileis 2016), whose standard deviation for independent rows
    is ``(Σᵢ pᵢₖ(1 − pᵢₖ))^½``. The ranked probability score, the CRPS of counts, is ``Σₖ (Fᵢ(k) − 1{yᵢ ≤ k})²``.

    O(largest) probabilities of each row and draw.

    :param prediction: of the rows, made by :func:`~ppl_sgp.predict` without ``y`` among its training rows.
    :param y: the counts, shape (n,).
    :param levels: probabilities of central intervals, between 0 and 1, shape (l,).
    :param largest: the last count of the rootogram; larger ones are one group, "more". Default: twice the largest of
        ``y``, 20 at least and 200 at most.
    :param key: of the uniform numbers in the PIT.
    :return: a dataset. Over ``obs``: ``pit``; ``log_density`` in nats; ``rps``, of counts up to ``largest``. Over
        ``count``: ``observed`` and ``expected`` numbers of rows, and ``expected_sd``. Over ``level``: ``coverage`` and
        ``coverage_standard_error``. Scalars: ``observed_more``, ``expected_more``; ``mean_log_density``, ``mean_rps``;
        and ``dispersion``, the mean of ``(y − E y)²/Var y``, one if variances are right.
    :raises ValueError: for predictions that are not of counts, shapes that differ, or y that are no whole numbers.

    .. doctest::

        >>> import jax.numpy as jnp, numpy as np, numpyro, numpyro.distributions as dist, ppl_sgp as sgp
        >>> def model(X, y=None):
        ...     level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        ...     numpyro.sample("y", dist.Poisson(jnp.exp(level) + 0 * X[:, 0]), obs=y)
        >>> X, y = np.zeros((4, 1)), np.array([0, 1, 1, 3])
        >>> prediction = sgp.posterior(model, {"level": np.zeros(3)}, sgp.rows(X, y)).predict(X)
        >>> scores = sgp.calibrate_counts(prediction, y)
        >>> scores["observed"].values[:4].astype(int).tolist(), scores["expected"].values[:4].round(1).tolist()
        ([1, 2, 0, 1], [1.5, 1.5, 0.7, 0.2])
    """
    owner = "calibrate_counts"
    levels = checks.probabilities("levels", levels, owner)
    if not isinstance(prediction, OutcomePrediction) or not prediction.is_discrete or len(prediction.shape) != 1:
        raise ValueError(
            f"{owner}: `prediction` must be of one count a row, made by `predict` of a posterior with a likelihood of "
            f"counts or ordered classes; got {type(prediction).__name__}. Of numbers use `calibrate_regression`."
        )
    values = checks.observations("y", y, prediction.shape, owner)
    if len(values) == 0 or (values < 0).any() or (values != np.floor(values)).any():
        raise ValueError(f"{owner}: `y` must be whole numbers of at least 0, one row or more.")
    counts = values.astype(int)
    if largest is None:
        largest = int(np.clip(2 * counts.max(), 20, MOST_COUNTS))
    checks.whole_number("largest", largest, 1, owner)
    mass = prediction.probabilities_of(np.arange(largest + 1))
    log_density = prediction.log_density(values)
    below = prediction.distribution_function(values)
    uniform = host_generator(jax.random.key(0) if key is None else key, owner).random(len(counts))
    pit = (below - uniform * np.exp(log_density)).clip(0, 1)
    reached = np.arange(largest + 1) >= counts[:, None]
    rps = np.sum((np.cumsum(mass, axis=1) - reached) ** 2, axis=1)
    more = np.maximum(1 - mass.sum(axis=1), 0)
    return xr.Dataset(
        {
            "pit": ("obs", pit),
            "log_density": ("obs", log_density),
            "rps": ("obs", rps),
            "observed": ("count", np.bincount(counts[counts <= largest], minlength=largest + 1).astype(float)),
            "expected": ("count", mass.sum(axis=0)),
            "expected_sd": ("count", np.sqrt(np.sum(mass * (1 - mass), axis=0))),
            "coverage": ("level", np.mean(np.abs(pit - 0.5) <= levels[:, None] / 2, axis=1)),
            "coverage_standard_error": ("level", np.sqrt(levels * (1 - levels) / len(pit))),
            "observed_more": float(np.sum(counts > largest)),
            "expected_more": float(more.sum()),
            "mean_log_density": log_density.mean(),
            "mean_rps": rps.mean(),
            "dispersion": _dispersion(values, mass, prediction),
        },
        coords={"obs": np.arange(len(pit)), "count": np.arange(largest + 1), "level": levels},
    )


def _dispersion(y: np.ndarray, mass: np.ndarray, prediction: OutcomePrediction) -> float:
    """Squares of residuals by variances; of classes, which have no moments of their own, by their numbers."""
    values = np.arange(mass.shape[1])
    try:
        mean, variance = prediction.mean, prediction.variance
    except ValueError:
        mean = mass @ values
        variance = mass @ values**2 - mean**2
    return float(np.mean((y - mean) ** 2 / variance))
