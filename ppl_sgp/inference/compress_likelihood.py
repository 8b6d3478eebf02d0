"""Any likelihood compressed to second order in the weights: the public function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from .._internal import checks
from ..bases.basis import Basis
from ..expansion.compressed_likelihood import CompressedLikelihood
from ..expansion.expand import Expansion
from ..expansion.progress import Progress
from ..expansion.sources import OWNER, source_of
from ..likelihoods.from_distribution import FromDistribution
from ..likelihoods.likelihood import Likelihood
from ..priors import WeightPrior
from ..sites.sparse_gp import SparseGP
from ..sites.tracing import observed_sites, trace_at
from .evidence_fit import INTERRUPTED, fit_evidence

METHODS = ("averaged", "mode")


def compress_likelihood(
    basis: Basis,
    X: Any,
    y: Any,
    likelihood: Likelihood | Callable[..., Any],
    prior: WeightPrior | None = None,
    *,
    offset: Any = None,
    exposure: Any = None,
    row_weights: Any = None,
    method: str = "averaged",
    model: Callable[..., Any] | None = None,
    rounds: int = 1,
    centre: CompressedLikelihood | None = None,
    max_passes: int = 12,
    chunk_size: int | None = None,
    progress: bool | None = None,
    checkpoint: Any = None,
    float32_features: bool = False,
) -> CompressedLikelihood:
    """Compress n rows of any likelihood into statistics of size m, on which models sample at a cost free of n.

    With a frozen basis the log likelihood is a function of the weights alone, whatever the hyperparameters. It is
    expanded to second order around the posterior at a reference prior, and the better the more rows there are. The
    expansion is averaged over that posterior (the variational normal distribution of Opper & Archambeau 2009), or
    taken at its mode. Newton's method, damped, begins on some thousands of rows; each pass over all costs O(n m²), some
    two or three of :func:`~ppl_sgp.sufficient_statistics` averaged, and there are about three. Memory does not grow
    with n. See :doc:`/likelihoods` for how good it is.

    :param basis: the frozen feature map.
    :param X: inputs, shape (n, d): arrays as there; or chunks ``(X, y)``, ``(X, y, row_weights)`` or
        ``(X, y, row_weights, offset)`` that can be read again: a list, :func:`~ppl_sgp.table_chunks`, or a function
        that returns an iterator. Then ``y`` is ``None``. Where the basis has a recipe, tables as well, with y in them.
    :param y: outcomes, shape (n,), or (n, c) where the likelihood takes several numbers a row.
    :param likelihood: one of ``ppl_sgp.likelihoods``; or a function from predictors to a NumPyro distribution, such
        as ``lambda eta: dist.Poisson(jnp.exp(eta))``.
    :param prior: the reference prior of the weights, such as ``basis.weight_prior(kernel)`` at a guess; by default
        independent weights with which f has about the scale of the likelihood. For K predictors a row it holds for
        each. It determines where the expansion is good, not what models assume.
    :param offset: known summands of the predictors, shape (n,) or (n, K).
    :param exposure: of counts, shape (n,): its logarithm is added to the offset.
    :param row_weights: how often each row counts, shape (n,), positive.
    :param method: ``"averaged"`` or ``"mode"``.
    :param model: a model of the statistics. With it the reference prior is made anew: that of the model at
        hyperparameters that :func:`~ppl_sgp.fit_evidence` finds.
    :param rounds: how often, each with two or three passes more; needs ``model``.
    :param centre: expand around the centre of these statistics instead, in one pass: the results can be added.
    :param max_passes: passes over all rows, at most, in each round.
    :param chunk_size: rows in memory at a time, of memory maps.
    :param progress: show a progress bar of each pass. Default: at a terminal.
    :param checkpoint: a file that keeps what each pass over all rows has found. After an interruption the same call
        goes on from there.
    :param float32_features: as there.
    :return: statistics that stand wherever those of Gaussian noise do, with noise of scale one.
    :raises ValueError: for rows that cannot be used, by their number; for arguments that do not fit; if the likelihood
        is finite nowhere. Where passes end before it has converged, or are interrupted by Ctrl-C after one is complete,
        it warns and returns the best so far, with ``converged`` false and the ``reason``; interrupted in a later round,
        it warns and returns the expansion of the round before.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(-1, 1, 300)[:, None]
        >>> counts = np.floor(np.exp(1 + np.sin(4 * X[:, 0])))
        >>> basis = sgp.stack(sgp.LaplaceBasis.from_data(X, 12), sgp.ConstantBasis(1))
        >>> prior = basis.weight_prior((sgp.Matern52(0.4), sgp.DiagonalPrior(5.0)))
        >>> stats = sgp.compress_likelihood(basis, X, counts, sgp.likelihoods.Poisson(), prior)
        >>> stats.converged, sgp.log_evidence(stats, prior).shape
        (True, ())
    """
    likelihood = likelihood_of(likelihood)
    _check(basis, likelihood, method, model, rounds, centre)
    checks.whole_number("max_passes", max_passes, 1, OWNER)
    if exposure is not None:
        offset = with_exposure(likelihood, offset, exposure)
    source = source_of(basis, likelihood, (X, y, row_weights, offset), chunk_size, float32_features)
    kept = contextlib.nullcontext() if checkpoint is None else Progress(checkpoint, basis, likelihood)
    with kept as saved:
        expansion = Expansion(source, method, progress, saved)
        if centre is not None:
            return expansion.around(centre)
        found = expansion.run(expansion.default_prior() if prior is None else prior, max_passes)
        for _ in range(rounds if model is not None else 0):
            if not found.converged:
                break
            try:
                found = expansion.run(_prior_of(model, found), max_passes)
            except KeyboardInterrupt:
                checks.warn(
                    f"{OWNER}: interrupted before an expansion around the prior of `model` was complete. The one "
                    "before it is returned, around its own reference prior."
                )
                break
    return found


def likelihood_of(likelihood: Any, owner: str = OWNER) -> Likelihood:
    """A likelihood, also of a function that makes a distribution."""
    if isinstance(likelihood, type):
        raise ValueError(f"{owner}: `likelihood` must be an instance; got the class {likelihood.__name__}. Call it.")
    if isinstance(likelihood, Likelihood):
        return likelihood
    if not callable(likelihood):
        raise ValueError(
            f"{owner}: `likelihood` must be one of sgp.likelihoods, or a function from predictors to a NumPyro "
            f"distribution; got {type(likelihood).__name__}."
            + (" The order is compress_likelihood(basis, X, y, likelihood)." if owner == OWNER else "")
        )
    return FromDistribution(likelihood)


def _check(basis: Any, likelihood: Likelihood, method: Any, model: Any, rounds: Any, centre: Any) -> None:
    if not isinstance(basis, Basis):
        raise ValueError(
            f"{OWNER}: `basis` must be a Basis such as sgp.FourierBasis; got {type(basis).__name__}. The order is "
            "compress_likelihood(basis, X, y, likelihood)."
        )
    if method not in METHODS:
        raise ValueError(f"{OWNER}: `method` must be one of {METHODS}; got {method!r}.")
    if method == "mode" and not likelihood.is_smooth:
        raise ValueError(
            f"{OWNER}: the log density of {type(likelihood).__name__} has a kink, and no curvature elsewhere: there is "
            "no expansion at its mode. Use `method='averaged'`."
        )
    checks.whole_number("rounds", rounds, 1, OWNER)
    if rounds > 1 and model is None:
        raise ValueError(f"{OWNER}: `rounds` fit a model; pass `model`, such as `sgp.models.basis_gp()`.")
    if centre is not None and not isinstance(centre, CompressedLikelihood):
        raise ValueError(f"{OWNER}: `centre` must be a compressed likelihood; got {type(centre).__name__}.")
    if centre is not None and model is not None:
        raise ValueError(f"{OWNER}: with `centre` the expansion is around it, in one pass; leave `model` out.")


def with_exposure(likelihood: Likelihood, offset: Any, exposure: Any, owner: str = OWNER) -> np.ndarray:
    """The offset with the logarithm of an exposure."""
    if not likelihood.takes_exposure:
        raise ValueError(f"{owner}: `exposure` is for rates of counts; {type(likelihood).__name__} has none.")
    exposure = checks.host_numbers("exposure", exposure, owner)
    bad = np.flatnonzero(~((exposure > 0) & np.isfinite(exposure)))
    if exposure.ndim != 1 or len(bad):
        got = f"shape {exposure.shape}" if exposure.ndim != 1 else f"{exposure[bad[0]]} at row {bad[0]}"
        raise ValueError(
            f"{owner}: `exposure` must be positive and finite, of shape (n,); got {got}. Rows without exposure say "
            "nothing: leave them out."
        )
    logs = np.log(exposure.astype(np.float64))
    return logs if offset is None else logs + checks.host_numbers("offset", offset, owner)


def _prior_of(model: Any, statistics: CompressedLikelihood) -> WeightPrior:
    """The prior of the weights at hyperparameters that maximise the evidence.

    :raises KeyboardInterrupt: if the search was interrupted: its best point so far is nowhere in particular.
    """
    fit = fit_evidence(model, statistics)
    if fit.message == INTERRUPTED:
        raise KeyboardInterrupt
    sites = observed_sites(trace_at(model, statistics, fit.values))
    priors = [site.prior for site in sites.values() if isinstance(site, SparseGP) and site.statistics is statistics]
    if len(priors) != 1:
        raise ValueError(
            f"{OWNER}: `model` must observe the statistics once, by `sgp.observe`; it has {len(priors)} such sites."
        )
    return priors[0]
