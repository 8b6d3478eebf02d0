"""One call from rows to statistics and a model, with no lengthscale typed by hand."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from tqdm.auto import tqdm

from .._internal import checks
from .._internal.blas import one_thread_if_small
from .._internal.random import host_generator, random_key
from ..bases.basis import Basis
from ..bases.constant import ConstantBasis
from ..bases.stack import stack
from ..inference.evidence_fit import fit_evidence
from ..priors import DiagonalPrior
from ..statistics.from_data import sufficient_statistics
from ..statistics.kept_rows import Rows
from ..statistics.rows import validated
from ..statistics.shifted import shifted
from ..statistics.statistics import SufficientStatistics
from .budget import Budget, affordable
from .candidates import Candidate, candidates, unscored
from .choice import choice
from .hyperparameters import Hyperparameters, find_hyperparameters, kernel_families
from .model import PlacedGP
from .placed import Placed, PlacementReport, as_row
from .prior import LogPrior
from .refinement import refine
from .score import Sample
from .subset import chosen_rows, distinct_rows

#: Rows that candidates learn from and predict, at most; of fewer rows than the last number none are held out.
LEARNED, PREDICTED, FEW = 8000, 1000, 50
#: Rows that inducing points are chosen from.
POINTS_FROM = 50_000
#: Level of y over its noise up to which squares of y have the digits.
MOST_LEVEL = 1e3
#: Features after an interruption before any basis was scored; rows after one of the pass, the first ones.
INTERRUPTED_FEATURES, INTERRUPTED_ROWS = 500, 5000


def place(
    key: jax.Array,
    X: Any,
    y: Any = None,
    kernel: Any = None,
    *,
    num_features: int | None = None,
    seconds: float | None = None,
    max_memory: float | None = None,
    row_weights: Any = None,
    progress: bool | None = None,
) -> Placed:
    """A basis that knows the kernel of these rows, with statistics, a model and starting values.

    1. Lengthscales, amplitude and noise of an exact GP with an unknown level, on 1,500 rows (all, up to 2,000), at the
       maximum a posteriori under the default hyper-priors. The search starts from lengthscales of sizes from a
       thousandth of the range upwards, so that a season is found whatever its period, and a gap or a wrong time stamp
       does not matter. Up to three inputs, half of the rows are windows of neighbours. Of over four times as many rows,
       a few steps on all of them by the bound of Titsias, through up to 500 points chosen greedily, where the points
       lack little of f and held-out rows gain by it; the report says so.
    2. Bases for that kernel are scored on the same rows: Nyström (all rows, up to 2,000: then f is that of the exact
       GP; else rows at random, or up to 1,000 chosen greedily), eigenfunctions on a grid, Laplace, and up to two inputs
       Fourier. The best is taken, or one whose lengthscales stay free (Laplace, Fourier; 200 features at most) if it is
       within 0.01 nats a row of it. Where the features do not carry the lengthscales, longer ones are tried as well.
    3. One pass over all rows.

    Inputs may have any units, and y any mean: nothing has to be scaled by hand, nor undone. It costs O(k³) a step of
    the search on k rows, some hundred of them, and O(n m²) for the pass; by default m is at most 4,000 and n·m² at most
    1.2e12, about a minute on two cores. Interrupted, it goes on with the best so far and fewer features, and warns.

    :param key: a JAX random key. Equal keys give equal results.
    :param X: inputs, shape (n, d). Of chunks or larger tables pass a part of the rows, then
        ``sufficient_statistics(placed.basis, chunks)``.
    :param y: outputs, shape (n,).
    :param kernel: class of the kernel, such as :class:`~ppl_sgp.Matern52`, a function of lengthscales and amplitude, or
        a list of these, of which the evidence chooses. Default squared exponential; one lengthscale an input.
    :param num_features: m at most, the level included.
    :param seconds: about how long it may take on this machine, instead of ``num_features``.
    :param max_memory: bytes that matrices of the size of the features may take.
    :param row_weights: relative noise precisions, shape (n,): row i has noise variance ``noise_scale²/ωᵢ``.
    :param progress: show what is going on, and print the report. Default: only at a terminal.
    :raises ValueError: for rows that cannot be used, several outputs, a y that is constant, a kernel with values, or a
        budget that cannot be met.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> x = np.linspace(0, 700, 120)[:, None]
        >>> y = 300 + np.sin(2 * np.pi * x[:, 0] / 40) + 0.15 * np.cos(77 * np.arange(120.0) ** 2)
        >>> with jax.enable_x64(True):  # or numpyro.enable_x64() at the start
        ...     placed = sgp.place(jax.random.key(0), x, y)
        ...     prediction = sgp.predict(placed.model, placed.fit.samples, placed.statistics, x[:3])
        ...     bool(0.05 < placed.noise_scale < 0.2), prediction.mean.round().tolist()
        (True, [300.0, 301.0, 301.0])
    """
    key = random_key(key, "place")
    families = kernel_families(kernel)
    X, y, weights = _rows(X, y, row_weights)
    budget = affordable(len(X), num_features, seconds, max_memory)
    # The noise is that of a row of average weight, until the model is made.
    average = 1.0 if weights is None else float(weights.mean())
    omega = np.ones(len(X)) if weights is None else weights / average
    level, rng = float(np.average(y, weights=omega)), host_generator(key, "place", 0)
    scale, unit = float(y.std()), float(np.mean(omega * (y - level) ** 2) ** 0.5)
    input_scale = np.where(np.ptp(X, axis=0) > 0, X.std(axis=0), 0.0)
    with tqdm(disable=None if progress is None else not progress, bar_format="{desc} [{elapsed}]") as bar:
        chosen = chosen_rows(rng, X, budget.exact_rows)
        all_rows = Rows(X, y - level, None if weights is None else omega)
        rows = jax.tree.map(lambda leaf: leaf[chosen], all_rows)
        prior = LogPrior.of_data(input_scale, scale, unit)
        with one_thread_if_small(rows.num_rows):
            found = find_hyperparameters(rng, families, rows, prior, bar.set_description_str)
        points = distinct_rows(rng, X, budget.num_features, POINTS_FROM)
        bar.set_description_str("bases on the same rows")
        sample = _sample(rng, X, y - level, omega)
        hyper, remark = found[0], ""
        if budget.points and hyper.complete:
            bar.set_description_str(f"hyperparameters on all rows, through {budget.points} points")
            with one_thread_if_small(budget.points):
                hyper, remark = refine(key, all_rows, hyper, prior, budget.points, sample)
        tried, scored = _tried(key, hyper, X, points, budget, sample)
        index, reasons = choice(tried, len(sample.X))
        best = tried[index]
        bar.set_description_str(f"a pass over {len(X):,} rows with {best.num_features:,} features")
        assert best.make is not None
        basis = stack(ConstantBasis(X.shape[1]), best.make())
        # Squares of y leave few digits for the noise beside a large level, so the pass is over y about it, in
        # coordinates that keep what is then added; or, where there are none such, keeps a root of the sums.
        digits = abs(level) < MOST_LEVEL * hyper.noise_scale
        method = "qr" if best.free and not digits else "auto"
        about = level * (not best.free)
        statistics, passed = _statistics(basis, X, y - about, weights, method, progress)
        bar.set_description_str("rotation and type-II")
        if not best.free:
            statistics = statistics.rotate(DiagonalPrior(1.0))
            statistics = shifted(statistics, about * statistics.basis.rotation[0], about)  # type: ignore[attr-defined]
        lengthscale, noise_unit = best.factor * hyper.lengthscale, unit * average**0.5
        model = PlacedGP(hyper.family, lengthscale, best.free, level, scale, noise_unit)
        start = {"amplitude": best.score.amplitude, "noise_scale": best.score.noise_scale * average**0.5}
        fit = fit_evidence(model, statistics, init=start | ({"lengthscale": lengthscale} if best.free else {}))
        report = PlacementReport(
            tuple(map(str, found if hyper.found_by == found[0].found_by else (*found, hyper))),
            tuple(map(as_row, tried)),
            index,
            (*reasons, *([remark] if remark else [])),
        )
        if not bar.disable:
            bar.write(str(report))
    if not (hyper.complete and scored and passed):
        checks.warn(
            f"place was interrupted. This is the best so far: {best.name} with {best.num_features} features, and "
            f"statistics of {statistics.num_rows:,} of {len(X):,} rows."
        )
    return Placed(statistics, model, fit, report)


def _rows(X: Any, y: Any, row_weights: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Rows of one output that varies."""
    if y is None:
        raise ValueError(
            "place: `y` is missing. Of chunks, tables and Dask pass a sample of the rows as arrays `X, y`; then "
            "`sgp.sufficient_statistics(placed.basis, chunks)` makes the statistics of all of them."
        )
    X, y, row_weights = validated(None, X, y, row_weights, "place")
    if y.ndim != 1:
        raise ValueError(f"place: `y` must have shape (n,); got {y.shape}. Place each output by itself: `y[:, j]`.")
    if np.ptp(y) == 0:
        raise ValueError(
            f"place: y is {y[0]:.6g} in all of {len(y)} rows, so nothing says how much f varies, nor the noise. Check "
            "the outputs, or write a model with priors of your own."
        )
    if not (np.ptp(X, axis=0) > 0).any():
        raise ValueError(f"place: no column of `X` varies over {len(X)} rows, so they say nothing about f.")
    return X, y, row_weights


