"""What a fit of discrete weights to labels found, and its predictions."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any

import numpy as np

from .._internal import checks
from .._internal.logits import log_averages
from ..posteriors.predict import prediction_inputs
from .posterior import FunctionPrediction, LinearPosterior


@dataclasses.dataclass(frozen=True)
class DiscreteClassifier(LinearPosterior):
    """A factorised approximate posterior of a logistic regression; made by :func:`ppl_sgp.direct.fit_logistic`.

    :ivar levels: of each weight, shape (b, m̄).
    :ivar log_probabilities: of the levels, shape (b, m̄).
    :ivar elbo_trace: the bound after each iteration, in nats, shape (t,). Of minibatches an estimate before each step,
        and last the bound itself.
    :ivar converged: whether the scheme ended by itself.
    :ivar reason: why it stopped, in words.
    """

    @property
    def mixture(self) -> tuple[np.ndarray, np.ndarray]:
        """One component: its probability, (1,), and log-probabilities of the levels, (1, b, m̄)."""
        return np.ones(1), self.log_probabilities[None]

    def predict(self, X_new: Any, *, max_memory: float = 2e9) -> DiscreteClassPrediction:
        """Predict at new inputs. O(b) a row.

        :param X_new: new inputs, shape (n_new, d).
        :param max_memory: bytes that features may take.
        :raises ValueError: for inputs of another shape, or that are not finite.
        """
        max_memory = checks.memory_cap(max_memory, "predict")
        X_new, _ = prediction_inputs(X_new, None, self.basis.input_dim)
        return DiscreteClassPrediction(self, X_new, max_memory)


class DiscreteClassPrediction(FunctionPrediction):
    """A posterior predictive of labels; made by :meth:`DiscreteClassifier.predict`. f is the logit of label 1."""

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Probabilities of the labels 0 and 1, shape (n_new, 2).

        The average of the logistic function over a normal with the exact mean and variance of f, a sum over b weights.
        """
        return np.exp(self._log_probabilities)

    @cached_property
    def _log_probabilities(self) -> np.ndarray:
        return log_averages(self.mean[:, None], np.sqrt(self.variance)[:, None, None])

    def log_density(self, labels: Any) -> np.ndarray:
        """Log probability of each of the given labels, in nats, shape (n_new,).

        :param labels: 0 or 1 (or booleans), shape (n_new,).
        :raises ValueError: for labels of another shape, or other than 0 and 1.
        """
        codes = binary_labels(labels, len(self.mean), "log_density")
        return self._log_probabilities[np.arange(len(codes)), codes]


def binary_labels(labels: Any, num_rows: int, owner: str) -> np.ndarray:
    """Labels as integers 0 and 1, checked."""
    labels = checks.class_labels(labels, num_rows, owner)
    numeric = labels.dtype.kind in "biuf"
    if not numeric or not np.isin(labels, (0, 1)).all():
        shown = np.unique(labels[~np.isin(labels, (0, 1))])[:5].tolist() if numeric else f"dtype {labels.dtype}"
        raise ValueError(
            f"{owner}: `labels` must be 0 or 1, or booleans; got {shown}. Use `labels == positive`, with the label "
            "that is to count as 1; drop rows without a label."
        )
    return labels.astype(int)
