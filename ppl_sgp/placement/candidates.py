"""Bases that are tried for a kernel, all on the same rows."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from scipy.linalg import cholesky, solve_triangular

from .._internal.blas import one_thread_if_small, square_of
from ..bases.basis import Basis
from ..bases.fourier import FourierBasis
from ..bases.frozen_kernel import covariances, evaluate_rows
from ..bases.grid_eigen import GridEigenBasis
from ..bases.laplace import LaplaceBasis
from ..bases.nystrom import NystromBasis
from ..inference.inducing_points import select_inducing_points
from ..kernels import Kernel
from .budget import ALL_ROWS, Budget
from .hyperparameters import Hyperparameters
from .score import Sample, Score, exact_score, score

#: Features at most of a basis whose lengthscales stay free, since an evidence costs O(m³) and NUTS needs ten thousand
#: of them; and inputs up to which so many random features are enough.
MOST_FREE, FREE_INPUTS = 200, 2
#: Features at most that a candidate is scored with, and those that are tried first: where they lose nothing, more add
#: nothing.
SCORED, SCORED_FIRST, NOTHING = 2000, 250, 1e-6
#: Factors of the lengthscales that a basis with free lengthscales serves, and that random features are drawn for.
SERVED, DRAWN = (1 / 1.5, 1.5), 2.0 ** np.arange(-1, 1.25, 0.5)
#: Longest lengthscale over half the range of an input that Laplace's box is made for: longer ones are straight lines.
LONGEST = 2.0
#: Factors of the lengthscales that are tried in turn where the features do not carry those that were found: with the
#: same number, longer ones leave less to the noise.
LONGER = (1.0, 1.5, 2.25)
#: Variance that f lacks at new rows, over that of the noise, up to which nothing is lost.
NEGLIGIBLE = 2e-3
#: Standard deviation of f over that of the noise, at least, for what is lost: where rows seem to be noise alone, the
#: basis has to carry an f that they rule out, or nothing would rule it out.
LEAST_SIGNAL = 0.3
#: Most points that are chosen greedily, from so many rows for each of them.
MOST_GREEDY, ROWS_A_POINT = 1000, 4
GRID = "grid of eigenfunctions"
#: Grid points an input of a basis of eigenfunctions: two a lengthscale, between these.
GRID_POINTS = (4, 40)
#: Ratio of the variances of noise and f that is tried at least.
LEAST_RATIO = 1e-10
#: Added to the correlations of points before they are factored.
JITTER = 1e-10


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A basis that was tried.

    :ivar name: what it is.
    :ivar free: whether its lengthscales stay free.
    :ivar num_features: features that it would have, the level not counted.
    :ivar factor: lengthscales over those that were found.
    :ivar score: see :class:`Score`; of an exact GP on fewer rows for comparison.
    :ivar lost: variance that f lacks at new rows, over that of the noise, for an f of at least ``LEAST_SIGNAL``.
    :ivar make: makes the basis; ``None`` for what is there for comparison only.
    """

    name: str
    free: bool
    num_features: int
    factor: float
    score: Score
    lost: float
    make: Callable[[], Basis] | None


def candidates(
    key: jax.Array,
    hyper: Hyperparameters,
    X: np.ndarray,
    points: np.ndarray,
    everywhere: bool,
    budget: Budget,
    sample: Sample,
) -> Iterator[Candidate]:
    """Each basis with its score, the most promising first, so that an interruption leaves something good.

    :param X: all inputs (n, d), for the boxes of bases that need one.
    :param points: distinct rows in random order (m, d), for inducing points.
    :param everywhere: whether these are all that there are: nothing is lost then, so that they are scored as an exact
        GP, and all others on as few rows.
    """
    kernel, most = hyper.unit_kernel(), budget.num_features
    ratio = ratio_of(hyper)
    few = sample._replace(X=sample.X[:ALL_ROWS], y=sample.y[:ALL_ROWS], root=sample.root[:ALL_ROWS])
    if everywhere:
        sample = few
        best = _at_points("Nyström", kernel, points, 1.0, _exact(kernel, few, ratio), 0.0, sample)
        yield best
    else:
        best = yield from _nystrom(hyper, points, sample, ratio)
        if len(sample.X) > ALL_ROWS and best.lost > NOTHING:  # else it is the exact GP, and on more rows
            exact = _exact(kernel, few, ratio)
            yield Candidate(f"exact GP on {ALL_ROWS:,} rows", False, 0, 1.0, exact, 0.0, None)
    if NEGLIGIBLE < best.lost and len(points) <= MOST_GREEDY:
        yield _greedy(key, hyper, best.factor, X, len(points), sample, ratio)
    if X.shape[1] > 1 and best.lost > NEGLIGIBLE:
        yield from _grid(hyper, best.factor, X, most, sample, ratio)
    yield from _laplace(kernel, hyper, X, min(most, MOST_FREE), sample, ratio)
    if X.shape[1] <= FREE_INPUTS:
        yield from _fourier(key, hyper, X, min(most, MOST_FREE), sample, ratio)


