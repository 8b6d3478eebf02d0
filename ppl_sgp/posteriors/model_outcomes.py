"""Distributions of y that a model of rows gives itself: those of its observed site, whatever its likelihood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .._internal.compiled import Compiled
from ..sites.tracing import draw_once, trace_at
from ..statistics.kept_rows import Rows
from .observed_data import training_rows
from .outcomes import NewRows, Outcomes
from .questions import Conditional, Question


class ModelOutcomes(Outcomes):
    """What the observed site of a model says of y at the draws of its latent sites.

    :param model: a NumPyro model of rows.
    :param site: the name of its observed site.
    :param latent: draws of its latent sites, each with the draws along the first axis.
    :param num_draws: how many.
    :param data: the rows that it observes.
    """

    def __init__(
        self, model: Callable[..., Any], site: str, latent: dict[str, np.ndarray], num_draws: int, data: Rows
    ) -> None:
        self.model, self.site, self.num_draws, self._data = model, site, num_draws, data
        self._latent = latent
        self._programs: dict[Any, Compiled] = {}

    @property
    def input_dim(self) -> int:
        """The number of inputs d."""
        return self._data.input_dim

    def training_rows(self, X: Any, y: Any, owner: str) -> tuple[np.ndarray, np.ndarray]:
        """The rows that the model observes."""
        X, y, _ = training_rows(self._data, X, y, None, owner)
        return X, y

    def at_training_rows(self, rows: NewRows) -> Rows:
        """As at any rows: given the draws, rows are independent of each other."""
        return self.at(rows._replace(given=None))

    def at(self, rows: NewRows) -> Rows:
        """Rows without outputs, at which the model has the same latent sites."""
        X, offset, given, row_weights = rows
        if offset is not None or given is not None or row_weights is not None:
            raise ValueError(
                "`offset`, `given` and `row_weights` are of compressed likelihoods; all that rows of this model have "
                "is in the columns of its inputs."
            )
        without = Rows(X, None)
        found = jax.eval_shape(lambda: _latent_values(self.model, without))
        other = [name for name, value in found.items() if name != self.site and self._shape(name) != value.shape]
        if other:
            raise ValueError(
                f"At {len(X)} new rows the latent sites {other} of the model are not those that there are draws of: "
                "sites with a value for each training row cannot be predicted from."
            )
        return without

    def _shape(self, name: str) -> tuple[int, ...] | None:
        return np.shape(self._latent[name])[1:] if name in self._latent else None

    def shape(self, rows: Rows) -> tuple[int, ...]:
        """The shape of y at rows."""
        shape: list[tuple[int, ...]] = []
        self._look(rows, lambda fn: shape.append(tuple(fn.batch_shape) + tuple(fn.event_shape)))
        if shape[0][:1] != (len(rows.X),):
            raise ValueError(
                f"{self.site!r} has shape {shape[0]} at {len(rows.X)} rows: each row must have a distribution of its "
                "own, along the first axis. Make it of all of the inputs that the model is given."
            )
        return shape[0]

    def knows(self, fact: Callable[[dist.Distribution], bool], rows: Rows) -> bool:
        """Whether a fact holds for the site's distribution."""
        answer: list[bool] = []
        self._look(rows, lambda fn: answer.append(bool(fact(fn))))
        return answer[0]

    def _look(self, rows: Rows, at: Callable[[dist.Distribution], Any]) -> None:
        """Look at the site's distribution, without evaluating it."""
        first = {name: values[0] for name, values in self._latent.items()}

        def look() -> None:
            at(Conditional.of(trace_at(self.model, rows, first)[self.site]["fn"]).distribution)

        jax.eval_shape(look)

    def ask(self, question: Question, rows: Rows, *values: Any) -> Any:
        """Answers of all draws."""
        if question not in self._programs:
            self._programs[question] = Compiled(_answers, self.model, self.site, question)
        answers = self._programs[question](rows, self._latent, np.arange(self.num_draws), values)
        return jax.tree.map(lambda answer: np.asarray(answer, dtype=np.float64), answers)

    def sample(self, key: jax.Array, rows: Rows, indices: np.ndarray) -> np.ndarray:
        """A draw of y at rows for each of chosen draws."""
        if _draw not in self._programs:
            self._programs[_draw] = Compiled(_draws, self.model, self.site)
        chosen = {name: draws[indices] for name, draws in self._latent.items()}
        return np.asarray(self._programs[_draw](rows, chosen, jax.random.split(key, len(indices))))


def _answers(
    model: Callable[..., Any], site: str, question: Question, rows: Any, draws: Any, numbers: Any, values: Any
) -> Any:
    """Answers at each draw; their ``numbers`` say how many there are of a model without latent sites."""

    def at(numbered):
        return question.at(Conditional.of(trace_at(model, rows, numbered[1])[site]["fn"]), *values)

    return jax.lax.map(at, (numbers, draws))


def _draws(model: Callable[..., Any], site: str, rows: Any, draws: Any, keys: jax.Array) -> jax.Array:
    return jax.lax.map(lambda each: _draw(trace_at(model, rows, each[1])[site]["fn"], each[0]), (keys, draws))


def _draw(fn: dist.Distribution, key: jax.Array) -> jax.Array:
    return jnp.asarray(Conditional.of(fn).distribution.sample(key))


def _latent_values(model: Callable[..., Any], rows: Rows) -> dict[str, Any]:
    trace = draw_once(model, rows)
    return {name: site["value"] for name, site in trace.items() if site["type"] == "sample" and not site["is_observed"]}
