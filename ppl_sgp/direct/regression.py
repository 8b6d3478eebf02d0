"""Variational inference over discrete weights by L-BFGS on the exact evidence lower bound."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from scipy.special import log_softmax
from tqdm.auto import tqdm

from .._internal import checks
from .._internal.random import random_key
from .elbo import Variational
from .factorised import FactorisedObjective
from .maximise import INTERRUPTED, Run
from .mixture import ENTROPIES, MixtureObjective
from .outermost import complaints, outermost_weights
from .placement import NUM_LEVELS, gaussian_prior, placement
from .problem import Problem, noise_levels
from .result import DiscreteFit

#: How far below the best factorised fit, in nats, another one is of use as a component.
NEARLY = 5.0
#: Standard deviation of the perturbation of logits that tells components of a mixture apart.
PERTURBATION = 0.5


def fit(
    statistics: Any,
    prior: Any,
    *,
    noise_scale: Any,
    num_levels: int | None = None,
    rotate: bool | None = None,
    num_mixtures: int = 1,
    entropy: str = "pairwise",
    num_starts: int | None = None,
    key: jax.Array | None = None,
    max_iterations: int = 5000,
    tolerance: float = 1e-5,
    progress: bool = False,
) -> DiscreteFit:
    """Approximate the posterior of discrete weights in ``y = Φw + noise`` by maximising the evidence lower bound.

    With a Gaussian prior, the first choice, weights get grids where their posterior is, and are those of rotated
    features (:func:`~ppl_sgp.direct.place_levels`): one factorised distribution then is as good as Gaussian weights. A
    :class:`~ppl_sgp.DiscreteRelaxation` states the levels of the given features, and is taken as it is. Its levels are
    too coarse where the posterior is much narrower than the prior, and a factorised distribution over correlated
    features is too certain of weights, too uncertain of predictions with more features than rows
    (``docs/discrete_weights.md``): compare with :meth:`ppl_sgp.models.DiscreteWeights.gibbs`.

    With Gaussian noise the bound of a factorised distribution over m̄ᵇ configurations is exact from the sufficient
    statistics (Evans 2022, theorem 7.1, misprinted): O(b m̄ + b²) an evaluation, deterministic, independent of n.
    SciPy's L-BFGS-B and coordinate sweeps maximise it, in float64 on the host, whatever JAX's precision: from the
    posterior under Gaussian priors, O(b³), by annealing, and from draws of the former. Where levels are far apart for
    what the data say there are many local maxima: compare ``elbo`` with more ``num_starts``.

    With ``num_mixtures`` R > 1 the posterior is a mixture of R factorised distributions, which can be dependent and
    have several modes. Its entropy is bounded from below, so that ``elbo`` is a lower bound of the ELBO; an evaluation
    is O(R²b m̄ + R b²). Components start at factorised fits from different places. :func:`~ppl_sgp.direct.refine` goes
    on with the ELBO itself.

    :param statistics: from :func:`~ppl_sgp.sufficient_statistics`, of one output.
    :param prior: Gaussian with mean zero: a ``numpyro.distributions.Normal`` of batch shape () or (b,), or a weight
        prior such as ``basis.weight_prior(kernel)``. Or levels: a :class:`~ppl_sgp.DiscreteRelaxation` of batch shape
        () or (b,), a list of one for each weight, or a :class:`~ppl_sgp.direct.MixturePrior`, whose expectation is
        bounded as well (theorem 7.4, tightened).
    :param noise_scale: standard deviation of the noise; or, to infer it, a pair of standard deviations (S,) and
        log-probabilities (S,), or a scalar :class:`~ppl_sgp.DiscreteRelaxation` of it.
    :param num_levels: of each weight, for a Gaussian prior, 3 or more; default 15. Other priors have theirs.
    :param rotate: for a Gaussian prior, whether weights are those of rotated features: the default. False keeps the
        given features, with placed levels, for a diagonal prior. Other priors belong to the features they are given
        for: rotate the statistics beforehand.
    :param num_mixtures: number R of components.
    :param entropy: bound of a mixture's entropy: ``"pairwise"`` by overlaps of components (Kolchinsky & Tracey 2017),
        exact where they are equal or far apart; ``"cross"`` that of theorem 7.3, in a tighter form.
    :param num_starts: factorised fits from different places, of which the best is kept: 2 or more. Default 2 and up to
        20 more, fewer the more weights there are, and none above 1,000.
    :param key: a JAX random key, for further starts and those of a mixture; default a fixed one.
    :param max_iterations: of L-BFGS, for the factorised fit and for the mixture each.
    :param tolerance: stop when ten iterations gain less than this many nats.
    :param progress: show a progress bar with the bound. Interrupting returns what was reached.
    :raises ValueError: for arguments that do not fit together.
    :warns UserWarning: if it has not converged; if weights sit on their outermost level where the data ask for
        more, or the noise on the largest or smallest of several.

    .. doctest::

        >>> import jax, numpy as np, numpyro.distributions as dist, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.2), 20, 1)
        >>> stats = sgp.sufficient_statistics(basis, X, np.sin(6 * X[:, 0]))
        >>> result = sgp.direct.fit(stats, dist.Normal(0.0, 0.3), noise_scale=0.1)
        >>> result.converged, result.probabilities.shape, result.quantize().codes.shape
        (True, (20, 15), (20,))
        >>> bool(np.abs(result.predict(X).mean - np.sin(6 * X[:, 0])).max() < 0.1)
        True
    """
    checks.whole_number("num_mixtures", num_mixtures, 1, "direct.fit")
    if entropy not in ENTROPIES:
        raise ValueError(f"direct.fit: `entropy` must be one of {ENTROPIES}; got {entropy!r}.")
    checks.whole_number("max_iterations", max_iterations, 1, "direct.fit")
    statistics, prior, log_prior_mass = _with_levels(statistics, prior, noise_scale, num_levels, rotate)
    given = Problem.of(statistics, prior, noise_scale)
    problem = given.around(given.prior.levels[:, given.prior.levels.shape[1] // 2])
    if num_starts is None:
        num_starts = 2 + min(20, 1000 // statistics.num_features)
    checks.whole_number("num_starts", num_starts, 2, "direct.fit")
    key_starts, key_mixture = jax.random.split(jax.random.key(0) if key is None else random_key(key, "direct.fit"))
    with tqdm(total=None, disable=not progress, desc="ELBO", unit="it") as bar:
        factorised, run = FactorisedObjective(problem.with_factorised_prior()), Run(max_iterations, tolerance, bar)
        q, run = _settled(factorised, run, list(jax.random.split(key_starts, num_starts))[2:])
        if run.converged and (num_mixtures > 1 or len(problem.prior.log_weights) > 1):
            objective = MixtureObjective(problem, num_mixtures, entropy)
            mixed = run.interruptible(lambda: _mixed(objective, factorised, q, run, num_mixtures, key_mixture))
            q, run = (q, run) if mixed is None else mixed
    run.warn_unless_converged("direct.fit")
    outermost = outermost_weights(problem, q)
    for complaint in complaints(problem, q, outermost):
        checks.warn(f"direct.fit: {complaint}.")
    return DiscreteFit(
        basis=statistics.basis,
        levels=given.prior.levels,
        mixture_weights=np.exp(q.log_weights),
        log_probabilities=q.log_probs,
        noise_scales=problem.noise_scales,
        noise_probabilities=np.exp(q.log_noise),
        elbo_trace=np.array(run.trace),
        converged=run.converged,
        reason=run.reason,
        outermost=outermost,
        log_prior_mass=log_prior_mass,
    )


def _with_levels(
    statistics: Any, prior: Any, noise_scale: Any, num_levels: int | None, rotate: bool | None
) -> tuple[Any, Any, float]:
    """Statistics, a prior on levels, and the log of the mass of the Gaussian prior that they stand for."""
    if gaussian_prior(prior) is not None:
        count, rotate = NUM_LEVELS if num_levels is None else num_levels, rotate is None or rotate
        placed = placement(statistics, prior, *noise_levels(noise_scale), count, rotate)
        return placed.statistics, placed.prior, placed.log_prior_mass
    if rotate or num_levels is not None:
        raise ValueError(
            "direct.fit: `num_levels` and `rotate` are for Gaussian priors, such as dist.Normal(0.0, 1.0); other "
            "priors have levels, of the given features: pass `statistics.rotate()` to rotate those."
        )
    return statistics, prior, 0.0


def _settled(objective: FactorisedObjective, run: Run, keys: Sequence[jax.Array]) -> tuple[Variational, Run]:
    """The best of several local maxima: from means and draws under Gaussian priors, and from cooling down."""
    best = run.settle(objective, objective.start())
    starts: list[Callable[[], np.ndarray]] = [objective.start_at_noise] if objective.several else []
    starts.append(objective.annealed)
    starts += [functools.partial(objective.start, key) for key in keys]
    for start in starts if run.converged else ():
        attempt = run.interruptible(functools.partial(_attempt, objective, start, run))
        if attempt is None:
            break
        vector, other = attempt
        if other.converged and other.trace[-1] > run.trace[-1]:
            best, run = vector, other
    return objective.distribution(best), run


def _attempt(
    objective: FactorisedObjective, start: Callable[[], np.ndarray], run: Run, beat: bool = True
) -> tuple[np.ndarray, Run]:
    """A maximisation from another start, given up if it is not going to ``beat`` what there is.

    :raises KeyboardInterrupt: if it was interrupted, and so is not to be had.
    """
    other = run.fresh()
    vector = other.settle(objective, start(), run.trace[-1] if beat else -np.inf)
    if other.reason == INTERRUPTED:
        raise KeyboardInterrupt
    return vector, other


def _mixed(
    objective: MixtureObjective,
    factorised: FactorisedObjective,
    q: Variational,
    run: Run,
    num_mixtures: int,
    key: jax.Array,
) -> tuple[Variational, Run]:
    start = _several(factorised, q, run, num_mixtures, key) if num_mixtures > 1 else q
    other = run.fresh()
    return objective.distribution(other.maximise(objective, objective.vector(start))), other


def _several(
    objective: FactorisedObjective, first: Variational, run: Run, num_mixtures: int, key: jax.Array
) -> Variational:
    """The first factorised distribution and others, weighted by the evidence they bound.

    Others settle from elsewhere, or where they find no place nearly as good are perturbations of the first.
    """
    found, bounds = [first.log_probs[0]], [run.trace[-1]]
    key_start, key_noise = jax.random.split(key)
    for each in jax.random.split(key_start, num_mixtures - 1):
        vector, other = _attempt(objective, functools.partial(objective.start, each), run, beat=False)
        q = objective.distribution(vector)
        near = bounds[0] - other.trace[-1] < NEARLY
        found.append(q.log_probs[0] if near else found[0])
        bounds.append(other.trace[-1] if near else bounds[0])
    # Equal components would stay together, their gradients being the same. All are perturbed: the one that was not
    # would take all the weight before the others have recovered.
    log_probs = np.stack(found)
    log_probs += PERTURBATION * np.asarray(jax.random.normal(key_noise, log_probs.shape), dtype=np.float64)
    return Variational(log_softmax(np.array(bounds)), log_softmax(log_probs, axis=-1), first.log_noise)
