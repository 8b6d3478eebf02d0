"""Whether class probabilities mean what they say: reliability, expected calibration error, Brier score, entropy."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from scipy.special import entr

from .._internal import checks

#: How far the probabilities of a row may be from a sum of one: rounding of float32 over a thousand classes.
SUM_TOLERANCE = 1e-4


def calibrate_classification(probabilities: Any, labels: Any, *, num_bins: int = 20) -> xr.Dataset:
    """Score class probabilities of held-out rows: reliability diagram, calibration errors, Brier score.

    A row's confidence is the largest of its probabilities, and the class that has it (the first of several) is the one
    predicted. Rows fall into M bins by confidence, bin m being ``((m − 1)/M, m/M]``; in each, the accuracy of a
    calibrated prediction equals its confidence. Definitions are those of Tran (PhD thesis, section 3.3; 20 bins as in
    section 3.6.4), with two additions:

    - ``ece_midpoint`` is eq 3.2, which compares a bin's accuracy (eq 3.1) with the bin's midpoint; ``ece``, the usual
      one, compares it with the mean confidence of the rows in it (Guo et al. 2017). Perfect predictions have an
      ``ece_midpoint`` of 1/(2M).
    - ``brier_mean`` is eq 3.3, with its factor 1/K for K classes; ``brier`` is the sum over classes, between 0 and 2.
      The thesis's tables hold the sum (erratum: with the factor, ten classes could not exceed 0.2).

    O(nK).

    :param probabilities: of the classes 0 to K − 1, shape (n, K), K at least 2; rows sum to one.
    :param labels: the true classes, integers from 0 to K − 1, shape (n,).
    :param num_bins: M.
    :return: a dataset. Over ``bin``, 1 to M: ``accuracy`` and ``confidence``, means over the rows of the bin, NaN where
        it has none; ``count`` of rows; the coordinate ``midpoint``. Over ``obs``: ``entropy``, as of
        :func:`predictive_entropy`. Scalars: ``ece``, ``ece_midpoint``, ``brier``, ``brier_mean``, ``error_rate``, and
        ``mean_negative_log_likelihood`` in nats, infinite if a true class had probability zero.
    :raises ValueError: for shapes that do not fit, no rows, probabilities that are none or do not sum to one, or labels
        that are no such integers.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> scores = sgp.calibrate_classification([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8]], [0, 1, 0], num_bins=2)
        >>> scores["count"].values.tolist(), scores["accuracy"].values.round(3).tolist()
        ([0, 3], [nan, 0.667])
        >>> round(float(scores["ece"]), 3), round(float(scores["brier"]), 3)
        (0.133, 0.493)
    """
    probabilities = _checked_probabilities(probabilities, "calibrate_classification")
    n, K = probabilities.shape
    labels = _checked_labels(labels, n, K)
    checks.whole_number("num_bins", num_bins, 1, "calibrate_classification")
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    # Compared with the edges themselves: 0.55 · 20 rounds to above 11. Rounding may also carry a confidence above one.
    edges = np.arange(1, num_bins + 1) / num_bins
    member = np.searchsorted(edges, np.minimum(confidence, 1.0), side="left")
    count = np.bincount(member, minlength=num_bins)
    occupied = np.where(count > 0, count, np.nan)
    accuracy = np.bincount(member, weights=correct, minlength=num_bins) / occupied
    mean_confidence = np.bincount(member, weights=confidence, minlength=num_bins) / occupied
    midpoint = (np.arange(num_bins) + 0.5) / num_bins
    of_label = probabilities[np.arange(n), labels]
    brier = np.mean(np.sum((probabilities - np.eye(K)[labels]) ** 2, axis=1))
    with np.errstate(divide="ignore"):
        log_likelihood = np.log(of_label)
    return xr.Dataset(
        {
            "accuracy": ("bin", accuracy),
            "confidence": ("bin", mean_confidence),
            "count": ("bin", count),
            "entropy": ("obs", entr(probabilities).sum(axis=1)),
            "ece": np.nansum(count / n * np.abs(accuracy - mean_confidence)),
            "ece_midpoint": np.nansum(count / n * np.abs(accuracy - midpoint)),
            "brier": brier,
            "brier_mean": brier / K,
            "error_rate": 1 - correct.mean(),
            "mean_negative_log_likelihood": -log_likelihood.mean(),
        },
        coords={"bin": np.arange(1, num_bins + 1), "midpoint": ("bin", midpoint), "obs": np.arange(n)},
    )


def predictive_entropy(probabilities: Any) -> np.ndarray:
    """``−Σ_k p_k log p_k`` of each row, with ``0 log 0 = 0``: from 0, certain, to log K, no idea.

    For inputs unlike all training inputs it should be large. Compare its empirical distribution with that of held-out
    rows of the training distribution (Tran, PhD thesis, section 3.3).

    :param probabilities: of K classes, shape (n, K), K at least 2; rows sum to one.
    :return: in nats, shape (n,).
    :raises ValueError: for other shapes, no rows, or probabilities that are none or do not sum to one.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> sgp.predictive_entropy([[1.0, 0.0], [0.5, 0.5]]).round(4).tolist()
        [0.0, 0.6931]
    """
    return entr(_checked_probabilities(probabilities, "predictive_entropy")).sum(axis=1)


def _checked_probabilities(probabilities: Any, owner: str) -> np.ndarray:
    probabilities = np.asarray(probabilities, dtype=np.float64)
    if probabilities.ndim != 2 or probabilities.shape[0] < 1 or probabilities.shape[1] < 2:
        raise ValueError(
            f"{owner}: `probabilities` must have shape (n, K), at least one row and two classes; got "
            f"{probabilities.shape}. Of two classes with probabilities p of the second pass "
            "`np.stack([1 - p, p], axis=1)`."
        )
    if not np.isfinite(probabilities).all():
        raise ValueError(f"{owner}: `probabilities` has entries that are not finite; drop those rows.")
    if probabilities.min() < 0:
        raise ValueError(
            f"{owner}: `probabilities` must not be negative; got {probabilities.min():.3g}. Of logits pass their "
            "softmax, averaged over posterior draws."
        )
    sums = probabilities.sum(axis=1)
    worst = sums[np.argmax(np.abs(sums - 1))]
    if abs(worst - 1) > SUM_TOLERANCE:
        raise ValueError(f"{owner}: rows of `probabilities` must sum to one; got a sum of {worst:.6g}. Normalise them.")
    return probabilities


def _checked_labels(labels: Any, num_rows: int, num_classes: int) -> np.ndarray:
    labels = checks.class_labels(labels, num_rows, "calibrate_classification")
    if labels.dtype.kind not in "iu":
        raise ValueError(
            f"calibrate_classification: `labels` must be integers, columns of `probabilities`; got {labels.dtype}. Of "
            "sorted class names pass `np.searchsorted(classes, labels)`."
        )
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"calibrate_classification: `labels` must be from 0 to {num_classes - 1}, columns of `probabilities`; got "
            f"{labels.min()} to {labels.max()}."
        )
    return labels
