"""A step of quadruply stochastic inference: random rows and functions, sparse updates, O(1) in n and m."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._internal.batching import full_precision
from .._internal.pytree import pytree_dataclass, static
from ..bases.basis import Basis
from ..kernels import Kernel
from ..likelihoods.likelihood import Likelihood
from . import estimators
from .estimators import Sets
from .precisions import DiagonalPrecision, Given, KernelPrecision
from .updates import Adam, adagrad, put

#: How much of the way to the fixed point of a prior precision a step goes, and how far its logarithm may be from zero.
RELEVANCE_RATE, MOST_LOG_PRECISION = 0.1, 25.0
#: Weight of the newest mean in the running average of each.
AVERAGED = 0.05


@pytree_dataclass
class Problem:
    """What stays as it is.

    :ivar basis: m features.
    :ivar log_unit: logarithms of units of the weights, (m,): the state is in these, so that steps of one size suit all.
    :ivar precision: prior.
    :ivar support_X: rows of the control variate, (n̄, d), with ``support_y`` (n̄,).
    :ivar likelihood: ``None`` for Gaussian noise.
    :ivar kernel: whose hyperparameters give the prior variances, if those are learned; else ``None``.
    :ivar log_det: log|S| in these units where it is known and no function of the state.
    :ivar num_rows: n.
    :ivar learned: names of the hyperparameters that are learned.
    :ivar relevance: whether each weight has a prior precision of its own, which is learned.
    """

    basis: Basis
    log_unit: Any
    precision: DiagonalPrecision | KernelPrecision
    support_X: Any
    support_y: Any
    likelihood: Likelihood | None
    parameter_prior: Any
    kernel: Kernel | None
    log_det: Any
    num_rows: int = static()
    learned: tuple[str, ...] = static(default=())
    relevance: bool = static(default=False)


class Touched(NamedTuple):
    """The variational parameters of the union, which a step changes."""

    mu: jax.Array
    log_diagonal: jax.Array
    columns: jax.Array


class State(NamedTuple):
    """What steps change; in units of the weights.

    :ivar mu: means (m,); log_diagonal (m,) and columns (m, K) of the factor.
    :ivar average: of each mean over the last steps that touched it, (m,): less noisy than the last one.
    :ivar squares: sums of squared gradients of these three.
    :ivar mean_square: estimates of ‖φ_r‖² in these units, (m,), with ``seen``, the rows that they are of, (m,).
    :ivar log_precision: prior precisions relative to the units, (m,); (0,) unless they are learned one by one.
    :ivar of_mu: products of the support features with μ, (n̄,), and with the dense columns, (n̄, K).
    :ivar nystrom_of_mu: those of the features of the prior's control variate, (r,) and (r, K).
    :ivar hyper: ``log_noise``, ``log_prior`` (of what multiplies all prior deviations), ``log_kernel`` and the
        ``parameters`` of the likelihood.
    :ivar time: steps made.
    """

    mu: jax.Array
    log_diagonal: jax.Array
    columns: jax.Array
    average: jax.Array
    squares: Touched
    mean_square: jax.Array
    seen: jax.Array
    log_precision: jax.Array
    of_mu: jax.Array
    of_columns: jax.Array
    nystrom_of_mu: jax.Array
    nystrom_of_columns: jax.Array
    hyper: Adam
    time: jax.Array


class Rates(NamedTuple):
    """Step sizes: of AdaGrad for weights, of Adam for hyperparameters, and steps before the latter begin."""

    weights: Any
    hyper: Any
    delay: Any


@functools.partial(jax.jit, donate_argnums=1)
def step(
    problem: Problem, state: State, X: jax.Array, y: jax.Array, scale: jax.Array, sets: Sets, rates: Rates
) -> tuple[State, jax.Array]:
    """The next state, and the estimate of the bound, in nats, at this one.

    O((b + n̄) m̃ (d + K)) of time for b rows, n̄ support rows and m̃ functions; with a prior precision that is a matrix
    O(m̃²(d + K)) more.

    :param problem: what stays.
    :param state: consumed.
    :param X: inputs of the batch, (b, d), with outcomes ``y``.
    :param scale: n/b.
    :param sets: the functions.
    """
    with full_precision():
        return _step(problem, state, X, y, scale, sets, rates)


def _step(
    problem: Problem, state: State, X: jax.Array, y: jax.Array, scale: jax.Array, sets: Sets, rates: Rates
) -> tuple[State, jax.Array]:
    union, K = sets.union, state.columns.shape[1]

    def at_union(array: jax.Array) -> jax.Array:
        return jnp.take(array, union, axis=0, mode="clip")

    log_unit = at_union(problem.log_unit)
    unit = jnp.exp(log_unit)
    Phi = problem.basis.some_features(X, union) * unit[None, :]
    support = problem.basis.some_features(problem.support_X, union) * unit[None, :]
    nystrom = problem.precision.features(union, unit)
    below = (union[:, None] > jnp.arange(K, dtype=union.dtype)[None, :]).astype(unit.dtype)
    own_precision = at_union(state.log_precision) if problem.relevance else jnp.zeros_like(unit)
    known = Given(union, unit, unit, nystrom, state.nystrom_of_mu, state.nystrom_of_columns)

    def given(hyper: dict[str, Any]) -> Given:
        log_precision = own_precision - 2 * hyper["log_prior"]
        if problem.kernel is not None:
            kernel = jax.tree.map(jnp.exp, hyper["log_kernel"])
            log_precision += 2 * log_unit - problem.basis.some_log_variances(kernel, union).astype(unit.dtype)
        return known._replace(precision=jnp.exp(log_precision))

    def negative_bound(q: Touched, hyper: dict[str, Any]) -> jax.Array:
        diagonal, columns = jnp.exp(q.log_diagonal), q.columns * below
        divergence = problem.precision.terms(q.mu, diagonal, columns, sets, given(hyper)) - problem.log_det
        divergence -= sets.total(2 * q.log_diagonal + 1)
        if problem.likelihood is not None:
            mean, deviation = estimators.predictors(Phi, q.mu, diagonal, columns, sets)
            return 0.5 * divergence + _loss_of_rows(problem, mean, deviation, y, scale, hyper["parameters"])
        error = estimators.squared_error(Phi, y, q.mu, sets, scale)
        error += estimators.squared_spread(Phi, diagonal, columns, sets, scale)
        if len(problem.support_X):
            of_support = problem.num_rows / len(problem.support_X)
            error += estimators.control(support, q.mu, sets, state.of_mu, of_support, problem.support_y)
            if K:
                C = sets.factor(diagonal, columns)
                error += estimators.control(support, C, sets, state.of_columns, of_support)
        log_noise = hyper["log_noise"]
        constant = problem.num_rows * (2 * log_noise + np.log(2 * np.pi))
        return 0.5 * (divergence + constant + error * jnp.exp(-2 * log_noise))

    touched = Touched(at_union(state.mu), at_union(state.log_diagonal), at_union(state.columns))
    hyper = state.hyper.value
    loss, (gradient, of_hyper) = jax.value_and_grad(negative_bound, argnums=(0, 1))(touched, hyper)
    # What pulls a weight towards zero by itself is heeded where the step ends: it may be as strong as it likes.
    pull = 0.5 * sets.share * (sets.first + sets.second) * problem.precision.pull(given(hyper))
    gradient = gradient._replace(mu=gradient.mu - pull * touched.mu)
    squares, sizes = adagrad(gradient, jax.tree.map(at_union, state.squares), rates.weights)
    new: Touched = jax.tree.map(lambda part, size, g: part - size * g, touched, sizes, gradient)
    new = new._replace(mu=new.mu / (1 + sizes.mu * pull))
    mean_square, seen = at_union(state.mean_square), at_union(state.seen)
    if problem.likelihood is None:
        # Weights without a dense column have their best deviation in closed form (proposition 6.1 of Evans 2022).
        at_first = problem.num_rows / max(1, len(problem.support_X)) * jnp.sum(support**2, axis=0)
        mean_square = jnp.where(seen > 0, mean_square, at_first)
        seen = jnp.maximum(seen, len(problem.support_X))
        weight = len(X) / (seen + len(X))
        mean_square += weight * (scale * jnp.sum(Phi**2, axis=0) - mean_square)
        seen += len(X)
        precision = mean_square * jnp.exp(-2 * hyper["log_noise"]) + problem.precision.diagonal(given(hyper))
        new = new._replace(log_diagonal=jnp.where(union >= K, -0.5 * jnp.log(precision), new.log_diagonal))
    change, average = new.mu - touched.mu, at_union(state.average)
    average = jnp.where(average == 0, new.mu, average + AVERAGED * (new.mu - average))
    before, after = (sets.factor(jnp.exp(q.log_diagonal), q.columns * below) for q in (touched, new))
    active = state.time >= rates.delay
    learned = {
        name: jax.tree.map(lambda g, on=float(name in problem.learned): g * on, g) for name, g in of_hyper.items()
    }
    log_precision = state.log_precision
    if problem.relevance:
        moved = _relevance(own_precision, average, jnp.exp(2 * new.log_diagonal) + jnp.sum(new.columns**2, axis=1))
        log_precision = put(log_precision, union, jnp.where(active, moved, own_precision))
    return State(
        mu=put(state.mu, union, new.mu),
        log_diagonal=put(state.log_diagonal, union, new.log_diagonal),
        columns=put(state.columns, union, new.columns * below),
        average=put(state.average, union, average),
        squares=jax.tree.map(lambda array, rows: put(array, union, rows), state.squares, squares),
        mean_square=put(state.mean_square, union, mean_square),
        seen=put(state.seen, union, seen),
        log_precision=log_precision,
        # Proposition 6.3 of Evans (2022), over the union, each function once.
        of_mu=state.of_mu + support @ change,
        of_columns=state.of_columns + support @ (after - before),
        nystrom_of_mu=state.nystrom_of_mu + nystrom @ change,
        nystrom_of_columns=state.nystrom_of_columns + nystrom @ (after - before),
        hyper=state.hyper.moved(learned, rates.hyper, active),
        time=state.time + 1,
    ), -loss


def _loss_of_rows(
    problem: Problem, mean: jax.Array, deviation: jax.Array, y: jax.Array, scale: jax.Array, parameters: jax.Array
) -> jax.Array:
    """Minus the expected log likelihood, or its bound, and minus the log prior of the parameters of the likelihood."""
    assert problem.likelihood is not None
    rows = estimators.expected_log_prob(problem.likelihood, mean, deviation, y, parameters)
    loc, width = problem.parameter_prior
    return 0.5 * jnp.sum(((parameters - loc) / width) ** 2) - scale * jnp.sum(rows)


def _relevance(log_precision: jax.Array, mu: jax.Array, variance: jax.Array) -> jax.Array:
    """Part of the way to MacKay's fixed point ``s = (1 − sΣ_rr)/μ_r²``, in variances: what is not needed fades out."""
    determined = jnp.clip(1 - jnp.exp(log_precision) * variance, 1e-3, 1.0)
    prior_variance = (1 - RELEVANCE_RATE) * jnp.exp(-log_precision) + RELEVANCE_RATE * mu**2 / determined
    return jnp.clip(-jnp.log(prior_variance), -MOST_LOG_PRECISION, MOST_LOG_PRECISION)
