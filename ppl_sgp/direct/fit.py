"""Variational inference over discrete weights by L-BFGS on the exact evidence lower bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp
from tqdm.auto import tqdm

from .. import _checks
from .elbo import Variational
from .factorised import FactorisedObjective
from .mixture import MixtureObjective
from .problem import Problem
from .result import DiscreteFit

#: Iterations over which a gain below the tolerance counts as none.
WINDOW = 10
#: Vectors that L-BFGS keeps: more pay, since a vector is cheaper than an evaluation.
MEMORY = 20
#: Standard deviation of the perturbation of logits that tells components of a mixture apart at the start.
PERTURBATION = 0.5


def fit(
    statistics: Any,
    prior: Any,
    *,
    noise_scale: Any,
    num_mixtures: int = 1,
    key: jax.Array | None = None,
    max_iterations: int = 5000,
    tolerance: float = 1e-5,
    progress: bool = False,
) -> DiscreteFit:
    """Approximate the posterior of discrete weights in ``y = Φw + noise`` by maximising the evidence lower bound.

    With Gaussian noise the bound of a factorised distribution over m̄ᵇ configurations is exact from the sufficient
    statistics (Evans 2022, theorem 7.1, misprinted): O(b m̄ + b²) an evaluation, deterministic, independent of n.
    SciPy's L-BFGS-B maximises it from the prior, in float64 on the host, whatever JAX's precision.

    With ``num_mixtures`` R > 1 the posterior is a mixture of R factorised distributions, which can be dependent and
    have several modes. Its entropy is bounded from below (theorem 7.3, in a tighter form that cannot overflow), so that
    ``elbo`` is a lower bound of the ELBO: O(R²b m̄ + R b²). The fit starts from perturbations of the factorised one.

    A factorised distribution is too certain where weights are correlated: compare with
    :meth:`ppl_sgp.models.DiscreteWeights.gibbs`.

    :param statistics: from :func:`~ppl_sgp.sufficient_statistics`, of one output.
    :param prior: a :class:`~ppl_sgp.DiscreteRelaxation` of batch shape () or (b,), a list of one for each weight, or a
        :class:`~ppl_sgp.direct.MixturePrior`, whose expectation is bounded as well (theorem 7.4, tightened).
    :param noise_scale: standard deviation of the noise; or, to infer it, a pair of standard deviations (S,) and
        log-probabilities (S,), or a scalar :class:`~ppl_sgp.DiscreteRelaxation` of it.
    :param num_mixtures: number R of components.
    :param key: a JAX random key for the perturbations; default a fixed one.
    :param max_iterations: of L-BFGS, for the factorised fit and for the mixture each.
    :param tolerance: stop when ten iterations gain less than this many nats.
    :param progress: show a progress bar with the bound. Interrupting returns what was reached.
    :raises ValueError: for arguments that do not fit together.
    :warns UserWarning: if it has not converged.

    .. doctest::

        >>> import jax, numpy as np, numpyro.distributions as dist, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.2), 20, 1)
        >>> stats = sgp.sufficient_statistics(basis, X, np.sin(6 * X[:, 0]))
        >>> result = sgp.direct.fit(stats, sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0)), noise_scale=0.1)
        >>> result.converged, result.probabilities.shape, result.quantize().codes.shape
        (True, (20, 15), (20,))
        >>> bool(np.abs(result.predict(X).mean - np.sin(6 * X[:, 0])).max() < 0.1)
        True
    """
    if isinstance(num_mixtures, bool) or not isinstance(num_mixtures, int) or num_mixtures < 1:
        raise ValueError(f"direct.fit: `num_mixtures` must be an integer of 1 or more; got {num_mixtures!r}.")
    _checks.positive("max_iterations", max_iterations, "direct.fit")
    problem = Problem.of(statistics, prior, noise_scale)
    with tqdm(total=None, disable=not progress, desc="ELBO", unit="it") as bar:
        factorised, run = FactorisedObjective(problem.with_factorised_prior()), Run(max_iterations, tolerance, bar)
        q = factorised.distribution(run.settle(factorised, factorised.start()))
        if run.converged and (num_mixtures > 1 or len(problem.prior.log_weights) > 1):
            start = perturbed(q, num_mixtures, jax.random.key(0) if key is None else key) if num_mixtures > 1 else q
            mixture, run = MixtureObjective(problem, num_mixtures), Run(max_iterations, tolerance, bar)
            q = mixture.distribution(run.maximise(mixture, mixture.vector(start)))
    if not run.converged and run.reason != "interrupted":
        _checks.warn(f"direct.fit has not converged: {run.reason}. Raise `max_iterations` or `tolerance`.")
    return DiscreteFit(
        basis=statistics.basis,
        levels=problem.prior.levels,
        mixture_weights=np.exp(q.log_weights),
        log_probabilities=q.log_probs,
        noise_scales=problem.noise_scales,
        noise_probabilities=np.exp(q.log_noise),
        elbo_trace=np.array(run.trace),
        converged=run.converged,
        reason=run.reason,
    )


def perturbed(q: Variational, num_mixtures: int, key: jax.Array) -> Variational:
    """A mixture of equal weights, of random perturbations of one factorised distribution."""
    shape = (num_mixtures, *q.log_probs.shape[1:])
    log_probs = q.log_probs + PERTURBATION * np.asarray(jax.random.normal(key, shape), dtype=np.float64)
    log_probs -= logsumexp(log_probs, axis=-1, keepdims=True)
    return Variational(np.full(num_mixtures, -np.log(num_mixtures)), log_probs, q.log_noise)


class Run:
    """One maximisation: the bound after each iteration, whether it converged and why it stopped."""

    def __init__(self, max_iterations: int, tolerance: float, bar: Any) -> None:
        self._max_iterations, self._tolerance, self._bar = max_iterations, tolerance, bar
        self.trace: list[float] = []
        self.converged, self.reason = False, "the iteration limit was reached"

    def settle(self, objective: FactorisedObjective, vector: np.ndarray) -> np.ndarray:
        """L-BFGS and coordinate sweeps in turn, until a sweep gains less than the tolerance."""
        while True:
            vector = self.maximise(objective, vector)
            if self.reason == "interrupted" or len(self.trace) > self._max_iterations:
                return vector
            swept = objective.sweep(vector)
            value = objective(swept)[0]
            gained, vector = value - self.trace[-1], swept
            self._note(value)
            if gained < self._tolerance:
                self.converged, self.reason = True, "the bound has settled"
                return vector
            self.converged = False

    def maximise(self, objective: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray) -> np.ndarray:
        """The parameters that L-BFGS reaches from a start."""
        best, first = start, len(self.trace)
        self._note(objective(start)[0])

        def negative(vector: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = objective(vector)
            return -value, -gradient

        def after(intermediate_result: Any) -> None:
            nonlocal best
            best = intermediate_result.x.copy()
            self._note(-float(intermediate_result.fun))
            if len(self.trace) - first > WINDOW and self.trace[-1] - self.trace[-1 - WINDOW] < self._tolerance:
                raise StopIteration

        limit = max(1, self._max_iterations - first)
        options = {"maxiter": limit, "maxfun": 100 * limit, "maxcor": MEMORY, "ftol": 0.0, "gtol": 0.0}
        try:
            end = minimize(negative, start, jac=True, method="L-BFGS-B", callback=after, options=options)
            # Without tolerances of its own L-BFGS ends in after(), at the limit (1), or at a failing line search (2).
            self.converged = end.status not in (1, 2)
            self.reason = ("the bound has settled", "the iteration limit was reached", "no step gains any more")[
                end.status if end.status in (1, 2) else 0
            ]
        except KeyboardInterrupt:
            self.reason = "interrupted"
        return best

    def _note(self, value: float) -> None:
        self.trace.append(value)
        self._bar.update()
        self._bar.set_postfix_str(f"{value:.4f}", refresh=False)