def _sample(rng: np.random.Generator, X: np.ndarray, y: np.ndarray, omega: np.ndarray) -> Sample:
    """Rows that bases are scored on."""
    n = len(X)
    held = min(PREDICTED, n // 5) if n >= FEW else 0
    rows = rng.choice(n, held + min(LEARNED, n - held), replace=False)
    new, old = rows[:held], rows[held:]
    return Sample(X[old], y[old], omega[old] ** 0.5, X[new], y[new], omega[new] ** 0.5)


def _tried(
    key: jax.Array, hyper: Hyperparameters, X: np.ndarray, points: np.ndarray, budget: Budget, sample: Sample
) -> tuple[list[Candidate], bool]:
    """The candidates, and whether there was no interruption, after which there is one at least."""
    tried: list[Candidate] = []
    if hyper.complete:
        try:
            everywhere = (len(X) <= POINTS_FROM and len(points) < budget.num_features) or len(points) == len(X)
            tried.extend(candidates(key, hyper, X, points, everywhere, budget, sample))
        except KeyboardInterrupt:
            pass
        else:
            return tried, True
    if not any(each.make for each in tried):
        tried.append(unscored(hyper, points[:INTERRUPTED_FEATURES]))
    return tried, False


def _statistics(
    basis: Basis, X: np.ndarray, y: np.ndarray, row_weights: np.ndarray | None, method: str, progress: bool | None
) -> tuple[SufficientStatistics, bool]:
    """Those of all rows; interrupted, those of the first ones."""
    try:
        return sufficient_statistics(basis, X, y, row_weights=row_weights, method=method, progress=progress), True
    except KeyboardInterrupt:
        part = slice(INTERRUPTED_ROWS)
        some = None if row_weights is None else row_weights[part]
        return sufficient_statistics(basis, X[part], y[part], row_weights=some, method=method), False