def ratio_of(hyper: Hyperparameters) -> float:
    """The variance of the noise over that of f, which scores are tried around."""
    return max((hyper.noise_scale / hyper.amplitude) ** 2, LEAST_RATIO)


def _exact(kernel: Kernel, sample: Sample, ratio: float) -> Score:
    K = 1 + covariance(kernel, sample.X, sample.X)
    K_new = 1 + covariance(kernel, sample.X_new, sample.X)
    return exact_score(sample, K, K_new, np.full(len(K_new), 2.0), ratio)


def _nystrom(hyper: Hyperparameters, points: np.ndarray, sample: Sample, ratio: float) -> Any:
    """At the lengthscales found, and at longer ones while that helps. Returns the best."""
    best: Candidate | None = None
    for factor in LONGER:
        kernel = hyper.unit_kernel(factor)
        for count in (SCORED_FIRST, SCORED):
            found, lost = score_at_points(kernel, points[:count], sample, ratio)
            if lost <= NOTHING or count >= len(points):
                break
        tried = _at_points(
            "Nyström", kernel, points[:count] if lost <= NOTHING else points, factor, found, lost, sample
        )
        yield tried
        if best is None or merit(tried) > merit(best):
            best = tried
        if lost <= NEGLIGIBLE or best is not tried:
            break
    return best


def _at_points(
    name: str, kernel: Kernel, points: np.ndarray, factor: float, found: Score, lost: float, sample: Sample
) -> Candidate:
    """At points, or where nothing is lost, at as many of them as that takes."""
    size = _enough(kernel, points, sample, found) if lost <= 10 * NEGLIGIBLE else len(points)
    make = functools.partial(NystromBasis, points[:size], kernel)
    return Candidate(name, False, size, factor, found, lost, make)


def greedy_points(key: jax.Array, X: np.ndarray, kernel: Kernel, count: int) -> np.ndarray:
    """Points of the largest conditional variance, (m, d), among some of the rows. O(m³)."""
    with jax.enable_x64(True):
        return select_inducing_points(key, X, kernel, count, max_memory=8 * ROWS_A_POINT * count**2).points


def _greedy(
    key: jax.Array, hyper: Hyperparameters, factor: float, X: np.ndarray, count: int, sample: Sample, ratio: float
) -> Candidate:
    kernel = hyper.unit_kernel(factor)
    points = greedy_points(key, X, kernel, count)
    found, lost = score_at_points(kernel, points, sample, ratio)
    return _at_points("Nyström, greedy points", kernel, points, factor, found, lost, sample)


def score_at_points(kernel: Kernel, points: np.ndarray, sample: Sample, ratio: float) -> tuple[Score, float]:
    """The score of Nyström functions, and what they lack of the variance at new rows over that of the noise."""
    with one_thread_if_small(square_of(len(sample.X), len(points))):
        L = _factor(kernel, points)
        Phi, Phi_new = (_whitened(kernel, L, points, rows) for rows in (sample.X, sample.X_new))
        residual = (1 - np.sum(Phi_new**2, axis=1)).clip(0)
        found = score(sample, _with_level(Phi), _with_level(Phi_new), residual, ratio)
    return found, _lost(float(np.mean(residual)), found) if len(residual) else 0.0


def _lost(residual: Any, found: Score) -> Any:
    """What a share of the prior variance is, over the variance of the noise."""
    return residual * max(found.amplitude / found.noise_scale, LEAST_SIGNAL) ** 2


def _enough(kernel: Kernel, points: np.ndarray, sample: Sample, found: Score) -> int:
    """The fewest first points after which the rows lack next to nothing; all if there is no such number."""
    rows = sample.X_new[:500] if len(sample.X_new) else sample.X[:500]
    used = points[:SCORED]
    residual = 1 - np.cumsum(_whitened(kernel, _factor(kernel, used), used, rows) ** 2, axis=1).mean(axis=0)
    enough = np.flatnonzero(_lost(residual, found) <= NEGLIGIBLE)
    return int(enough[0]) + 1 if len(enough) else len(points)


