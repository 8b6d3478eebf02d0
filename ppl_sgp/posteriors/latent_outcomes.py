"""Distributions of y by a likelihood of predictors that are normal at each draw: averaged over them by quadrature."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from ..likelihoods.likelihood import Likelihood
from .normal_rules import MOST_NODES, rule_for
from .outcomes import Outcomes
from .questions import Conditional, Question


class LatentOutcomes(Outcomes):
    """What a likelihood says of y at draws that each have normal predictors.

    Rows have ``latents`` with means (S, k, L) and roots (S, k, L, r) of the covariances of L = K + p predictors and
    parameters, and ``rows``, a :class:`~.outcomes.NewRows`.

    :param likelihood: the likelihood, with K predictors a row.
    :param num_parameters: its free parameters, p.
    """

    answers_at_once = MOST_NODES

    def __init__(self, likelihood: Likelihood, num_parameters: int) -> None:
        self.likelihood, self._num_parameters = likelihood, num_parameters

    def outcome(self, y: np.ndarray) -> np.ndarray:
        """The outcome's column."""
        return np.asarray(self.likelihood.outcome(y))

    def known_of(self, y: np.ndarray) -> np.ndarray | None:
        """All columns, where there are more than the outcome's."""
        return y if self.likelihood.num_columns > 1 else None

    def shape(self, rows: Any) -> tuple[int, ...]:
        """One outcome a row."""
        return (len(rows.rows.X),)

    def knows(self, fact: Callable[[dist.Distribution], bool], rows: Any) -> bool:
        """Whether a fact holds for the likelihood."""
        K, p = self.likelihood.num_latents, self._num_parameters
        answer: list[bool] = []
        given = None if rows.rows.given is None else rows.rows.given[0]

        def look() -> None:
            eta = jnp.zeros(() if K == 1 else (K,))
            answer.append(bool(fact(_conditional(self.likelihood, eta, jnp.zeros(p), given).distribution)))

        jax.eval_shape(look)
        return answer[0]

    def ask(self, question: Question, rows: Any, *values: Any) -> Any:
        """Answers of all draws, in float64."""
        latents = rows.latents
        root = latents.root
        widest = float(np.sqrt(np.max(np.sum(root**2, axis=-1), initial=0.0)))
        nodes, log_weights = rule_for(root.shape[-1], widest, self.likelihood.is_smooth)
        with jax.enable_x64(True):
            answers = _answers(
                question,
                self.likelihood,
                (latents.mean, root),
                rows.rows.given,
                nodes,
                log_weights,
                tuple(np.asarray(value) for value in values),
            )
            return jax.tree.map(lambda answer: np.asarray(answer, dtype=np.float64), answers)


def _conditional(likelihood: Likelihood, eta: Any, parameters: Any, given: Any) -> Conditional:
    fn = likelihood.distribution(eta, parameters, given)
    return Conditional(fn, lambda y: likelihood.log_prob(eta, y, parameters))


@functools.partial(jax.jit, static_argnums=0)
def _answers(
    question: Question, likelihood: Likelihood, latents: Any, given: Any, nodes: Any, log_weights: Any, values: Any
) -> Any:
    K = likelihood.num_latents

    def of_row(mean: jax.Array, root: jax.Array, given: Any, values: Any) -> Any:
        def at_node(node: jax.Array) -> Any:
            latent = mean + root @ node
            eta = latent[0] if K == 1 else latent[:K]
            return question.at(_conditional(likelihood, eta, latent[K:], given), *values)

        return question.join(jax.vmap(at_node)(nodes), log_weights)

    by_row = 0 if question.by_row else None
    rows = jax.vmap(of_row, in_axes=(0, 0, None if given is None else 0, by_row))
    return jax.lax.map(lambda each: rows(each[0], each[1], given, values), latents)


@jax.jit
def drawn_outcomes(
    likelihood: Likelihood, eta: jax.Array, parameters: jax.Array, given: Any, keys: jax.Array
) -> jax.Array:
    """y for predictors (s, k, K) and parameters (s, p), with a key each."""

    def draw(each: Any) -> jax.Array:
        eta, parameters, key = each
        eta = eta[:, 0] if likelihood.num_latents == 1 else eta
        return jnp.asarray(likelihood.distribution(eta, parameters, given).sample(key))

    return jax.lax.map(draw, (eta, parameters, keys))
