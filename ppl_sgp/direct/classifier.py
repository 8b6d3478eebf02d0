"""What a fit of discrete weights to labels found, and its predictions."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any

import numpy as np

from .._internal import checks
from .._internal.logits import log_averages
from ..models.class_prediction import ClassPrediction
from ..posteriors.predict import prediction_inputs
from .posterior import FunctionPrediction, LinearPosterior


@dataclasses.dataclass(frozen=True, repr=False)
class DiscreteClassifier(LinearPosterior):
    """A factorised approximate posterior of a logistic regression; made by :func:`ppl_sgp.direct.fit_logistic`.

    :ivar levels: of each weight, shape (b, m̄).
    :ivar log_probabilities: of the levels, shape (b, m̄).
    :ivar elbo_trace: the bound after each iteration, in nats, shape (t,). Of minibatches an estimate before each step,
        and last the bound itself.
    :ivar converged: whether the scheme ended by itself.
    :ivar reason: why it stopped, in words.
    :ivar classes: the labels of the two classes, shape (2,); f is the logit of the second.
    """

    classes: np.ndarray

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


class DiscreteClassPrediction(FunctionPrediction, ClassPrediction):
    """A posterior predictive of two classes; made by :meth:`DiscreteClassifier.predict`. f is the logit of the second.

    Probabilities average the logistic function over a normal with the exact mean and variance of f, a sum over b
    weights.
    """

    def __init__(self, fit: DiscreteClassifier, X_new: np.ndarray, max_memory: float) -> None:
        FunctionPrediction.__init__(self, fit, X_new, max_memory)
        ClassPrediction.__init__(self, fit.classes)

    @cached_property
    def log_probabilities(self) -> np.ndarray:
        """Logarithms of the probabilities of both classes, shape (n_new, 2)."""
        return log_averages(self.mean[:, None], np.sqrt(self.variance)[:, None, None])


def two_classes(labels: Any, num_rows: int, owner: str) -> tuple[np.ndarray, np.ndarray]:
    """The labels of two classes, (2,), and the number of the class of each row, (n,).

    Labels are any two, in ascending order, or 0 and 1 or Booleans, of which all may be alike.
    """
    labels = checks.class_labels(labels, num_rows, owner)
    classes = np.unique(labels)
    if labels.dtype.kind in "biuf" and np.isin(classes, (0, 1)).all():
        classes = np.array([0, 1]).astype(labels.dtype)
    if len(classes) != 2:
        raise ValueError(
            f"{owner}: `labels` must be of two classes; got {len(classes)}: {classes[:5].tolist()}. Of more, use "
            "`labels == positive`, one after the other; of one, use 0 and 1."
        )
    return classes, np.searchsorted(classes, labels)
