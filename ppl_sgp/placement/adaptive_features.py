"""Rounds of random features: fit, draw around the fit, and draw the features anew from there.

References
    1. Evans, T. W. (2022), PhD thesis, section 5.3.1: importance-weighted features.
    2. Veach, E. & Guibas, L. (1995), Optimally combining sampling techniques: the balance heuristic.
    3. Cappé, O. et al. (2004), Population Monte Carlo: proposals adapted in rounds.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.random import random_key
from .._internal.shown import ShownFields
from ..bases.fourier import FourierBasis
from ..inference.evidence_fit import INTERRUPTED, EvidenceFit
from ..models import fourier_gp
from ..models.kernel_model import KernelModel
from ..statistics.kept_rows import Rows as KeptRows
from ..statistics.rows import validated
from ..statistics.statistics import SufficientStatistics
from .adaptive_rounds import AdaptiveRound, Candidate, ExactReference, Rounds

#: Rounds have settled when the evidence moved by less, in nats and in nats a row, and effective features by less, as a
#: share of all: features drawn anew for the same posterior move them by as much.
LEAST_NATS, LEAST_NATS_A_ROW, LEAST_SHARE = 2.0, 0.01, 0.1
#: Nats, nats a row, and factors of lengthscales by which an exact GP on some rows may differ.
MOST_NATS, MOST_NATS_A_ROW, MOST_STRETCH = 10.0, 0.1, 1.25


@dataclasses.dataclass(frozen=True, repr=False)
class AdaptedFeatures(ShownFields):
    """What :func:`adapt_features` found.

    :ivar basis: the features of the best round.
    :ivar statistics: those of all rows with this basis.
    :ivar model: the model, which takes these statistics.
    :ivar fit: its type-II fit on them.
    :ivar exact: the exact GP that rounds were compared with.
    :ivar trace: the rounds, one by one.
    :ivar settled: whether evidence and effective features had settled in the last round.
    :ivar too_poor: whether the exact GP is much better on its rows, has much shorter lengthscales or a very different
        one, or differs much at the same hyperparameters: then m features cannot carry the posterior, and rounds settle
        on what they can carry.
    :ivar message: all this in words, with what to do.
    """

    basis: FourierBasis
    statistics: SufficientStatistics
    model: KernelModel
    fit: EvidenceFit
    exact: ExactReference
    trace: tuple[AdaptiveRound, ...]
    settled: bool
    too_poor: bool
    message: str

    def init_strategy(self) -> Callable[..., Any]:
        """Starting values for NUTS: ``NUTS(model, init_strategy=adapted.init_strategy())``."""
        return self.fit.init_strategy()


def adapt_features(
    key: jax.Array,
    X: Any,
    y: Any,
    model: KernelModel | None = None,
    *,
    num_features: int,
    max_rounds: int = 5,
    defensive: float = 0.2,
    num_exact: int = 1500,
    row_weights: Any = None,
) -> AdaptedFeatures:
    """Random features that carry the posterior of the lengthscales, for a run over them that follows.

    Hyperparameters start from an exact GP on some rows, under the model's own hyper-priors, with their spread by
    Laplace's approximation. Each round draws features from these kernels, mixed with a share of the hyper-prior
    (:meth:`FourierBasis.from_draws`), takes the statistics of all rows, and fits the model; the next round draws around
    that fit. Rounds end when the evidence and the effective features settle, or fall behind. The round
    of the highest log joint is returned, of those that agree with the exact GP: features that are not many have
    hyperparameters of their own, at which they happen to suit the data.

    Features that are too few for the data settle as well, at lengthscales that are too long, with noise that is too
    large. So each round is compared with the exact GP, and a warning says if the outcome is ``too_poor``.

    A round costs a pass over the rows, O(n m²), and some tens of evidences, O(m³); the exact GP some hundred times
    O(k³) for k rows. In float64 only.

    .. code-block:: python

        adapted = sgp.adapt_features(key, X, y, num_features=1000)
        kernel = NUTS(adapted.model, init_strategy=adapted.init_strategy())
        MCMC(kernel, num_warmup=500, num_samples=500).run(key, adapted.statistics)

    :param key: a JAX random key.
    :param X: training inputs, shape (n, d).
    :param y: training outputs, shape (n,).
    :param model: a model of the statistics of a Fourier basis that knows its kernel, one with a lengthscale
        (:class:`~ppl_sgp.models.KernelModel`); default ``models.fourier_gp()``.
    :param num_features: m, even.
    :param max_rounds: rounds at most, at least 1.
    :param defensive: share of the hyper-prior in proposals, in [0, 1).
    :param num_exact: rows of the exact GP, chosen at random. On too few of them lengthscales may be another maximum's,
        and rounds start and stay there.
    :param row_weights: relative noise precisions, shape (n,).
    :raises ValueError: in float32, for several outputs, a model that does not know its kernel, or rows that
        ``sufficient_statistics`` refuses.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 10, (200, 2))
        >>> y = np.sin(0.6 * X[:, 0]) + np.cos(X[:, 1]) + 0.3 * rng.standard_normal(200)
        >>> with jax.enable_x64(True):  # or numpyro.enable_x64() at the start
        ...     adapted = sgp.adapt_features(jax.random.key(0), X, y, num_features=200)
        >>> adapted.settled, adapted.too_poor
        (True, False)
    """
    owner = "adapt_features"
    key, all_rows = random_key(key, owner), KeptRows(*validated(None, X, y, row_weights, owner))
    model = fourier_gp() if model is None else model
    _check(owner, all_rows, model)
    for name, number, least in (("max_rounds", max_rounds, 1), ("num_exact", num_exact, 2)):
        checks.whole_number(name, number, least, owner)
    rounds = Rounds(key, all_rows, model, num_features, defensive, num_exact)
    done: list[tuple[Candidate, AdaptiveRound]] = []
    settled, worse, ended = False, False, ""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The mean of y")  # the first look at the model has said it
        try:
            draws = rounds.start()
            while len(done) < max_rounds and not (settled or worse):
                done.append(rounds.next(draws, len(done)))
                if len(done) > 1:
                    before, after = (outcome for _, outcome in done[-2:])
                    settled = _close(before, after, all_rows.num_rows, num_features)
                    worse = after.log_evidence < before.log_evidence and _poor(after, rounds.exact.num_rows)
                if len(done) < max_rounds and not (settled or worse):
                    draws = rounds.around(done[-1][0])
        except KeyboardInterrupt:
            if not done:
                raise
            ended = f"{INTERRUPTED}, "
    reference, trace = rounds.exact, tuple(outcome for _, outcome in done)
    good = [each for each in done if not _poor(each[1], reference.num_rows)]
    alike = [each for each in done if each[1].mismatch <= _most_nats(reference.num_rows)]
    candidate, outcome = max(good or alike or done, key=lambda each: each[0].fit.log_joint)
    too_poor = not good
    message = ended + _message(trace, outcome, reference, settled, too_poor, num_features)
    if too_poor:
        checks.warn(f"adapt_features: {message}")
    return AdaptedFeatures(*candidate[:2], model, candidate.fit, reference, trace, settled, too_poor, message)


def _check(owner: str, all_rows: KeptRows, model: Any) -> None:
    if jnp.result_type(float) != jnp.float64:
        raise ValueError(f"{owner} compares with an exact GP, in float64 only; call numpyro.enable_x64() first.")
    if all_rows.num_outputs > 1:
        raise ValueError(f"{owner} takes one output, y of shape (n,); got {all_rows.num_outputs}. Adapt to each alone.")
    if not isinstance(model, KernelModel):
        raise ValueError(
            f"{owner} needs a model that knows its kernel, with `kernel_at(draw, basis)`, such as "
            f"`models.fourier_gp(sgp.Matern52)`; got {type(model).__name__}."
        )


def _most_nats(num_rows: int) -> float:
    """Nats that the log evidences of so many rows may differ by."""
    return MOST_NATS + MOST_NATS_A_ROW * num_rows


def _poor(outcome: AdaptiveRound, num_rows: int) -> bool:
    """Whether a round differs from the exact GP on so many rows by more than it may."""
    stretched = max(outcome.stretch, outcome.worst_stretch) > MOST_STRETCH
    return stretched or max(outcome.lacking, outcome.mismatch) > _most_nats(num_rows)


def _close(before: AdaptiveRound, after: AdaptiveRound, num_rows: int, num_features: int) -> bool:
    nats = abs(after.log_evidence - before.log_evidence)
    share = abs(after.effective_features - before.effective_features) / num_features
    return nats < LEAST_NATS + LEAST_NATS_A_ROW * num_rows and share < LEAST_SHARE


def _message(
    trace: tuple[AdaptiveRound, ...],
    outcome: AdaptiveRound,
    reference: ExactReference,
    settled: bool,
    too_poor: bool,
    num_features: int,
) -> str:
    count = f"{len(trace)} round{'s' * (len(trace) > 1)}"
    if too_poor:
        lengthscales = np.atleast_1d(outcome.lengthscale / reference.lengthscale)
        better = f"{outcome.lacking:.0f} nats better" if outcome.lacking >= 0.5 else "no better"
        one = ""
        if outcome.worst_stretch > MOST_STRETCH and len(lengthscales) > 1:
            one = f", that of column {outcome.worst_input} {lengthscales[outcome.worst_input]:.2g} times"
        return (
            f"after {count} {num_features} features are too few for these data. On {reference.num_rows} rows an exact "
            f"GP is {better} ({outcome.mismatch:.0f} nats off at the same hyperparameters), "
            f"with noise {reference.noise_scale:.3g} where this basis has {outcome.noise_scale:.3g}; lengthscales here "
            f"are {outcome.stretch:.2g} times as long{one}, and rounds "
            f"{'settle' if settled else 'end'} there, since what features cannot represent counts as noise. Take "
            "several times as many features; or hold the lengthscales of `.exact` fixed, in a `NystromBasis` of as "
            "many rows as you can afford (`sgp.place(key, X, y)` chooses for you)."
        )
    if settled or len(trace) == 1:
        return f"{'settled' if settled else 'stopped'} after {count}"
    return f"not settled after {count}: the evidence still moves with the draw of the features. Take more of them."
