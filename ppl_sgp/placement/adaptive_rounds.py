"""One round of random features after the other, each compared with an exact GP on some of the rows."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np

from .._internal.random import host_generator
from ..bases.fourier import FourierBasis
from ..evidence import exact, log_evidence
from ..inference.curvature import laplace_draws
from ..inference.evidence_fit import EvidenceFit, fit_evidence
from ..kernels import Kernel
from ..models.kernel_model import KernelModel
from ..sites.tracing import draw_once, trace_at
from ..statistics.from_data import sufficient_statistics
from ..statistics.kept_rows import Rows
from ..statistics.statistics import SufficientStatistics
from .exact_on_subset import OnSubset, Subset, fit_exact, observed_by

#: Draws around a fit of which proposals are made.
DRAWS = 256
#: Standard deviation of the logarithm below which some rows inform of a lengthscale, and one that is added to it.
INFORMED, LEAST_SD = 0.35, 0.1
#: Of these standard deviations a lengthscale on some rows may be off by chance.
CHANCE = 2.0


class AdaptiveRound(NamedTuple):
    """One round of :func:`adapt_features`.

    :ivar log_evidence: of all rows at the type-II point, in nats.
    :ivar effective_features: how many of the m features carry prior variance there.
    :ivar lengthscale: of the kernel there, shape () or (d,), units of x.
    :ivar noise_scale: standard deviation of the noise there, units of y.
    :ivar lacking: nats by which the exact GP is better on its rows.
    :ivar mismatch: nats by which the basis differs on these rows from an exact GP at its own hyperparameters: a fit may
        find lengthscales at which few features happen to suit the data, and the basis is not its kernel.
    :ivar stretch: how many times longer lengthscales are than the exact GP's, on average over those that its rows
        inform of.
    :ivar worst_stretch: the factor between one of these and the exact GP's that is furthest from what two standard
        deviations there explain, and is left after them.
    :ivar worst_input: the column that it belongs to.
    """

    log_evidence: float
    effective_features: float
    lengthscale: np.ndarray
    noise_scale: float
    lacking: float
    mismatch: float
    stretch: float
    worst_stretch: float
    worst_input: int


class ExactReference(NamedTuple):
    """The exact GP on some of the rows, at the maximum of its evidence × hyper-prior.

    :ivar num_rows: how many rows.
    :ivar values: hyperparameters by site name.
    :ivar lengthscale: shape () or (d,), units of x.
    :ivar lengthscale_sd: standard deviation of its logarithm, by the curvature there; of the same shape.
    :ivar noise_scale: standard deviation of the noise, units of y.
    :ivar log_evidence: of these rows, in nats.
    """

    num_rows: int
    values: dict[str, Any]
    lengthscale: np.ndarray
    lengthscale_sd: np.ndarray
    noise_scale: float
    log_evidence: float


class Candidate(NamedTuple):
    """Features, the statistics of all rows with them, and the fit on these."""

    basis: FourierBasis
    statistics: SufficientStatistics
    fit: EvidenceFit


class Rounds:
    """The rounds of one data set.

    :ivar exact: the exact GP on some rows, once :meth:`start` has found it.
    """

    exact: ExactReference

    def __init__(
        self, key: jax.Array, all_rows: Rows, model: KernelModel, num_features: int, defensive: float, num_exact: int
    ) -> None:
        self.key, self.rows, self.model = key, all_rows, model
        self.num_features, self.defensive = num_features, defensive
        self.rng = host_generator(key, "adapt_features")
        smallest = self._pass(FourierBasis.from_data(key, all_rows.X, 2), all_rows)
        observed_by(draw_once(model, smallest))  # what the model refuses or warns of
        chosen = np.sort(self.rng.choice(all_rows.num_rows, min(all_rows.num_rows, num_exact), replace=False))
        self.subset = Subset(jax.tree.map(lambda leaf: leaf[chosen], all_rows), smallest)

    def start(self) -> dict[str, np.ndarray]:
        """Draws around the exact GP on some rows."""
        rows, fit = self.subset.rows, fit_exact(self.model, self.subset)
        draws = laplace_draws(OnSubset(self.model), self.subset, fit.values, self.rng, DRAWS)
        kernel, noise_scale = self._at(self.subset.statistics, fit.values)[:2]
        value = float(exact.evaluate(rows, kernel, noise_scale, rows.values))
        logs = np.log(self._parameters(draws)["lengthscale"])
        self.exact = ExactReference(
            rows.num_rows, fit.values, np.asarray(kernel.lengthscale), logs.std(axis=0), float(noise_scale), value
        )
        self.values, self.anchor = fit.values, draws
        return draws

    def next(self, draws: dict[str, np.ndarray], number: int) -> tuple[Candidate, AdaptiveRound]:
        """Features for these draws, and the fit on them."""
        family = type(self._kernel(draws, 0))
        basis = FourierBasis.from_draws(
            jax.random.fold_in(self.key, number),
            self.rows.X,
            self._parameters(draws),
            self.num_features,
            family,
            defensive=self.defensive,
        )
        statistics = self._pass(basis, self.rows)
        fit = fit_evidence(self.model, statistics, init=self.values)
        self.values = fit.values
        return Candidate(basis, statistics, fit), self._compare(basis, statistics, fit)

    def around(self, candidate: Candidate) -> dict[str, np.ndarray]:
        """As many draws around the fit of a round as around the exact GP, which is an anchor.

        Without it rounds of too few features move to longer and longer lengthscales, each drawn from the last.
        """
        draws = laplace_draws(self.model, candidate.statistics, candidate.fit.values, self.rng, DRAWS)
        return {name: np.concatenate([each[::2], self.anchor[name][::2]]) for name, each in draws.items()}

    def _compare(self, basis: FourierBasis, statistics: SufficientStatistics, fit: EvidenceFit) -> AdaptiveRound:
        kernel, noise_scale, prior = self._at(statistics, fit.values)
        some = self._pass(basis, self.subset.rows)
        of_basis = float(log_evidence(some, prior, noise_scale))
        same = float(exact.evaluate(self.subset.rows, kernel, noise_scale, self.subset.rows.values))
        longer = np.atleast_1d(np.log(np.asarray(kernel.lengthscale) / self.exact.lengthscale))
        sd = np.atleast_1d(self.exact.lengthscale_sd)
        features = float(basis.effective_features(kernel))
        return AdaptiveRound(
            fit.log_evidence,
            features,
            np.asarray(kernel.lengthscale),
            float(noise_scale),
            self.exact.log_evidence - of_basis,
            abs(same - of_basis),
            _typical(longer, sd),
            *_worst(longer, sd),
        )

    def _at(self, statistics: SufficientStatistics, values: dict[str, Any]) -> tuple[Any, Any, Any]:
        """Kernel, noise scale and prior of the weights at given hyperparameters."""
        site = observed_by(trace_at(self.model, statistics, values))
        return self.model.kernel_at(values, statistics.basis), site.noise_scale, site.prior

    def _kernel(self, draws: dict[str, np.ndarray], number: int) -> Kernel:
        return self.model.kernel_at({name: each[number] for name, each in draws.items()}, self.subset.statistics.basis)

    def _parameters(self, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Parameters of the kernel at draws of the sites, by the names of the kernel."""
        kernels = [self._kernel(draws, number) for number in range(DRAWS)]
        names = [field.name for field in dataclasses.fields(kernels[0])]  # type: ignore[arg-type]
        return {name: np.array([np.asarray(getattr(kernel, name)) for kernel in kernels]) for name in names}

    @staticmethod
    def _pass(basis: FourierBasis, some: Rows) -> SufficientStatistics:
        return sufficient_statistics(basis, some.X, some.y, row_weights=some.row_weights)


def _typical(longer: np.ndarray, sd: np.ndarray) -> float:
    """The factor behind logarithms of ratios of lengthscales, on average over those that are known; 1 if none is."""
    known = sd < INFORMED
    if not known.any():
        return 1.0
    return float(np.exp(np.average(longer[known], weights=1 / (sd[known] ** 2 + LEAST_SD**2))))


def _worst(longer: np.ndarray, sd: np.ndarray) -> tuple[float, int]:
    """The largest factor, up or down, of a known lengthscale beyond chance, at least 1; and its number."""
    beyond = np.where(sd < INFORMED, np.maximum(np.abs(longer) - CHANCE * sd, 0), 0)
    worst = int(np.argmax(beyond))
    return float(np.exp(beyond[worst])), worst
