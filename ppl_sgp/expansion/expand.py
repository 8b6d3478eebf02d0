"""From rows and a reference prior to a compressed likelihood: the passes, their record, and what is kept of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
from scipy.linalg import cho_solve
from tqdm.auto import tqdm

from .._internal import checks
from .._internal.pytree import same_tree
from ..priors import WeightPrior
from ..statistics.accumulate import progress_bar
from ..statistics.compressed import compress_quadratic
from .compressed_likelihood import CompressedLikelihood
from .newton import Newton, Reference, State, covariance_root, newton_step, positive_factor
from .passes import LikelihoodRows, sum_rows
from .progress import Progress, Saved
from .quadratic import Quadratic, integrated, of_state, of_sums
from .records import Centre, Record, Units
from .reference import default_prior, reference_of
from .sources import OWNER, Source
from .sums import Point, Sums

#: Rows of the first steps, at least, and for each weight; and how many times more the next set of rows has.
FIRST_ROWS, ROWS_A_WEIGHT, GROWTH = 4000, 4, 16
#: Passes over some of the rows, at most, and the step in standard deviations at which more rows follow.
PASSES_ON_SOME, SHORT_ON_SOME = 200, 0.5
INTERRUPTED = "interrupted"


class Expansion:
    """The search for the centre of an expansion: on some of the rows, on more of them, on all.

    :param source: the rows.
    :param method: ``"averaged"`` or ``"mode"``.
    :param progress: show progress of passes over all rows.
    :param saved: the file that keeps what passes over all rows found, if any.
    """

    def __init__(self, source: Source, method: str, progress: bool | None, saved: Progress | None) -> None:
        self.source, self._method, self._progress, self._saved = source, method, progress, saved
        weights = source.likelihood.num_latents * source.basis.num_features
        self._first = max(FIRST_ROWS, ROWS_A_WEIGHT * weights)
        self._scan = source.scan(GROWTH * self._first)
        y = np.asarray(self._scan.some.y, dtype=np.float64)
        self.scale, self._free = source.likelihood.predictor_scale(y), source.likelihood.free_parameters(y)
        self._passes: list[tuple[float, float, float, float]] = []
        self._complete: State | None = None
        self._joint: Quadratic | None = None
        if saved is not None:
            self._passes, self._joint = saved.resume(self._scan)

    def default_prior(self) -> WeightPrior:
        """A reference prior of the scale of the features and of the likelihood."""
        some = self._scan.some.take(slice(self._first))
        return default_prior(self.source.basis, self.source.basis.host_features(some.X), self.scale)

    def run(self, prior: WeightPrior, most_passes: int) -> CompressedLikelihood:
        """Expand around the posterior under a prior; a further run begins where the last one ended.

        :raises ValueError: if no point has a finite density.
        :raises KeyboardInterrupt: before a pass over all rows is complete; later it ends the passes.
        """
        basis, likelihood = self.source.basis, self.source.likelihood
        reference = reference_of(prior, basis, likelihood.num_latents, self._free, OWNER)
        self._complete = None
        try:
            state, short, reason = self._on_all(reference, most_passes)
        except KeyboardInterrupt:
            if self._complete is None:
                raise
            state, short, reason = self._complete, False, INTERRUPTED
        return self._result(reference, state, short, reason)

    def at(self, point: Point) -> Sums:
        """One pass over all rows."""
        with self._bar() as bar:
            return self.source.sums(point, bar)

    def around(self, centre: CompressedLikelihood) -> CompressedLikelihood:
        """The expansion around a known centre, by one pass, which can be added to that one.

        :raises ValueError: for another basis or likelihood, or one with free parameters.
        """
        basis, likelihood = self.source.basis, self.source.likelihood
        if not same_tree((basis, likelihood), (centre.basis, centre.likelihood)) or self._free:
            raise ValueError(
                f"{OWNER}: `centre` must be of the same basis and likelihood, without free parameters, not rotated."
            )
        factor = centre.centre.factor if centre.method == "averaged" else None
        point = Point(likelihood, centre.centre.mean, factor, np.zeros(0))
        sums = self.at(point)
        _require_finite(float(sums.log_prob))
        joint = of_sums(point, sums)
        record = Record(np.zeros((0, 4)), centre.method, centre.converged, "expanded around a given centre")
        return compressed(self.source, joint, None, centre.centre, sums, self.scale, record)

    @contextlib.contextmanager
    def _bar(self) -> Iterator[tqdm]:
        with progress_bar(self._progress, None, self._scan.num_rows) as bar:
            bar.set_description(f"pass {1 + len(self._passes)} over rows")
            yield bar

    def _on_all(self, reference: Reference, most_passes: int) -> tuple[State, bool, str]:
        averaged = self._method == "averaged"
        newton = Newton(self.at, self.source.likelihood, reference, self._recorded(reference))
        if self._joint is not None:
            u, lower = after_step(self._joint, reference)
        else:
            u, lower = self._on_some(reference)
        state = newton.at(u, lower if averaged else None)
        if not np.isfinite(state.objective):
            state = newton.at(np.zeros_like(u), np.eye(len(u)) if averaged else None)
        _require_finite(state.objective)
        before = len(self._passes)
        state, step, short = newton.climb(state, averaged, most_passes)
        if short:
            return state, True, f"the next step would be {step.length:.2g} standard deviations of the posterior"
        made = len(self._passes) - before
        limit = f"after {made} passes over all rows the next step would still be {step.length:.2g} standard deviations"
        return state, False, limit

    def _on_some(self, reference: Reference) -> tuple[np.ndarray, np.ndarray]:
        """A point, and the factor of the precision, for a pass over all rows, from passes over some."""
        n, likelihood = self._scan.num_rows, self.source.likelihood
        counts = [count for count in (self._first, GROWTH * self._first) if 4 * count < n] or [min(n, self._first)]
        found: tuple[np.ndarray, np.ndarray] | None = None
        for count, following in zip(counts, [*counts[1:], n], strict=True):
            rows = self._scan.some.take(slice(count))
            newton = Newton(self._over(rows), likelihood, reference, self._recorded(None, count))
            state = begin(newton, reference) if found is None else newton.at(*found)
            _require_finite(state.objective)
            if state.lower is None:
                state = newton.climb(state, False, PASSES_ON_SOME, SHORT_ON_SOME)[0]
                if self._method == "averaged":
                    state = newton.at(state.u, newton_step(state, reference).lower)
            if self._method == "averaged":
                state = newton.climb(state, True, PASSES_ON_SOME, SHORT_ON_SOME)[0]
            step = newton_step(state, reference)
            # With more rows there is more curvature.
            more = step.lower @ step.lower.T * (following / count) - (following / count - 1) * np.eye(len(step.lower))
            found = state.u + step.direction, np.linalg.cholesky(more)
        assert found is not None
        return found

    def _over(self, rows: LikelihoodRows) -> Callable[[Point], Sums]:
        return lambda point: sum_rows(self.source.basis, rows, point, single=self.source.single)

    def _recorded(self, reference: Reference | None, count: int | None = None) -> Callable[[State, float, float], None]:
        """What keeps a record of passes; of those over all rows also what they found."""

        def record(state: State, step: float, damping: float) -> None:
            self._passes.append((float(count or self._scan.num_rows), state.objective, step, damping))
            if reference is not None:
                self._complete, self._joint = state, of_state(self.source.likelihood, reference, state)
                if self._saved is not None:
                    self._saved.write(Saved.of(self._joint, self._passes, self._scan))

        return record

    def _result(self, reference: Reference, state: State, converged: bool, reason: str) -> CompressedLikelihood:
        if not converged:
            checks.warn(
                f"{OWNER} has not converged: {reason}. The expansion is around the best point so far; raise "
                "`max_passes`, or look at `.trace`."
            )
        joint = of_state(self.source.likelihood, reference, state)
        lower = newton_step(state, reference).lower if state.lower is None else state.lower
        centre = Centre(joint.centre[: reference.num_weights], covariance_root(reference, lower))
        record = Record(np.array(self._passes).reshape(-1, 4), self._method, converged, reason)
        return compressed(self.source, joint, reference, centre, state.sums, self.scale, record)


def compressed(
    source: Source,
    joint: Quadratic,
    reference: Reference | None,
    centre: Centre,
    sums: Sums,
    scale: float,
    record: Record,
) -> CompressedLikelihood:
    """The statistics that an expansion is, with parameters of the likelihood integrated out."""
    quadratic, parameters = (joint, None) if reference is None else integrated(joint, reference)
    K, described = source.likelihood.num_latents, dict(sums.described)
    # Each predictor of a row counts as a row of the Gaussian that takes its place.
    described |= {name: K * described[name] for name in ("num_rows", "x_square")}
    moments, of_quadratic = compress_quadratic(quadratic.curvature, quadratic.linear, quadratic.constant, described)
    return CompressedLikelihood(
        source.basis,
        moments,
        of_quadratic,
        source.likelihood,
        centre,
        parameters,
        Units(np.float64(scale), np.float64(sums.total_weight)),
        record,
    )


def begin(newton: Newton, reference: Reference) -> State:
    """Where to start on a few rows: a step from what outcomes alone say, or the prior mean if that is better."""
    smooth, size = newton.likelihood.is_smooth, len(reference.mean)
    zero, prior_factor = np.zeros(size), None if smooth else np.eye(size)
    first = newton.start(zero, prior_factor)
    states = [newton.at(zero, prior_factor)]
    if np.isfinite(first.sums.gradient).all() and np.isfinite(first.sums.curvature).all():
        step = newton_step(first, reference)
        states.append(newton.at(step.direction, None if smooth else step.lower))
    return max(states, key=lambda state: state.objective)


def after_step(joint: Quadratic, reference: Reference) -> tuple[np.ndarray, np.ndarray]:
    """The posterior that an expansion has under a prior: its mean in units of the prior, and the precision's factor."""
    F = reference.root
    precision = np.eye(len(F)) + F.T @ joint.curvature @ F
    lower = positive_factor(0.5 * (precision + precision.T))
    pull = joint.gradient + joint.curvature @ (joint.centre - reference.mean)
    return cho_solve((lower, True), F.T @ pull), lower


def _require_finite(objective: float) -> None:
    if not np.isfinite(objective):
        raise ValueError(
            f"{OWNER}: the log likelihood is not finite at the prior mean of the weights, nor at a fit to the "
            "outcomes. Offsets or outcomes are beyond what the likelihood can represent: check their units, and "
            "center offsets."
        )
