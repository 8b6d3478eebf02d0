"""What every prediction of classes offers: names, probabilities, the most probable label, scores, draws."""

from __future__ import annotations

import abc
from functools import cached_property
from typing import Any

import jax
import numpy as np

from .._internal import checks
from .._internal.random import random_key


class ClassPrediction(abc.ABC):
    """Posterior predictive of one of K classes at each of n_new inputs.

    Made by ``predict`` of the classifiers: :func:`~ppl_sgp.fit_relevance_classifier`,
    :func:`~ppl_sgp.models.relevance_vector_classifier` and :func:`~ppl_sgp.direct.fit_logistic`.

    :param classes: the labels of the classes, in the order of the columns of probabilities, shape (K,).
    """

    def __init__(self, classes: np.ndarray) -> None:
        self.classes = classes

    @property
    @abc.abstractmethod
    def log_probabilities(self) -> np.ndarray:
        """Logarithms of :attr:`probabilities`, finite where those underflow, shape (n_new, K)."""

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Probability of each class, averaged over the posterior, shape (n_new, K)."""
        return np.exp(self.log_probabilities)

    @property
    def labels(self) -> np.ndarray:
        """The most probable class of each input, by its label, shape (n_new,)."""
        return self.classes[np.argmax(self.log_probabilities, axis=1)]

    def log_density(self, labels: Any) -> np.ndarray:
        """Log probability of the given labels, in nats, shape (n_new,).

        :param labels: shape (n_new,).
        :raises ValueError: for labels of another shape, or of classes that were not seen.
        """
        rows = len(self.log_probabilities)
        labels = checks.class_labels(labels, rows, "log_density")
        known = np.isin(labels, self.classes)
        if not known.all():
            shown = np.unique(labels[~known])[:5].tolist()
            raise ValueError(f"log_density: labels {shown} are not among the classes {self.classes.tolist()}.")
        order = np.argsort(self.classes)
        codes = order[np.searchsorted(self.classes, labels, sorter=order)]
        return self.log_probabilities[np.arange(rows), codes]

    def sample(self, key: jax.Array, num_draws: int) -> np.ndarray:
        """Draws of the label of each input, alone: shape (num_draws, n_new).

        :param key: a JAX random key.
        :param num_draws: draws of each.
        """
        checks.whole_number("num_draws", num_draws, 1, "sample")
        gumbel = np.asarray(jax.random.gumbel(random_key(key, "sample"), (num_draws, *self.log_probabilities.shape)))
        return self.classes[np.argmax(self.log_probabilities + gumbel, axis=-1)]