def _grid(
    hyper: Hyperparameters, factor: float, X: np.ndarray, most: int, sample: Sample, ratio: float
) -> Iterator[Candidate]:
    kernel = hyper.unit_kernel(factor)
    low, high = X.min(axis=0), X.max(axis=0)
    margin = 0.05 * (high - low)
    sizes = np.clip(np.ceil(2 * (high - low) / (factor * hyper.lengthscale)), *GRID_POINTS).astype(int)

    def make(m: int = most) -> Basis:
        with warnings.catch_warnings():  # of a grid that is too coarse: the score says so
            warnings.simplefilter("ignore", UserWarning)
            return GridEigenBasis.from_kernel(kernel, (low - margin, high + margin), m, sizes)

    try:
        basis = make(min(most, SCORED))
    except ValueError:  # not for this kernel
        return
    Phi, Phi_new = basis.host_features(sample.X), basis.host_features(sample.X_new)
    residual = basis.residual_variance(sample.X_new)[0]
    found = score(sample, _with_level(Phi), _with_level(Phi_new), residual, ratio)
    lost = _lost(float(np.mean(residual)), found) if len(residual) else np.nan
    yield Candidate(GRID, False, most, factor, found, lost, make)


def _laplace(
    kernel: Kernel, hyper: Hyperparameters, X: np.ndarray, most: int, sample: Sample, ratio: float
) -> Iterator[Candidate]:
    """If it resolves the lengthscales with so few functions; it knows three kernels."""
    low, high = X.min(axis=0), X.max(axis=0)
    half = (high - low) / 2
    scales = np.minimum(hyper.lengthscale, LONGEST * half)
    if not scales.all():  # a column that never varies has no box
        return
    try:
        functions, factors = LaplaceBasis.suggest(X, np.outer(SERVED, scales), type(kernel))
    except ValueError:  # no rule for this kernel
        return
    # At the ends of the data f is pinned to zero by walls that are near (see `LaplaceBasis.suggest`).
    wide = np.maximum(factors, 1.2 + 2 * scales / half)
    numbers = np.ceil(np.array(functions) * wide / np.array(factors)).astype(int)
    if np.prod(numbers.astype(float)) > most:
        return
    basis = LaplaceBasis([int(number) for number in numbers], (low + high) / 2, wide * half)
    yield _free("Laplace", basis, kernel, sample, ratio)


def _fourier(
    key: jax.Array, hyper: Hyperparameters, X: np.ndarray, most: int, sample: Sample, ratio: float
) -> Iterator[Candidate]:
    kernels = [hyper.unit_kernel(factor) for factor in DRAWN]
    if most < 2 or not kernels[0].has_spectrum:
        return
    basis = FourierBasis.sample(key, kernels, most - most % 2, X.shape[1], centre=X.mean(axis=0))
    yield _free("Fourier", basis, hyper.unit_kernel(), sample, ratio)


def _free(name: str, basis: Basis, kernel: Kernel, sample: Sample, ratio: float) -> Candidate:
    with jax.enable_x64(True):
        scale = np.asarray(basis.weight_prior(kernel).scale)  # type: ignore[attr-defined]
    with one_thread_if_small(square_of(len(sample.X), basis.num_features)):
        Phi, Phi_new = (_with_level(basis.host_features(rows) * scale) for rows in (sample.X, sample.X_new))
        found = score(sample, Phi, Phi_new, np.zeros(len(Phi_new)), ratio)
    return Candidate(name, True, basis.num_features, 1.0, found, 0.0, lambda: basis)


def unscored(hyper: Hyperparameters, points: np.ndarray) -> Candidate:
    """Nyström at these points."""
    unknown = Score(np.nan, np.nan, hyper.amplitude, hyper.noise_scale)
    kernel = hyper.unit_kernel()
    return Candidate(
        "Nyström", False, len(points), 1.0, unknown, np.nan, functools.partial(NystromBasis, points, kernel)
    )


def merit(candidate: Candidate) -> float:
    """Nats a row of what is predicted, or if nothing is, of the evidence."""
    found = candidate.score
    return found.log_density if np.isfinite(found.log_density) else found.log_evidence


def covariance(kernel: Kernel, X: np.ndarray, points: np.ndarray) -> np.ndarray:
    """``k(X, points)``, (n, k), a block of rows at a time."""
    return evaluate_rows(covariances, (kernel, points), X, np, len(points))


def _factor(kernel: Kernel, points: np.ndarray) -> np.ndarray:
    return cholesky(covariance(kernel, points, points) + JITTER * np.eye(len(points)), lower=True, check_finite=False)


def _whitened(kernel: Kernel, L: np.ndarray, points: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Features (n, m) with the span of the Nyström approximation, of which the first k are those of k points."""
    if not len(X):
        return np.zeros((0, len(points)))
    return solve_triangular(L, covariance(kernel, X, points).T, lower=True, check_finite=False).T


def _with_level(Phi: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ones((len(Phi), 1)), Phi], axis=1)
