"""Distributions of y at rows, one a draw: what predictions of any likelihood are made from.

An :class:`Outcomes` answers questions (:mod:`~ppl_sgp.posteriors.questions`) of the distribution that each draw gives y
at some rows, wherever it comes from: the observed site of a model of rows, or a likelihood of functions whose posterior
is Gaussian at each draw.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist

from .questions import Question


class NewRows(NamedTuple):
    """Rows to predict at.

    :ivar X: inputs, (k, d).
    :ivar offset: what predictors have beside f, (k,) or (k, K), or ``None``.
    :ivar given: what is known of each row, in the columns that y has, or ``None``.
    :ivar row_weights: of training rows, how often each counts, (k,), or ``None``.
    """

    X: np.ndarray
    offset: np.ndarray | None = None
    given: np.ndarray | None = None
    row_weights: np.ndarray | None = None

    def take(self, rows: slice) -> NewRows:
        """Chosen rows."""
        offset, given, row_weights = (
            None if part is None else part[rows] for part in (self.offset, self.given, self.row_weights)
        )
        return NewRows(self.X[rows], offset, given, row_weights)


class Outcomes(abc.ABC):
    """Distributions of y at rows, a draw each.

    :ivar num_draws: how many.
    """

    num_draws: int
    #: Whether rows are independent given a draw, so that their densities are likelihoods.
    rows_are_independent: bool = True

    @property
    @abc.abstractmethod
    def input_dim(self) -> int:
        """The number of inputs d."""

    #: Answers that each row takes in memory beside those of the draws.
    answers_at_once: int = 1
    #: Numbers that each row takes in memory for each draw, besides answers.
    numbers_per_row: int = 0

    @abc.abstractmethod
    def training_rows(self, X: Any, y: Any, owner: str) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and outcomes of all training rows, checked; some know them, and they may be ``None``."""

    @abc.abstractmethod
    def at(self, rows: NewRows) -> Any:
        """What draws need of rows, computed once for all of them."""

    @abc.abstractmethod
    def at_training_rows(self, rows: NewRows) -> Any:
        """The same of training rows, each given all the others; ``given`` are their outcomes."""

    @abc.abstractmethod
    def shape(self, rows: Any) -> tuple[int, ...]:
        """The shape of y at rows."""

    @abc.abstractmethod
    def knows(self, fact: Callable[[dist.Distribution], bool], rows: Any) -> bool:
        """Whether a fact, such as :func:`~.questions.is_finite`, holds for the distributions."""

    @abc.abstractmethod
    def ask(self, question: Question, rows: Any, *values: Any) -> Any:
        """Answers of all draws, each (S, k, …)."""

    @abc.abstractmethod
    def sample(self, key: jax.Array, rows: Any, indices: np.ndarray) -> np.ndarray:
        """A joint draw of y at rows for each of chosen draws, (s, k)."""

    def outcome(self, y: np.ndarray) -> np.ndarray:
        """Of what is observed of rows the outcomes alone."""
        return y

    def known_of(self, y: np.ndarray) -> np.ndarray | None:
        """Of what is observed of rows what has to be known to predict them; ``None`` if that is nothing."""
        return None
