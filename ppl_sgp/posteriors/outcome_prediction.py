"""The posterior predictive of any likelihood: a mixture over draws of the distribution that each gives y."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import jax
import numpy as np
import xarray as xr
from scipy.special import logsumexp

from .._internal import checks
from .._internal.random import host_generator, random_key
from .._internal.shown import Shown
from . import questions
from .mixture import row_blocks
from .mixture_quantiles import continuous_quantiles, discrete_quantiles, tails
from .outcomes import Outcomes
from .questions import Question
from .rows_dataset import rows_dataset

#: The most probabilities of a row that are tabulated or summed.
MOST_VALUES = 100_000
#: Counts below this are cheaper to sum over than incomplete gamma and beta functions are to evaluate.
SMALL_COUNTS = 256
#: Draws of y that quantiles are looked for from.
FIRST_DRAWS = 50


class OutcomePrediction(Shown):
    """A posterior predictive of y of any likelihood; made by :func:`~ppl_sgp.predict`.

    Of each row it is the mixture, over posterior draws, of the likelihood averaged over f: by quadrature where f given
    a draw is normal, and nothing is plugged in. Everything is computed when first asked for.

    :param outcomes: the distributions of y, a draw each.
    :param at: what they need of the rows of a slice.
    :param num_rows: the number of rows.
    :param weights: of the draws, shape (S,), with sum one.
    :param max_memory: bytes that intermediate results may take.
    """

    def __init__(
        self,
        outcomes: Outcomes,
        at: Callable[[slice], Any],
        num_rows: int,
        weights: np.ndarray,
        max_memory: float,
    ) -> None:
        self._outcomes, self._at, self.num_rows = outcomes, at, num_rows
        self.component_weights, self._max_memory = weights, max_memory
        self._kept: tuple[slice, Any] | None = None

    @cached_property
    def _first(self) -> Any:
        return self._at(slice(0, 1))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of y at all rows, (n_new,) or (n_new, q)."""
        return (self.num_rows, *self._outcomes.shape(self._first)[1:])

    @cached_property
    def is_discrete(self) -> bool:
        """Whether y is an integer: a count, or the number of a class."""
        return self._outcomes.knows(questions.is_discrete, self._first)

    @property
    def mean(self) -> np.ndarray:
        """Mean of y, in its shape; of classes see :attr:`probabilities`."""
        return self._moments[0]

    @property
    def variance(self) -> np.ndarray:
        """Variance of y, in its shape: of the likelihood, of f and of the draws."""
        return self._moments[1]

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of y, in its shape."""
        return np.sqrt(self.variance)

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = np.empty((2, *self.shape))
        for rows, (means, variances) in self._asked(questions.MOMENTS, 4):
            mean[rows] = self._averaged(means)
            variance[rows] = self._averaged(variances + (means - mean[rows]) ** 2)
        if np.isnan(mean).any() and self.is_discrete:
            raise ValueError("Classes have no mean and no variance; ask for their `probabilities`.")
        return mean, variance

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Probabilities of the classes 0 to K − 1, or of the counts up to the largest one, shape (n_new, K)."""
        if not self._outcomes.knows(questions.is_finite, self._first):
            raise ValueError(
                "`probabilities` are of outcomes that are one of finitely many; this likelihood has others. Ask for "
                "`probabilities_of(values)` of counts, `distribution_function(y)`, or `quantiles`."
            )
        largest = max(int(np.max(values)) for _, values in self._asked(questions.LARGEST_VALUE))
        return self.probabilities_of(np.arange(largest + 1))

    def probabilities_of(self, values: Any) -> np.ndarray:
        """Probabilities that y is each of some integers, shape of y + (v,).

        :param values: shape (v,).
        :raises ValueError: for y that is not discrete.
        """
        self._require_discrete("probabilities_of")
        values = np.asarray(values, dtype=np.int64)
        if values.ndim != 1 or len(values) > MOST_VALUES:
            raise ValueError(
                f"probabilities_of: `values` must be a list of {MOST_VALUES} integers at most; got {values.shape}."
            )
        found = np.empty((*self.shape, len(values)))
        for rows, logs in self._asked(questions.LOG_PROBABILITIES, 2 * len(values), values):
            found[rows] = self._averaged(np.exp(logs))
        return found

    def log_density(self, y_new: Any) -> np.ndarray:
        """Log predictive density, or probability, of each new observation, of the mixture.

        :param y_new: observations, with the rows along the first axis.
        :return: in nats, shape (n_new,), or (n_new, q).
        :raises ValueError: if the shape differs, or values are not finite.
        """
        y_new = self._observations(y_new, "log_density")
        result = np.empty(self.shape)
        for rows, logs in self._asked(questions.LOG_DENSITY, 3, by_row=(y_new,)):
            weights = self.component_weights.reshape(-1, *[1] * (logs.ndim - 1))
            result[rows] = logsumexp(logs, axis=0, b=weights)
        return result

    def distribution_function(self, y: Any) -> np.ndarray:
        """``P(Y ≤ y)`` of each row.

        Of small counts, and where the likelihood of a count does not know its own, probabilities are summed, O(largest
        y) a row.

        :param y: numbers, in the shape of :attr:`mean`.
        :raises ValueError: if y has NaN, or counts are too large to sum up to.
        """
        y = np.broadcast_to(np.asarray(y, dtype=np.float64), self.shape)
        if np.isnan(y).any():
            raise ValueError("distribution_function: `y` has NaN; ask at numbers.")
        asked = np.where(np.isfinite(y), np.maximum(y, 0) if self.is_discrete else y, 0.0)
        result = np.empty(self.shape)
        for rows, values in self._asked(self.below(asked), 3, by_row=(asked,)):
            result[rows] = self._averaged(values)
        lowest = 0.0 if self.is_discrete else -np.inf
        return np.where(y < lowest, 0.0, np.where(np.isinf(y), y > 0, np.minimum(result, 1.0)))

    def below(self, y: np.ndarray) -> Question:
        """The question for ``P(Y ≤ y)``: of small counts, and where it is not known, probabilities are summed."""
        known = self._outcomes.knows(questions.has_distribution_function, self._first)
        if known and not (self.is_discrete and np.max(y) < SMALL_COUNTS):
            return questions.DISTRIBUTION_FUNCTION
        self._require_discrete("distribution_function")
        if np.max(y) > MOST_VALUES:
            raise ValueError(
                f"distribution_function: the likelihood does not know its own, and summing probabilities up to y = "
                f"{np.max(y):.6g} takes too long; {MOST_VALUES} at most. Take shares or quantiles of draws, "
                "`prediction.sample(key, 4000)`."
            )
        return questions.SUMMED_PROBABILITIES

    def quantiles(self, probabilities: Any) -> np.ndarray:
        """Quantiles of y: of counts the least value whose distribution function reaches the probability.

        By bracketing of the mixture's distribution function: some ten evaluations of it for each, of counts as many as
        their size has binary digits.

        :param probabilities: between 0 and 1, shape (p,).
        :return: shape (p,) + that of y.
        """
        wanted = checks.probabilities("probabilities", np.atleast_1d(probabilities), "quantiles")
        drawn = self.sample(jax.random.key(0), FIRST_DRAWS)
        if self.is_discrete:
            return np.stack([discrete_quantiles(self.distribution_function, p, drawn) for p in wanted])
        if not self._outcomes.knows(questions.has_distribution_function, self._first):
            raise ValueError(
                "quantiles: the likelihood does not know its distribution function. Take quantiles of draws, "
                "`np.quantile(prediction.sample(key, 4000), probabilities, axis=0)`."
            )
        return np.stack([continuous_quantiles(self.distribution_function, p, drawn) for p in wanted])

    def interval(self, probability: float = 0.9) -> np.ndarray:
        """Ends of the equal-tailed interval of y: two :meth:`quantiles`. Of counts both ends are part of it.

        :param probability: of the interval; of counts it has at least that.
        :return: lower and upper ends, shape (2,) + that of y.
        :raises ValueError: if ``probability`` is not between 0 and 1.
        """
        return self.quantiles(tails(probability, "interval"))

    def to_xarray(self, probabilities: Any = (), *, coords: dict[str, Any] | None = None) -> xr.Dataset:
        """Moments and quantiles of y as a dataset, over ``new_obs`` and, of several outputs, ``output``.

        :param probabilities: of the quantiles that are wanted, if any, shape (p,).
        :param coords: labels by dimension, such as ``{"new_obs": dates}``; default numbers.
        :return: ``mean``, ``variance``, ``std`` and, if wanted, ``quantiles`` (probability, new_obs, …).
        :raises ValueError: for classes, which have no moments: ask for :attr:`probabilities`.
        """
        found = {"mean": self.mean, "variance": self.variance, "std": self.std}
        quantiles = self.quantiles(probabilities) if len(probabilities) else None
        return rows_dataset(found, quantiles, probabilities, coords)

    def facts(self) -> dict[str, Any]:
        """The sizes of the prediction."""
        return {"num_rows": self.num_rows, "num_draws": len(self.component_weights)}

    def sample(self, key: jax.Array, num_samples: int = 1) -> np.ndarray:
        """Joint draws of y at all new inputs: of the posterior, then of f, then of y.

        :param key: a JAX random key.
        :param num_samples: how many; posterior draws are taken evenly, in proportion to their weights, in random order.
        :return: shape (num_samples,) + that of y.
        """
        checks.whole_number("num_samples", num_samples, 1, "sample")
        key_order, key_draws = jax.random.split(random_key(key, "sample"))
        chosen = evenly_chosen(host_generator(key_order, "sample"), self.component_weights, num_samples)
        return self.sample_draws(key_draws, chosen)

    def sample_draws(self, key: jax.Array, indices: Any) -> np.ndarray:
        """One joint draw of y for each of the given posterior draws, in that order.

        :param indices: positions of draws, shape (s,).
        :return: shape (s,) + that of y.
        """
        return self._outcomes.sample(
            random_key(key, "sample_draws"), self._rows(slice(0, self.num_rows)), np.asarray(indices)
        )

    def by_draw(self, y: Any, question: Question = questions.LOG_DENSITY) -> np.ndarray:
        """Log densities of observations at each posterior draw, averaged over f, (S,) + shape of y.

        :param question: another question of observations.
        """
        result = np.empty((self._outcomes.num_draws, *self.shape))
        for rows, answers in self._asked(question, 1, by_row=(self._observations(y, "by_draw"),)):
            result[:, rows] = answers
        return result

    def _asked(
        self, question: Question, arrays: int = 2, *values: Any, by_row: tuple[np.ndarray, ...] = ()
    ) -> Iterator[tuple[slice, Any]]:
        """Answers of all draws at blocks of rows, (S, rows, …), as many rows as fit in memory."""
        outcomes, count = self._outcomes, self._outcomes.num_draws
        answers_of_row = arrays * (count + outcomes.answers_at_once) * int(np.prod(self.shape[1:]))
        per_row = answers_of_row + count * outcomes.numbers_per_row
        size = min(self.num_rows, max(1, int(self._max_memory // (16 * per_row))))
        for rows in row_blocks(self.num_rows, size):
            # The last block is filled up from the rows before it, so that all have one shape.
            filled = slice(max(0, rows.stop - size), rows.stop)
            answers = outcomes.ask(question, self._rows(filled), *values, *(array[filled] for array in by_row))
            kept = slice(rows.start - filled.start, None)
            yield rows, jax.tree.map(lambda answer, kept=kept: answer[:, kept], answers)

    def _rows(self, rows: slice) -> Any:
        """What draws need of rows; those asked for last are kept."""
        if self._kept is None or self._kept[0] != rows:
            self._kept = rows, self._at(rows)
        return self._kept[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}

    def _averaged(self, values: np.ndarray) -> np.ndarray:
        return np.tensordot(self.component_weights, values, axes=1)

    def _observations(self, y: Any, owner: str) -> np.ndarray:
        y = checks.host_numbers("y_new", y, owner)
        if y.shape[:1] != (self.num_rows,):
            raise ValueError(
                f"{owner}: `y_new` must have {self.num_rows} rows, those of the prediction; got shape {y.shape}."
            )
        if np.isnan(y).any():
            raise ValueError(f"{owner}: `y_new` has missing entries; drop those rows and predict at the others.")
        return y.astype(np.float64, copy=False)

    def _require_discrete(self, owner: str) -> None:
        if not self.is_discrete:
            raise ValueError(f"{owner}: y is not discrete: ask for `log_density` or the `distribution_function`.")


def evenly_chosen(rng: np.random.Generator, weights: np.ndarray, count: int) -> np.ndarray:
    """Positions of draws in proportion to their weights, as evenly as can be, in random order."""
    order = rng.permutation(len(weights))
    edges = np.cumsum(weights[order])
    points = (rng.random() + np.arange(count)) / count * edges[-1]
    chosen = order[np.minimum(np.searchsorted(edges, points, side="right"), len(order) - 1)]
    return rng.permutation(chosen)
