"""One call from rows to statistics and a model, with no lengthscale typed by hand."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from tqdm.auto import tqdm

from .._internal import checks
from .._internal.blas import one_thread_if_small
from .._internal.random import host_generator, random_key
from ..inference.compress_likelihood import likelihood_of, with_exposure
from ..inference.evidence_fit import fit_evidence
from ..statistics.kept_rows import Rows
from .budget import Budget, affordable
from .candidates import Candidate, candidates, unscored
from .choice import choice
from .hyperparameters import Hyperparameters, find_hyperparameters, kernel_families
from .placed import Placed, PlacementReport, as_row
from .prior import LogPrior
from .refinement import refine
from .score import Sample
from .subset import chosen_rows, distinct_rows
from .tasks import GaussianTask, LikelihoodTask, Task

#: Rows that candidates learn from and predict, at most; of fewer rows than the last number none are held out.
LEARNED, PREDICTED, FEW = 8000, 1000, 50
#: Rows that inducing points are chosen from.
POINTS_FROM = 50_000
#: Features after an interruption before any basis was scored.
INTERRUPTED_FEATURES = 500


def place(
    key: jax.Array,
    X: Any,
    y: Any = None,
    kernel: Any = None,
    *,
    likelihood: Any = None,
    offset: Any = None,
    exposure: Any = None,
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

    With a ``likelihood`` hyperparameters and bases are found for its working outcomes, which are Gaussian to second
    order (:doc:`/likelihoods`); then :func:`~ppl_sgp.compress_likelihood` takes the place of the pass,
    at about ten times its cost, around the prior of the type-II maximum; so m is at most 1,857 there by default, and
    n·m² at most 1.2e11.

    Inputs may have any units, and y any mean: nothing has to be scaled by hand, nor undone. It costs O(k³) a step of
    the search on k rows, some hundred of them, and O(n m²) for the pass; by default m is at most 4,000 and n·m² at most
    1.2e12, about a minute on two cores. Interrupted, it goes on with the best so far and fewer features, and warns.

    :param key: a JAX random key. Equal keys give equal results.
    :param X: inputs, shape (n, d). Of chunks or larger tables pass a part of the rows, then
        ``sufficient_statistics(placed.basis, chunks)``.
    :param y: outputs, shape (n,).
    :param kernel: class of the kernel, such as :class:`~ppl_sgp.Matern52`, a function of lengthscales and amplitude, or
        a list of these, of which the evidence chooses. Default squared exponential; one lengthscale an input.
    :param likelihood: one of ``ppl_sgp.likelihoods`` with one predictor a row, or a function from it to a
        NumPyro distribution, such as ``lambda eta: dist.Poisson(jnp.exp(eta))``; default Gaussian noise.
    :param offset: of a likelihood, known summands of the predictors, shape (n,); ``exposure`` of counts likewise.
    :param num_features: m at most, the level included.
    :param seconds: about how long it may take on this machine, instead of ``num_features``.
    :param max_memory: bytes that matrices of the size of the features may take.
    :param row_weights: relative noise precisions, shape (n,): row i has noise variance ``noise_scale²/ωᵢ``. Of a
        likelihood how often each row counts.
    :param progress: show what is going on, and print the report. Default: only at a terminal.
    :raises ValueError: for rows that cannot be used, several outputs, a likelihood of several predictors, a y that is
        constant, a kernel with values, or a budget that cannot be met.

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
    if y is None:
        raise ValueError(
            "place: `y` is missing. Of chunks, tables and Dask pass a sample of the rows as arrays `X, y`; then "
            "`sgp.sufficient_statistics(placed.basis, chunks)` makes the statistics of all of them."
        )
    task = _task(likelihood, X, y, row_weights, offset, exposure)
    data = task.data
    budget = affordable(len(data.X), num_features, seconds, max_memory, task.passes)
    rng, X = host_generator(key, "place", 0), data.X
    input_scale = np.where(np.ptp(X, axis=0) > 0, X.std(axis=0), 0.0)
    with tqdm(disable=None if progress is None else not progress, bar_format="{desc} [{elapsed}]") as bar:
        chosen = chosen_rows(rng, X, budget.exact_rows)
        all_rows = Rows(X, data.y, data.weights if data.weighted else None)
        rows = jax.tree.map(lambda leaf: leaf[chosen], all_rows)
        prior = LogPrior.of_data(input_scale, data.scale, data.noise_unit, data.noise)
        with one_thread_if_small(rows.num_rows):
            found = find_hyperparameters(rng, families, rows, prior, bar.set_description_str)
        points = distinct_rows(rng, X, budget.num_features, POINTS_FROM)
        bar.set_description_str("bases on the same rows")
        sample = _sample(rng, X, data.y, data.weights)
        hyper, remark = found[0], ""
        if budget.points and hyper.complete:
            bar.set_description_str(f"hyperparameters on all rows, through {budget.points} points")
            with one_thread_if_small(budget.points):
                hyper, remark = refine(key, all_rows, hyper, prior, budget.points, sample)
        tried, scored = _tried(key, hyper, X, points, budget, sample)
        index, reasons = choice(tried, len(sample.X))
        best = tried[index]
        statistics, model, start = task.finish(best, hyper, progress, bar.set_description_str)
        start |= {"lengthscale": model.lengthscale} if model.free else {}
        fit = fit_evidence(model, statistics, init=start)
        report = PlacementReport(
            tuple(map(str, found if hyper.found_by == found[0].found_by else (*found, hyper))),
            tuple(map(as_row, tried)),
            index,
            (*task.remarks, *reasons, *([remark] if remark else [])),
        )
        if not bar.disable:
            bar.write(str(report))
    if not (hyper.complete and scored and statistics.num_rows == len(X)):
        checks.warn(
            f"place was interrupted. This is the best so far: {best.name} with {best.num_features} features, and "
            f"statistics of {statistics.num_rows:,} of {len(X):,} rows."
        )
    return Placed(statistics, model, fit, report)


def _task(likelihood: Any, X: Any, y: Any, row_weights: Any, offset: Any, exposure: Any) -> Task:
    """What is placed, and what is done with the basis."""
    if likelihood is None:
        if offset is not None or exposure is not None:
            raise ValueError(
                "place: `offset` and `exposure` are a likelihood's: pass `likelihood`, or subtract from y."
            )
        return GaussianTask.of(X, y, row_weights)
    likelihood = likelihood_of(likelihood, "place")
    if exposure is not None:
        offset = with_exposure(likelihood, offset, exposure, "place")
    return LikelihoodTask.of(likelihood, X, y, row_weights, offset)


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
