"""Quadruply stochastic Gaussian processes: minibatches of rows and of functions (Evans 2022, chapter 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.random import random_key
from ..bases.basis import Basis
from ..bases.centred import CentredBasis
from ..likelihoods.likelihood import Likelihood
from ..priors import DiagonalPrior, WeightPrior
from . import quadruply_setup as setup
from .batches import Batch, row_batches
from .driver import train
from .indices import choose
from .quadruply_step import Problem, Rates, State, step
from .result import StochasticFit, VariationalWeights

OWNER = setup.OWNER
#: Functions that a step has, and rows of the control variate.
FUNCTIONS, SUPPORT = 2000, 500
#: Steps of hyperparameters, in logarithms, and the share of all steps before they begin.
HYPER_RATE, DELAYED = 3e-3, 0.1


class QuadruplyFit(StochasticFit):
    """What :func:`quadruply` found."""


def quadruply(
    key: jax.Array,
    basis: Any,
    X: Any,
    y: Any = None,
    likelihood: Likelihood | None = None,
    *,
    prior: WeightPrior | None = None,
    kernel: Any = None,
    noise_scale: float | None = None,
    num_columns: int = 0,
    empirical_bayes: bool = False,
    num_steps: int = 10_000,
    num_functions: int | None = None,
    batch_size: int | None = None,
    num_support: int | None = None,
    learning_rate: float | None = None,
    replace: bool = False,
    held_out: tuple[Any, Any] | None = None,
    check_every: int = 500,
    patience: int = 5,
    previous: QuadruplyFit | None = None,
    progress: bool = False,
) -> QuadruplyFit:
    """A variational posterior of very many weights from very many rows, by steps that see some of both.

    A step costs O((b + n̄) m̃ (d + K)), whatever the numbers of rows n and of functions m. Estimates of the bound, and
    their gradients, are unbiased for Gaussian noise (theorems 6.1 and 6.2 of Evans 2022, with one sum where one is
    enough, and control variates on n̄ support rows, eq 6.3). For other likelihoods they are of a lower bound of the
    bound, which comes near it as m̃ comes near m (theorem 6.3, corrected; the printed one is no bound). Updates are
    sparse: AdaGrad on the weights that a step touches. Deviations of weights without a dense column are in closed form
    with Gaussian noise (proposition 6.1).

    :param key: a JAX random key.
    :param basis: m features; or m itself, even, for random Fourier features. Bases that compute some of their features
        alone are :class:`~ppl_sgp.FourierBasis` and :class:`~ppl_sgp.CentredBasis`; of others all are computed, O(m).
    :param X: inputs, shape (n, d): an array, a memory map, an array of Dask; or chunks ``(X, y)`` that can be read
        again, such as :func:`~ppl_sgp.table_chunks`. See :func:`~ppl_sgp.stochastic.row_batches`.
    :param y: outcomes, shape (n,), of mean about zero with Gaussian noise; ``None`` for chunks.
    :param likelihood: one of ``sgp.likelihoods`` with one predictor a row, log-concave; default Gaussian noise. Its
        parameters are learned as a point.
    :param prior: of the weights, independent ones of mean zero.
    :param kernel: instead of a prior the kernel whose ``basis.weight_prior`` it is; or a class, whose hyperparameters
        an exact GP finds on 1,000 rows (default, with Gaussian noise: the squared exponential). Without either, a
        ``CentredBasis`` without bias has the precision ``S = k(Z, Z)`` of its kernel and centres Z: with Z = X the
        posterior mean is that of the exact GP.
    :param noise_scale: standard deviation of the noise; by default found by the exact GP.
    :param num_columns: dense columns K of the factor of the covariance; 0 is the mean field, m any covariance.
    :param empirical_bayes: learn the noise, a factor of all prior deviations and, of a kernel, its hyperparameters,
        by the same estimates; for independent weights. Begins after a tenth of the steps.
    :param num_steps: steps to make, now.
    :param num_functions: m̃, functions in each of the two sets of a step, default 2,000.
    :param batch_size: b, rows of a step, default 500.
    :param num_support: n̄, rows of the control variate, default 500; 0 for none.
    :param learning_rate: of AdaGrad, in prior deviations of each weight; by default 0.2, or less where that could move
        f by more than its size at once.
    :param replace: draw rows with replacement.
    :param held_out: inputs and outcomes of rows that are not in ``X``: training stops where their density falls, and
        the best state is returned. O(m) each of them at each check.
    :param check_every: steps between checks.
    :param patience: checks without a better density before training stops.
    :param previous: a fit to go on from; all else as for that fit.
    :param progress: show a progress bar, with the running mean of the bound. Interrupting returns what was reached.
    :raises ValueError: for batches larger than n, or sets larger than m; values that are not finite, or outside the
        support; a likelihood without a bound; other priors.
    :raises DivergenceError: where estimates are no longer finite, or fall without end.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
        >>> y = np.sin(6 * X[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=2000)
        >>> fit = sgp.stochastic.quadruply(
        ...     jax.random.key(0), 200, X, y, kernel=sgp.SquaredExponential(0.3), noise_scale=0.1,
        ...     num_functions=100, batch_size=100, num_steps=1500)
        >>> bool(abs(fit.predict([[0.5]]).mean[0] - np.sin(3)) < 0.1)
        True
    """
    keys = jax.random.split(random_key(key, OWNER), 5)
    size = _size_of(basis)
    functions = functions_of(num_functions, size, OWNER)
    setup.checked_likelihood(likelihood, functions, size)
    K = checks.whole_number("num_columns", num_columns, 0, OWNER)
    if K > size:
        raise ValueError(f"{OWNER}: `num_columns` is {K}, and there are only {size} weights.")
    support = SUPPORT if num_support is None else checks.whole_number("num_support", num_support, 0, OWNER)
    input_dim = basis.input_dim if isinstance(basis, Basis) else None
    batches = row_batches(
        X,
        y,
        batch_size,
        likelihood=likelihood,
        replace=replace,
        input_dim=input_dim,
        owner=OWNER,
    )
    basis, prior, kernel, noise_scale = setup.model_of(
        keys[0], basis, batches, likelihood, prior, kernel, noise_scale, progress
    )
    learned = _learned(empirical_bayes, basis, likelihood, prior, kernel)
    problem, hyper = setup.problem_of(keys[1], basis, batches, likelihood, prior, kernel, noise_scale, support, learned)
    if learning_rate is None:
        learning_rate = setup.learning_rate(keys[2], problem, batches, functions)
    checks.positive("learning_rate", learning_rate, OWNER)
    made = 0 if previous is None else previous.training.steps
    rates = Rates(learning_rate, HYPER_RATE, DELAYED * num_steps if previous is None else 0)
    training = train(
        QuadruplyStep(problem, functions, rates),
        setup.first_state(problem, hyper, K),
        batches,
        keys[3],
        num_steps,
        held_out=held_out_density(problem, held_out),
        check_every=check_every,
        patience=patience,
        previous=None if previous is None else previous.training,
        progress=progress,
        owner=OWNER,
    )
    options = {"learning_rate": learning_rate, "num_functions": functions, "batch_size": batches.batch_size}
    posterior = posterior_of(problem, training.state, training.running_mean(1), training.held_out, training.reason)
    return QuadruplyFit(posterior, training, options | {"steps_before": made})


def _size_of(basis: Any) -> int:
    if isinstance(basis, Basis):
        return basis.num_features
    size = checks.whole_number("basis", basis, 2, OWNER)
    if size % 2:
        raise ValueError(f"{OWNER}: Fourier features come in pairs, so `basis` must be even; got {size}.")
    return size


def functions_of(num_functions: int | None, size: int, owner: str) -> int:
    """How many functions each set of a step has, of so many."""
    if num_functions is None:
        return min(FUNCTIONS, size)
    functions = checks.whole_number("num_functions", num_functions, 1, owner)
    if functions > size:
        raise ValueError(
            f"{owner}: `num_functions` is {functions}, and the basis has only {size} features. Pass at most that many."
        )
    return functions


def _learned(
    empirical_bayes: bool, basis: Basis, likelihood: Likelihood | None, prior: WeightPrior | None, kernel: Any
) -> tuple[str, ...]:
    """Names of the hyperparameters that are learned."""
    learned = [] if likelihood is None else ["parameters"]
    if not empirical_bayes:
        return tuple(learned)
    if prior is None:
        raise ValueError(
            f"{OWNER}: `empirical_bayes` is for independent weights, and `S = k(Z, Z)` has a determinant of O(m³). "
            "Leave it out, or pass a `prior`."
        )
    if likelihood is None:
        learned.append("log_noise")
    return (*learned, "log_prior" if kernel is None else "log_kernel")


class QuadruplyStep:
    """Steps of :func:`~ppl_sgp.stochastic.train`: functions are chosen, and what a step computes is compiled once.

    :param problem: what stays.
    :param num_functions: m̃.
    :param rates: step sizes.
    """

    def __init__(self, problem: Problem, num_functions: int, rates: Rates) -> None:
        self._problem, self._num_functions = problem, num_functions
        self._dtype = np.dtype(problem.log_unit.dtype)
        weights, hyper = (np.asarray(rate, self._dtype) for rate in rates[:2])
        self._rates = Rates(weights, hyper, np.asarray(rates.delay, np.int32))

    def __call__(self, state: State, key: jax.Array, batch: Batch) -> tuple[State, jax.Array]:
        state, among = self.prepared(state)
        sets = choose(key, len(self._problem.log_unit), self._num_functions, self._dtype, among)
        scale = np.asarray(batch.scale, self._dtype)
        return step(self._problem, state, batch.X, batch.y, scale, sets, self._rates)

    def prepared(self, state: State) -> tuple[State, np.ndarray | None]:
        """The state that the step starts from, and the functions to choose from; ``None`` for all."""
        return state, None


def held_out_density(problem: Problem, held_out: tuple[Any, Any] | None) -> Callable[[State], float] | None:
    """Mean log predictive density of rows, a function of the state."""
    if held_out is None:
        return None
    X, y = held_out

    def density(state: State) -> float:
        posterior = posterior_of(problem, state, np.zeros(0), np.zeros((0, 2)), "")
        return float(np.mean(posterior.predict(X).log_density(np.asarray(y))))

    return density


def posterior_of(
    problem: Problem, state: State, bounds: np.ndarray, held_out: np.ndarray, reason: str
) -> VariationalWeights:
    """The weights in their own units, with the hyperparameters at their estimates."""
    hyper = state.hyper.value
    log_unit = np.asarray(problem.log_unit, np.float64)
    unit, prior = np.exp(log_unit), None
    if not isinstance(problem.basis, CentredBasis) or not hasattr(problem.precision, "centres"):
        log_scale = log_unit + float(hyper["log_prior"])
        if problem.kernel is not None:
            kernel = jax.tree.map(jnp.exp, hyper["log_kernel"])
            log_scale = 0.5 * np.asarray(problem.basis.weight_prior(kernel).log_variance, np.float64)
        if problem.relevance:
            log_scale = log_scale - 0.5 * np.asarray(state.log_precision, np.float64)
        prior = DiagonalPrior.from_log_scale(log_scale)
    return VariationalWeights(
        basis=jax.device_get(problem.basis),
        loc=np.asarray(state.average, np.float64) * unit,
        diagonal=np.exp(np.asarray(state.log_diagonal, np.float64)) * unit,
        columns=np.asarray(state.columns, np.float64) * unit[:, None],
        prior=prior,
        noise_scale=None if problem.likelihood is not None else float(np.exp(float(hyper["log_noise"]))),
        likelihood=problem.likelihood,
        parameters=np.asarray(hyper["parameters"], np.float64),
        bound_trace=bounds,
        held_out_trace=held_out,
        bound_is_elbo=prior is not None or len(log_unit) <= setup.MOST_FOR_DETERMINANT,
        reason=reason,
    )
