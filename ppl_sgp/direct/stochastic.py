"""A mixture's exact ELBO by stochastic gradients: unbiased where the deterministic objective is a bound."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from scipy.special import log_softmax, logsumexp
from tqdm.auto import tqdm

from .._internal import checks
from .._internal.random import random_key
from .elbo import Variational, through_softmax
from .maximise import INTERRUPTED
from .mixture import expected_terms
from .problem import Problem
from .result import DiscreteFit
from .sampling import draw_codes

#: Draws for the estimate of the ELBO at the end, as a multiple of those of a step.
FINAL_DRAWS = 10


def refine(
    statistics: Any,
    prior: Any,
    result: DiscreteFit,
    key: jax.Array,
    *,
    noise_scale: Any,
    num_steps: int = 1000,
    num_samples: int = 100,
    step_size: float = 0.01,
    progress: bool = False,
) -> DiscreteFit:
    """Improve a mixture found by :func:`~ppl_sgp.direct.fit` on its exact ELBO, by unbiased stochastic gradients.

    All of the ELBO has exact gradients but the entropy, whose gradient is estimated from draws w of the mixture as
    ``−mean[(log q(w) − c) ∇ log q(w)]`` (Evans 2022, section 7.4.4: eq 7.27 has c = −1; the value of the surrogate
    given there is not the entropy's). Here c is the mean of log q over the other draws, which keeps the gradient
    unbiased and takes most of its variance away. Adam, with a step that falls linearly to zero; O(R t b) a step for t
    draws, besides the O(R(b m̄ + b²)) of the rest.

    :param statistics: those of the fit.
    :param prior: that of the fit; of a Gaussian one the levels, and the statistics that go with them, from
        :func:`~ppl_sgp.direct.place_levels`.
    :param result: a mixture of at least two components.
    :param key: a JAX random key.
    :param noise_scale: that of the fit.
    :param num_steps: steps of Adam.
    :param num_samples: draws t a step, at least two.
    :param step_size: of Adam, at the start, in logits.
    :param progress: show a progress bar. Interrupting returns what was reached.
    :return: a result whose ``elbo`` is an estimate of the ELBO itself, with ``elbo_standard_error``.
    :raises ValueError: for a result with one component, whose ELBO is exact already, or of other weights.

    .. doctest::

        >>> import jax, numpy as np, numpyro.distributions as dist, ppl_sgp as sgp
        >>> X = np.random.default_rng(0).normal(size=(20, 2)) @ [[1.0, 0.9], [0.0, 0.1]]
        >>> stats = sgp.sufficient_statistics(sgp.LinearBasis(2), X, X.sum(axis=1))
        >>> prior = sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=7)
        >>> result = sgp.direct.fit(stats, prior, noise_scale=0.5, num_mixtures=2)
        >>> better = sgp.direct.refine(stats, prior, result, jax.random.key(0), noise_scale=0.5, num_steps=100)
        >>> better.elbo > result.elbo - 3 * better.elbo_standard_error
        True
    """
    if not isinstance(result, DiscreteFit) or len(result.mixture_weights) < 2:
        raise ValueError("refine needs a result of direct.fit with `num_mixtures` of 2 or more; others are exact.")
    checks.whole_number("num_samples", num_samples, 2, "refine")
    checks.whole_number("num_steps", num_steps, 1, "refine")
    checks.positive("step_size", step_size, "refine")
    problem = Problem.of(statistics, prior, noise_scale)
    tiny = np.finfo(np.float64).tiny
    log_weights, log_noise = (
        np.log(np.maximum(part, tiny)) for part in (result.mixture_weights, result.noise_probabilities)
    )
    q = Variational(log_weights, result.log_probabilities, log_noise)
    if problem.prior.levels.shape != result.levels.shape or len(problem.noise_scales) != len(result.noise_scales):
        raise ValueError(
            "refine: `statistics`, `prior` and `noise_scale` must be those of the fit; their sizes differ."
        )
    optimiser = numpyro.optim.Adam(lambda i: step_size * (1 - i / num_steps))
    state = optimiser.init((jnp.asarray(q.log_weights), jnp.asarray(q.log_probs)))
    update = jax.jit(optimiser.update)
    keys, trace, reason = (
        jax.random.split(random_key(key, "refine"), num_steps + 1),
        [],
        "the given number of steps was made",
    )
    try:
        for i in tqdm(range(num_steps), disable=not progress, desc="ELBO (sampled)", unit="it"):
            value, of_weights, of_probs, _ = expected_terms(problem, q)
            entropy, _, slopes = sampled_entropy(q, keys[i], num_samples)
            trace.append(value + entropy)
            gradient = (
                through_softmax(q.log_weights, of_weights) + slopes[0],
                through_softmax(q.log_probs, of_probs) + slopes[1],
            )
            state = update(tuple(-jnp.asarray(part) for part in gradient), state)
            weights, logits = optimiser.get_params(state)
            q = _normalised(problem, weights, logits, q.log_noise)
    except KeyboardInterrupt:
        reason = INTERRUPTED
    entropy, error, _ = sampled_entropy(q, keys[-1], FINAL_DRAWS * num_samples)
    return dataclasses.replace(
        result,
        mixture_weights=np.exp(q.log_weights),
        log_probabilities=q.log_probs,
        noise_probabilities=np.exp(q.log_noise),
        elbo_trace=np.array([*trace, expected_terms(problem, q)[0] + entropy]),
        elbo_standard_error=error,
        converged=False,
        reason=reason,
    )


def _normalised(problem: Problem, weights: jax.Array, logits: jax.Array, log_noise: np.ndarray) -> Variational:
    """The distribution with these logits, the noise at its optimum given the weights."""
    log_weights = log_softmax(np.asarray(weights, dtype=np.float64))
    log_probs = log_softmax(np.asarray(logits, dtype=np.float64), axis=-1)
    if len(log_noise) > 1:
        terms = expected_terms(problem, Variational(log_weights, log_probs, log_noise))[3] + log_noise
        log_noise = log_softmax(terms)
    return Variational(log_weights, log_probs, log_noise)


def sampled_entropy(
    q: Variational, key: jax.Array, num_samples: int
) -> tuple[float, float, tuple[np.ndarray, np.ndarray]]:
    """Estimates of the entropy, of its standard error, and of its gradients in logits of weights and components.

    O(R t b) time and memory for t draws, and O(R b m̄).
    """
    codes = draw_codes(key, np.exp(q.log_weights), q.log_probs, num_samples)
    b, num_levels = q.log_probs.shape[1:]
    flat = np.arange(b) * num_levels + codes
    each = q.log_weights[:, None] + np.stack([log_probs.ravel()[flat].sum(axis=1) for log_probs in q.log_probs])
    log_density = logsumexp(each, axis=0)
    # Less the mean of the others, the baseline: what is left of log q(w) − mean, times t/(t − 1).
    influence = -(log_density - log_density.mean()) / (num_samples - 1)
    shares = influence * np.exp(each - log_density)
    of_weights = shares.sum(axis=1) - np.exp(q.log_weights) * influence.sum()
    of_probs = -np.exp(q.log_probs) * shares.sum(axis=1)[:, None, None]
    for k, share in enumerate(shares):
        counts = np.bincount(flat.ravel(), np.repeat(share, b), minlength=b * num_levels)
        of_probs[k] += counts.reshape(b, num_levels)
    error = float(log_density.std(ddof=1) / num_samples**0.5)
    return -float(log_density.mean()), error, (of_weights, of_probs)
