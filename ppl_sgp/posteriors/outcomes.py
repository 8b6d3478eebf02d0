"""Distributions of y at rows, one a draw: what predictions of any likelihood are made from.

An :class:`Outcomes` answers questions (:mod:`~ppl_sgp.posteriors.questions`) of the distribution that each draw gives y
at some rows, wherever it comes from: the observed site of a model of rows, or a likelihood of functions whose posterior
is Gaussian at each draw.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist

from .questions import Question


class Outcomes(abc.ABC):
    """Distributions of y at rows, a draw each.

    :ivar num_draws: how many.
    """

    num_draws: int

    @property
    @abc.abstractmethod
    def input_dim(self) -> int:
        """The number of inputs d."""

    @property
    @abc.abstractmethod
    def numbers_per_row(self) -> int:
        """Numbers that each row takes in memory for each draw, while a question is answered."""

    @abc.abstractmethod
    def at(self, X: np.ndarray) -> Any:
        """What draws need of rows, inputs of shape (k, d), computed once for all of them."""

    @abc.abstractmethod
    def shape(self, rows: Any) -> tuple[int, ...]:
        """The shape of y at rows."""

    @abc.abstractmethod
    def knows(self, fact: Callable[[dist.Distribution], bool], rows: Any) -> bool:
        """Whether a fact, such as :func:`~.questions.is_finite`, holds for the distributions."""

    @abc.abstractmethod
    def ask(self, question: Question, rows: Any, indices: np.ndarray, *values: Any) -> Any:
        """Answers of chosen draws (s,), each (s, k, …)."""

    @abc.abstractmethod
    def sample(self, key: jax.Array, rows: Any, indices: np.ndarray) -> np.ndarray:
        """A joint draw of y at rows for each of chosen draws, (s, k)."""
