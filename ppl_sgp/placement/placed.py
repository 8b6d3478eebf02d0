"""What placement returns, and why this basis."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from .._internal.shown import Shown
from ..bases.basis import Basis
from ..inference.evidence_fit import EvidenceFit
from ..kernels import Kernel
from ..statistics.statistics import SufficientStatistics
from .candidates import Candidate
from .model import PlacedGP


@dataclasses.dataclass(frozen=True, repr=False)
class PlacementReport:
    """Why this basis; prints as a table.

    :ivar hyperparameters: what the exact GP found, in words, a line for each kernel that was tried.
    :ivar candidates: the bases that were tried, as dictionaries of what the table shows: ``basis``, ``features``,
        ``lengthscales``, ``log_density`` (of rows held out, nats a row), ``log_evidence`` (of the rows learned from,
        nats), ``lost`` (variance of f that the basis lacks, over that of the noise).
    :ivar chosen: the number of the one that was chosen.
    :ivar reasons: why, and what it loses, in words.
    """

    hyperparameters: tuple[str, ...]
    candidates: tuple[dict[str, Any], ...]
    chosen: int
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        columns = ["", "basis", "features", "lengthscales", "log density", "log evidence", "lost"]
        rows = [columns]
        for index, row in enumerate(self.candidates):
            marks = [
                "->" if index == self.chosen else "",
                row["basis"],
                str(row["features"] or ""),
                row["lengthscales"],
            ]
            rows.append([*marks, *(_number(row[name], form) for name, form in NUMBERS.items())])
        widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*self.hyperparameters, *lines, *self.reasons])

    def __repr__(self) -> str:
        return str(self)


#: Columns of numbers in the table, and how they are shown.
NUMBERS = {"log_density": ".3f", "log_evidence": ".1f", "lost": ".2g"}


def _number(value: float, form: str) -> str:
    return format(value, form) if np.isfinite(value) else ""


def as_row(candidate: Candidate) -> dict[str, Any]:
    """A candidate as the report shows it."""
    lengthscales = "free" if candidate.free else "frozen"
    if candidate.factor != 1:
        lengthscales += f", {candidate.factor:g} times as long"
    return {
        "basis": candidate.name,
        "features": candidate.num_features,
        "lengthscales": lengthscales if candidate.make else "",
        "log_density": candidate.score.log_density,
        "log_evidence": candidate.score.log_evidence,
        "lost": candidate.lost,
    }


@dataclasses.dataclass(frozen=True, repr=False)
class Placed(Shown):
    """A basis that knows the kernel, with its statistics and a model; made by :func:`~ppl_sgp.place`.

    :ivar statistics: one pass over all rows, rotated where lengthscales are frozen, so that an evidence costs O(m).
    :ivar model: a picklable NumPyro model of the statistics: for ``MCMC``, :func:`~ppl_sgp.fit_evidence`,
        :func:`~ppl_sgp.predict`, :func:`~ppl_sgp.posterior`.
    :ivar kernel: the kernel at the type-II maximum, in the units of X and y, without the level.
    :ivar noise_scale: the noise there, a standard deviation in units of y; of Gaussian noise only.
    :ivar fit: that maximum.
    :ivar report: why this basis: print it.
    """

    statistics: SufficientStatistics
    model: PlacedGP
    fit: EvidenceFit
    report: PlacementReport

    @property
    def basis(self) -> Basis:
        """The level and the features, a stack of two."""
        return self.statistics.basis.unrotated

    @property
    def kernel(self) -> Kernel:
        """The kernel of f at the type-II maximum, without the level."""
        lengthscale = np.asarray(self.fit.values.get("lengthscale", self.model.lengthscale))
        return self.model.family(lengthscale, float(self.fit.values["amplitude"]))

    @property
    def noise_scale(self) -> float:
        """The standard deviation of the noise at the type-II maximum.

        :raises AttributeError: of other likelihoods, whose curvatures take its place.
        """
        if "noise_scale" not in self.fit.values:
            raise AttributeError("placed.noise_scale: this likelihood has no Gaussian noise.")
        return float(self.fit.values["noise_scale"])

    def facts(self) -> dict[str, Any]:
        """The size of the basis, the kernel, and what the type-II maximum has."""
        row, sizes = self.report.candidates[self.report.chosen], self.statistics
        noise = {} if self.model.noise_unit is None else {"noise_scale": self.noise_scale}
        return {
            "basis": row["basis"],
            "num_rows": sizes.num_rows,
            "num_features": sizes.num_features,
            "lengthscales": row["lengthscales"],
            "kernel": repr(self.kernel),
            **noise,
            "log_evidence": self.fit.log_evidence,
        }

    def init_strategy(self) -> Callable[..., Any]:
        """Starting values for NUTS: ``NUTS(placed.model, init_strategy=placed.init_strategy())``."""
        return self.fit.init_strategy()
