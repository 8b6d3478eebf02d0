"""Relevance vectors from minibatches of rows and of functions (Evans 2022, section 6.4.6)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.random import random_key
from ..bases.basis import Basis
from ..priors import DiagonalPrior
from . import quadruply_setup as setup
from ._quadruply import DELAYED, SUPPORT, QuadruplyStep, functions_of, held_out_density, posterior_of
from .batches import RowBatches, row_batches
from .driver import train
from .quadruply_step import Problem, Rates, State
from .result import StochasticFit

OWNER = "relevance_vectors"
#: Steps between looks at what is left; functions that are evaluated together.
LOOKED_AT, BLOCK = 100, 4096
#: Steps of the logarithm of the noise.
NOISE_RATE = 1e-2


@dataclasses.dataclass(frozen=True, repr=False)
class QuadruplyRelevanceVectors(StochasticFit):
    """What :func:`relevance_vectors` found.

    :ivar relevant: indices of the features kept, ascending, shape (k,). All other weights are zero.
    :ivar precisions: prior precisions of their weights, shape (k,).
    """

    relevant: np.ndarray
    precisions: np.ndarray


def relevance_vectors(
    key: jax.Array,
    basis: Basis,
    X: Any,
    y: Any = None,
    *,
    noise_scale: float | None = None,
    learn_noise: bool = True,
    prune: float = 1e-2,
    num_columns: int = 10,
    num_steps: int = 10_000,
    num_functions: int | None = None,
    batch_size: int | None = None,
    num_support: int | None = None,
    learning_rate: float | None = None,
    held_out: tuple[Any, Any] | None = None,
    check_every: int = 500,
    patience: int = 5,
    previous: QuadruplyRelevanceVectors | None = None,
    progress: bool = False,
) -> QuadruplyRelevanceVectors:
    """Sparse Bayesian regression for dictionaries and rows that are too many for statistics of size m.

    As :func:`~ppl_sgp.stochastic.quadruply`, with a prior precision for each weight, which goes, whenever a step
    touches it, part of the way to ``1/(μ² + Σ_rr)``, its best value given the other ones. Weights whose part of f has
    become negligible are pruned, and steps see the others only. Cost of a step as there; O(n̄ m) at the start. Where m²
    numbers fit in memory :func:`~ppl_sgp.fit_relevance_vectors` is exact, and better.

    :param key: a JAX random key.
    :param basis: usually a :class:`~ppl_sgp.CentredBasis`.
    :param X: inputs, and outcomes ``y`` of mean about zero, as ``quadruply`` takes them.
    :param noise_scale: standard deviation of the noise, or where it begins; default a third of the size of y.
    :param learn_noise: whether it is learned.
    :param prune: a weight is dropped when its prior deviation makes less than this share of the size of y.
    :param num_columns: dense columns K of the factor of the covariance.
    :param num_steps: steps to make, now; precisions begin after a tenth of them. For all else see ``quadruply``.
    :raises ValueError: as ``quadruply``, and for outcomes that are all zero.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(-10, 10, 500)[:, None]
        >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * np.random.default_rng(0).normal(size=500)
        >>> basis = sgp.CentredBasis(X[::10], sgp.SquaredExponential(2.0), bias=False)
        >>> fit = sgp.stochastic.relevance_vectors(
        ...     jax.random.key(0), basis, X, y, num_columns=0, num_steps=600)
        >>> len(fit.relevant) < 40
        True
    """
    if not isinstance(basis, Basis):
        raise ValueError(f"{OWNER}: `basis` must be a basis; got {type(basis).__name__}.")
    keys, m = jax.random.split(random_key(key, OWNER), 4), basis.num_features
    functions = functions_of(num_functions, m, OWNER)
    K = checks.whole_number("num_columns", num_columns, 0, OWNER)
    support = SUPPORT if num_support is None else checks.whole_number("num_support", num_support, 1, OWNER)
    checks.positive("prune", prune, OWNER)
    batches = row_batches(X, y, batch_size, input_dim=basis.input_dim, owner=OWNER)
    size = float(np.sqrt(np.mean(batches.some(keys[0], 10_000).y ** 2)))
    if size == 0:
        raise ValueError(f"{OWNER}: `y` is zero wherever it was looked at: there is nothing to explain.")
    if noise_scale is None:
        noise_scale = size / 3
    checks.positive("noise_scale", noise_scale, OWNER)
    unit = _units(keys[0], basis, batches, support, size)
    learned = ("log_noise",) if learn_noise else ()
    problem, hyper = setup.problem_of(
        keys[0], basis, batches, None, DiagonalPrior(unit), None, float(noise_scale), support, learned, relevance=True
    )
    given = learning_rate is not None
    if learning_rate is None:
        learning_rate = setup.learning_rate(keys[1], problem, batches, functions)
    checks.positive("learning_rate", learning_rate, OWNER)
    rates = Rates(learning_rate, NOISE_RATE, DELAYED * num_steps if previous is None else 0)

    def rate(active: np.ndarray) -> float:
        return learning_rate if given else setup.learning_rate(keys[1], problem, batches, functions, active)

    training = train(
        PruningStep(problem, functions, rates, -2 * np.log(prune), rate),
        setup.first_state(problem, hyper, min(K, m)),
        batches,
        keys[2],
        num_steps,
        held_out=held_out_density(problem, held_out),
        check_every=check_every,
        patience=patience,
        previous=None if previous is None else previous.training,
        progress=progress,
        owner=OWNER,
    )
    log_precision = np.asarray(training.state.log_precision, np.float64)
    relevant = np.flatnonzero(log_precision < -2 * np.log(prune))
    posterior = posterior_of(problem, training.state, training.estimates, training.held_out, training.reason)
    kept = np.isin(np.arange(m), relevant)
    posterior = dataclasses.replace(
        posterior,
        loc=posterior.loc * kept,
        diagonal=posterior.diagonal * kept,
        columns=posterior.columns * kept[:, None],
    )
    options = {"learning_rate": learning_rate, "num_functions": functions, "batch_size": batches.batch_size}
    precisions = np.exp(log_precision - 2 * np.asarray(problem.log_unit, np.float64))[relevant]
    return QuadruplyRelevanceVectors(posterior, training, options, relevant, precisions)


class PruningStep(QuadruplyStep):
    """Steps that see what is left: functions of a log precision, in units, below a number.

    The fewer functions are left, the less they move f together, and the larger steps may be.

    :param rate: the learning rate for functions that are left.
    """

    def __init__(
        self, problem: Problem, num_functions: int, rates: Rates, most: float, rate: Callable[[np.ndarray], float]
    ) -> None:
        super().__init__(problem, num_functions, rates)
        self._most, self._rate, self._calls = most, rate, 0
        self._active = np.arange(len(problem.log_unit))

    def prepared(self, state: State) -> tuple[State, np.ndarray | None]:
        """The state without what has become negligible, and what is left, looked at now and then. O(n̄ m) then."""
        self._calls += 1
        if self._calls % LOOKED_AT != 1:
            return state, self._active
        left = np.asarray(state.log_precision) < self._most
        if not left.any():
            left[np.argmin(np.asarray(state.log_precision))] = True
        active = np.flatnonzero(left)
        if len(active) < len(self._active):
            state = _pruned(self._problem, state, left)
            self._rates = self._rates._replace(weights=np.asarray(self._rate(active), self._dtype))
        self._active = active
        return state, active


def _pruned(problem: Problem, state: State, left: np.ndarray) -> State:
    """Weights that are not left set to zero, and the products of the support rows computed anew."""
    state = _emptied(state, left.astype(state.mu.dtype))
    of_mu, of_columns = jnp.zeros_like(state.of_mu), jnp.zeros_like(state.of_columns)
    for chosen in _blocks(np.flatnonzero(left), len(left)):
        more = _products(problem, state, chosen)
        of_mu, of_columns = of_mu + more[0], of_columns + more[1]
    return state._replace(of_mu=of_mu, of_columns=of_columns)


@jax.jit
def _emptied(state: State, left: jax.Array) -> State:
    return state._replace(
        mu=state.mu * left,
        average=state.average * left,
        columns=state.columns * left[:, None],
        squares=jax.tree.map(jnp.zeros_like, state.squares),  # steps begin anew
    )


@jax.jit
def _products(problem: Problem, state: State, chosen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Support features of chosen functions with means and dense columns."""
    mu, log_diagonal, columns, log_unit = (
        jnp.take(part, chosen, axis=0, mode="clip")
        for part in (state.mu, state.log_diagonal, state.columns, problem.log_unit)
    )
    unit = jnp.exp(log_unit) * (chosen < len(problem.log_unit)).astype(mu.dtype)
    Phi = problem.basis.some_features(problem.support_X, chosen) * unit[None, :]
    on = (chosen[:, None] == jnp.arange(columns.shape[1], dtype=chosen.dtype)[None, :]).astype(mu.dtype)
    return Phi @ mu, Phi @ (columns + on * jnp.exp(log_diagonal)[:, None])


def _blocks(numbers: np.ndarray, count: int) -> Iterator[jax.Array]:
    """Numbers of functions in blocks of one size, filled up with the number ``count``, of no function."""
    size = min(BLOCK, count)
    for start in range(0, len(numbers), size):
        part = numbers[start : start + size]
        yield jnp.asarray(np.append(part, np.full(size - len(part), count)), jnp.int32)


@jax.jit
def _mean_squares(basis: Basis, X: jax.Array, chosen: jax.Array) -> jax.Array:
    return jnp.mean(basis.some_features(X, chosen) ** 2, axis=0)


def _units(key: jax.Array, basis: Basis, batches: RowBatches, count: int, size: float) -> np.ndarray:
    """Deviations of weights with which each feature alone would be of the size of y, on some rows."""
    X = jnp.asarray(batches.some(key, count).X)
    m = basis.num_features
    blocks = _blocks(np.arange(m), m)
    square = np.concatenate([np.asarray(_mean_squares(basis, X, chosen)) for chosen in blocks])[:m]
    # A feature that none of these rows sees gets the unit of the others.
    typical = np.median(square[square > 0]) if (square > 0).any() else 1.0
    return size / np.sqrt(np.where(square > 1e-6 * typical, square, typical))
