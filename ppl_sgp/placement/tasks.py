"""What is made of the chosen basis: statistics of all rows, and a model of them."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from ..bases.constant import ConstantBasis
from ..bases.stack import stack
from ..inference.compress_likelihood import compress_likelihood
from ..likelihoods.likelihood import Likelihood
from ..priors import DiagonalPrior
from ..statistics.from_data import sufficient_statistics
from ..statistics.shifted import shifted
from ..statistics.statistics import SufficientStatistics
from .candidates import Candidate
from .hyperparameters import Hyperparameters
from .model import PlacedGP
from .outcomes import Outcomes, gaussian, working

#: Level of y over its noise up to which squares of y have the digits.
MOST_LEVEL = 1e3
#: Rows after an interruption of the pass, the first ones.
INTERRUPTED_ROWS = 5000
#: How far the amplitude of the first reference prior may be from the scale of predictors, as a factor.
FURTHEST_AMPLITUDE = 3.0

Made = tuple[SufficientStatistics, PlacedGP, dict[str, Any]]


class Task(abc.ABC):
    """Outcomes to be placed, and the pass over them.

    :ivar data: the rows as a Gaussian process sees them.
    :ivar passes: what statistics cost, in Gaussian passes.
    :ivar remarks: lines of the report.
    """

    data: Outcomes
    passes: ClassVar[int]

    @property
    def remarks(self) -> tuple[str, ...]:
        """None."""
        return ()

    @abc.abstractmethod
    def finish(self, best: Candidate, hyper: Hyperparameters, progress: bool | None, say: Callable[[str], Any]) -> Made:
        """Statistics of the rows, of the first ones after an interruption, their model, where to start scales."""

    def _announce(self, best: Candidate, say: Callable[[str], Any], what: str) -> Any:
        say(f"{what} {len(self.data.X):,} rows with {best.num_features:,} features")
        assert best.make is not None
        return stack(ConstantBasis(self.data.X.shape[1]), best.make())


@dataclasses.dataclass(frozen=True)
class GaussianTask(Task):
    """Gaussian noise."""

    data: Outcomes
    row_weights: np.ndarray | None
    passes: ClassVar[int] = 1

    @classmethod
    def of(cls, X: Any, y: Any, row_weights: Any) -> GaussianTask:
        """Of rows that were not looked at."""
        data = gaussian(X, y, row_weights)
        return cls(data, _kept(row_weights))

    def finish(self, best: Candidate, hyper: Hyperparameters, progress: bool | None, say: Callable[[str], Any]) -> Made:
        """One pass."""
        data, basis = self.data, self._announce(best, say, "a pass over")
        # Squares of y leave few digits for the noise beside a large level, so the pass is over y about it, in
        # coordinates that keep what is then added; or, where there are none such, keeps a root of the sums.
        digits = abs(data.level) < MOST_LEVEL * hyper.noise_scale
        method = "qr" if best.free and not digits else "auto"
        y, about = (data.y + data.level, 0.0) if best.free else (data.y, data.level)

        def made(rows: slice, progress: bool | None = None) -> SufficientStatistics:
            weights = None if self.row_weights is None else self.row_weights[rows]
            return sufficient_statistics(
                basis, data.X[rows], y[rows], row_weights=weights, method=method, progress=progress
            )

        statistics = _or_some(made, progress)
        say("rotation and type-II")
        if not best.free:
            statistics = statistics.rotate(DiagonalPrior(1.0))
            statistics = shifted(statistics, about * statistics.basis.rotation[0], about)  # type: ignore[attr-defined]
        lengthscale, unit = best.factor * hyper.lengthscale, data.average**0.5
        model = PlacedGP(hyper.family, lengthscale, best.free, data.level, data.scale, data.noise_unit * unit)
        return statistics, model, {"amplitude": best.score.amplitude, "noise_scale": best.score.noise_scale * unit}


@dataclasses.dataclass(frozen=True)
class LikelihoodTask(Task):
    """Any other likelihood with one predictor a row: the rows are those of its working outcomes."""

    data: Outcomes
    likelihood: Likelihood
    y: np.ndarray
    row_weights: np.ndarray | None
    offset: np.ndarray | None
    passes: ClassVar[int] = 10

    @classmethod
    def of(cls, likelihood: Likelihood, X: Any, y: Any, row_weights: Any, offset: Any) -> LikelihoodTask:
        """Of rows that were not looked at."""
        data, y = working(likelihood, X, y, row_weights, offset)
        return cls(data, likelihood, y, _kept(row_weights), _kept(offset))

    @property
    def remarks(self) -> tuple[str, ...]:
        """That scores are of working outcomes."""
        name = type(self.likelihood).__name__
        return (f"All of this is of working outcomes of {name}, with the noise that its curvature stands for.",)

    def finish(self, best: Candidate, hyper: Hyperparameters, progress: bool | None, say: Callable[[str], Any]) -> Made:
        """The passes of an expansion, around the prior of the type-II maximum."""
        data, basis = self.data, self._announce(best, say, "passes over")
        lengthscale = best.factor * hyper.lengthscale
        model = PlacedGP(hyper.family, lengthscale, best.free, data.level, data.scale, None)
        amplitude = data.scale * np.clip(best.score.amplitude / data.scale, 1 / FURTHEST_AMPLITUDE, FURTHEST_AMPLITUDE)
        dtype = jnp.result_type(float)
        reference = model.weight_prior(basis, jnp.asarray(lengthscale, dtype), jnp.asarray(amplitude, dtype))

        def made(rows: slice, progress: bool | None = None) -> SufficientStatistics:
            weights, offset = (None if each is None else each[rows] for each in (self.row_weights, self.offset))
            return compress_likelihood(
                basis,
                data.X[rows],
                self.y[rows],
                self.likelihood,
                reference,
                offset=offset,
                row_weights=weights,
                model=model,
                progress=progress,
            )

        statistics = _or_some(made, progress)
        say("rotation and type-II")
        if not best.free:
            statistics = statistics.rotate(DiagonalPrior(1.0))
        return statistics, model, {"amplitude": amplitude}


def _kept(rows: Any) -> np.ndarray | None:
    """What was given of each row, and has been checked, in float64."""
    return None if rows is None else np.asarray(rows, dtype=np.float64)


def _or_some(made: Callable[..., SufficientStatistics], progress: bool | None) -> SufficientStatistics:
    """Statistics of all rows; interrupted, of the first ones."""
    try:
        return made(slice(None), progress)
    except KeyboardInterrupt:
        return made(slice(INTERRUPTED_ROWS))
