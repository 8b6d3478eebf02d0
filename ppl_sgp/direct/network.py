"""Bayesian networks with quadratic activations and discrete weights, on their exact evidence lower bound."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from tqdm.auto import tqdm

from .._internal import checks
from .._internal.random import random_key
from ..bases.polynomial import PolynomialBasis
from ..statistics.from_data import sufficient_statistics
from ..statistics.statistics import SufficientStatistics
from .maximise import INTERRUPTED, Run
from .network_objective import NetworkObjective
from .network_polynomial import NetworkPolynomial
from .network_result import DiscreteNetwork
from .problem import Problem

#: Standard deviation of the perturbations of the prior's logits. With smaller ones many starts end at weights of zero.
PERTURBATION = 2.0


def fit_network(
    X: Any,
    y: Any,
    prior: Any,
    *,
    hidden: tuple[int, ...] = (2,),
    noise_scale: Any,
    num_starts: int = 10,
    key: jax.Array | None = None,
    max_iterations: int = 5000,
    tolerance: float = 1e-5,
    progress: bool = False,
) -> DiscreteNetwork:
    """Approximate the posterior of a fully connected network with activations ``u²`` and weights on levels.

    The output unit is linear, and there are no biases: a column of ones in X gives one to each unit of the first
    hidden layer. The output is a polynomial in weights and inputs, so the evidence lower bound of a factorised
    distribution is exact (Evans 2022, appendix E, with the corrections to algorithm ``forward_pass`` and (E.6) named in
    ``network_polynomial``, and the −n/2 log 2π that (E.7) leaves out). One pass over the rows, O(n m²) with the
    ``m = (d + 2^L)! / (d! 2^L!)`` monomials of the inputs for L hidden layers, keeps all that the fit needs; then
    L-BFGS over free logits and sweeps over the weights, in turn, maximise it in float64 on the host, whatever JAX's
    precision. An evaluation is linear in the pairs of monomials of the weights that share a weight, and independent of
    n. With N units a layer there are ``h ~ N^(2^(L+1)−1)`` monomials: few units and one or two hidden layers.

    The prior is symmetric, and a saddle of the bound, wherever units can be exchanged; so fits start from perturbations
    of it, and the best of several is kept. The bound has many local maxima: compare ``elbo`` with that of more starts,
    of other keys and of noise to be inferred. Standardise X and y, so that the levels suit all weights.

    :param X: inputs, shape (n, d); or, with y ``None``, their :func:`~ppl_sgp.sufficient_statistics` through a
        ``PolynomialBasis(d, 2**L)``: for chunks of rows and for rows that are added later.
    :param y: outputs, shape (n,).
    :param prior: a :class:`~ppl_sgp.DiscreteRelaxation` of batch shape () or (b,), or a list of one for each of the b
        weights: by layer from the input, then by unit, then by the unit's inputs
        (:attr:`~ppl_sgp.direct.DiscreteNetwork.weight_names`).
    :param hidden: units of each hidden layer; ``()`` for a linear model.
    :param noise_scale: standard deviation of the noise, in units of y; or a pair of standard deviations (S,) and
        log-probabilities (S,), or a scalar :class:`~ppl_sgp.DiscreteRelaxation` of it.
    :param num_starts: how many fits to choose from.
    :param key: a JAX random key for the perturbations; default a fixed one.
    :param max_iterations: of L-BFGS, in each fit.
    :param tolerance: stop when ten iterations gain less than this many nats.
    :param progress: show a progress bar with the bound. Interrupting returns the best fit reached.
    :raises ValueError: for arguments that do not fit together, and for networks with too many monomials.
    :warns UserWarning: if the best fit has not converged.

    .. doctest::

        >>> import numpy as np, numpyro.distributions as dist, ppl_sgp as sgp
        >>> X = np.random.default_rng(0).uniform(-1, 1, (100, 2))
        >>> prior = sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0), num_levels=7)
        >>> result = sgp.direct.fit_network(X, (X[:, 0] + X[:, 1]) ** 2, prior, hidden=(1,), noise_scale=0.1)
        >>> result.probabilities.shape, len(result.weight_names)
        ((3, 7), 3)
        >>> bool(np.abs(result.predict(X).mean - (X[:, 0] + X[:, 1]) ** 2).max() < 0.05)
        True
    """
    for units in _hidden(hidden):
        checks.whole_number("hidden", units, 1, "fit_network")
    checks.whole_number("num_starts", num_starts, 1, "fit_network")
    checks.whole_number("max_iterations", max_iterations, 1, "fit_network")
    given = isinstance(X, SufficientStatistics)
    if not given:
        checks.inputs_matrix(X, None, "fit_network")
    polynomial = NetworkPolynomial.of((X.basis.input_dim if given else np.shape(X)[1], *hidden, 1))
    basis, statistics = _statistics(X, y, polynomial, progress)
    problem = Problem.of(statistics, prior, noise_scale, polynomial.num_weights)
    if len(problem.prior.log_weights) > 1:
        raise ValueError("fit_network: `prior` must be one sgp.DiscreteRelaxation or a list of them, not a mixture.")
    objective = NetworkObjective(problem, polynomial, polynomial.positions(basis.powers))
    key = jax.random.key(0) if key is None else random_key(key, "fit_network")
    noise = np.asarray(jax.random.normal(key, (num_starts, *problem.prior.levels.shape)), dtype=np.float64)
    fits: list[tuple[Run, np.ndarray]] = []
    with tqdm(total=None, disable=not progress, desc="ELBO", unit="it") as bar:
        for perturbation in noise:
            run = Run(max_iterations, tolerance, bar)
            try:
                fits.append((run, run.settle(objective, objective.start(PERTURBATION * perturbation))))
            except KeyboardInterrupt:  # this fit has reached nothing
                if not fits:
                    raise
                break
            if run.reason == INTERRUPTED:
                break
    run, vector = max(fits, key=lambda fit: fit[0].trace[-1])
    run.warn_unless_converged("fit_network")
    log_probs, log_noise = objective.distribution(vector)
    return DiscreteNetwork(
        basis=basis,
        polynomial=polynomial,
        levels=problem.prior.levels,
        log_probabilities=log_probs,
        noise_scales=problem.noise_scales,
        noise_probabilities=np.exp(log_noise),
        elbo_trace=np.array(run.trace),
        converged=run.converged,
        reason=run.reason,
    )


def _hidden(hidden: Any) -> tuple[Any, ...]:
    if not isinstance(hidden, (tuple, list)):
        raise ValueError(f"fit_network: `hidden` must be a tuple of widths, such as (2,); got {hidden!r}.")
    return tuple(hidden)


def _statistics(
    X: Any, y: Any, polynomial: NetworkPolynomial, progress: bool
) -> tuple[PolynomialBasis, SufficientStatistics]:
    """Monomials of the inputs, and the sums of the rows through them, from either form of the arguments."""
    basis = PolynomialBasis(polynomial.widths[0], polynomial.degree)
    if not isinstance(X, SufficientStatistics):
        if np.ndim(y) != 1:
            raise ValueError(f"fit_network: `y` must have shape (n,), one output; got {np.shape(y)}.")
        return basis, sufficient_statistics(basis, X, y, progress=progress)
    own = X.basis
    if (
        y is not None
        or not isinstance(own, PolynomialBasis)
        or (own.degree, own.num_features) != (basis.degree, basis.num_features)
        or np.ndim(X.moments.sum_squares)
    ):
        raise ValueError(
            f"fit_network: statistics for this network are those of sgp.PolynomialBasis({basis.dim}, {basis.degree}), "
            f"of one output, with `y` None; got those of {type(own).__name__}, {X.num_features} features."
        )
    return own, X
