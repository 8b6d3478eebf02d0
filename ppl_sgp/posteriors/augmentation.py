"""Predictive variances that grow away from the data, for bases whose features vanish there."""

from __future__ import annotations

import dataclasses
import warnings
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np

from .._internal import checks
from ..bases.basis import Basis
from ..bases.frozen_kernel import evaluate
from ..kernels import Kernel
from ..statistics.same_rows import require_same_rows
from ..statistics.statistics import SufficientStatistics
from .weight_prediction import WeightPrediction
from .weights import WeightDraws


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """One more feature for each new row, a kernel centred there: pass it as ``predict(..., augment=...)``.

    Far from all centres a relevance vector machine is certain of f = 0, and its variances shrink where they should
    grow. Rasmussen & Quiñonero-Candela (2005) add ``k(·, x)`` to the model at each input x that is predicted, with a
    weight of its own and the posterior that the training rows give it; with ``q = φᵀC⁻¹y``, ``s = φᵀC⁻¹φ`` and
    ``e = k(x, x) − φ(x)ᵀΣΦᵀφ/σ²`` for the new column φ over the training rows and prior variance τ² of its weight,

        mean += e·q/(τ⁻² + s),   variance += e²/(τ⁻² + s).

    Evans (2022), proposition D.1, is the case that neglects the correlation with other weights (e = k(x, x), and s
    without C's features); it inflates variances within the data, and is printed for y though it is that of f.

    The cost grows with n, since rows cannot be compressed for centres that are not known yet: O(n·m) a new row, and
    O(m²) a new row and draw. Rows have no joint distribution, each being predicted by a model of its own.

    :param X: the training inputs, all of them, shape (n, d).
    :param y: the training outputs, shape (n,) or (n, q).
    :param kernel: default that of the :class:`~ppl_sgp.CentredBasis`.
    :param scale: standard deviation of f far from all data; default the root mean square of y.
    :param row_weights: the relative noise precisions given to ``sufficient_statistics``, if any.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(-5, 5, 60)[:, None]
        >>> y = np.sinc(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=60)
        >>> stats = sgp.sufficient_statistics(sgp.CentredBasis(X, sgp.SquaredExponential(1.0), bias=False), X, y)
        >>> fit = sgp.fit_relevance_vectors(stats)
        >>> healed = fit.predict([[0.0], [20.0]], augment=sgp.Augmentation(X, y))
        >>> bool(abs(healed.variance[1] - np.mean(y**2)) < 1e-6), bool(healed.variance[0] < 0.01)
        (True, True)
    """

    X: Any
    y: Any
    kernel: Kernel | None = None
    scale: float | None = None
    row_weights: Any = None

    def __post_init__(self) -> None:
        """Refuse a scale that is not positive."""
        checks.positive("scale", 1.0 if self.scale is None else self.scale, "Augmentation")


class Columns(NamedTuple):
    """New features at n inputs, φ over the training rows: k(x, x) (n,), ‖φ‖² (n,), Φᵀφ (n, m) and φᵀy (q, n)."""

    own: np.ndarray
    square: np.ndarray
    cross: np.ndarray
    product: np.ndarray


class NewCentres:
    """An augmentation for the weights of one model.

    :param augmentation: what was asked for.
    :param statistics: the statistics that the weights were inferred from.
    :param max_memory: bytes that intermediate results may take.
    :raises ValueError: if the rows are not those of the statistics, or there is no kernel or no scale.
    """

    def __init__(self, augmentation: Augmentation, statistics: SufficientStatistics, max_memory: float) -> None:
        rows = (augmentation.X, augmentation.y, augmentation.row_weights)
        X, y, omega = require_same_rows(statistics, *rows, owner="Augmentation")
        y = y[:, None] if y.ndim == 1 else y
        self._basis, self._X, self._y, self._max_memory = statistics.basis, X, y, max_memory
        self._omega = np.ones(len(X)) if omega is None else omega
        self._kernel = kernel_of(statistics.basis, augmentation.kernel)
        scale = np.sqrt(np.mean(y**2)) if augmentation.scale is None else augmentation.scale
        if not scale > 0:
            raise ValueError("Augmentation: y is identically zero, so it says nothing about `scale`; pass one.")
        self._scale = float(scale)

    def moments(self, draws: WeightDraws, Phi: np.ndarray, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (b, q, n) of f at inputs with features (n, m)."""
        own, square, cross, product = columns
        mean, variance, noise_variance = draws.mean(Phi), draws.variance(Phi), draws.noise_scale[..., None] ** 2
        e = own - _products(draws, Phi, cross) / noise_variance
        s = (square - draws.variance(cross) / noise_variance) / noise_variance
        q = (product - draws.mean(cross)) / noise_variance
        information = (own / self._scale) ** 2 + s.clip(min=0)
        # A new feature that is zero at its own row, and at all others, changes nothing.
        gain = np.divide(e, information, out=np.zeros_like(e), where=information > 0)
        return mean + gain * q, variance + gain * e

    def columns(self, X_new: np.ndarray) -> Columns:
        """What the training rows say of the new features of some inputs."""
        own = evaluate(_diagonal, (self._kernel,), X_new, np)
        m = self._basis.num_features
        square, cross = np.zeros(len(X_new)), np.zeros((len(X_new), m))
        product = np.zeros((self._y.shape[1], len(X_new)))
        size = max(1, int(self._max_memory // (16 * (m + len(X_new)))))
        for start in range(0, len(self._X), size):
            part = slice(start, start + size)
            column = evaluate(_values, (self._kernel, X_new), self._X[part], np)
            weighted = self._omega[part, None] * column
            square += np.sum(weighted * column, axis=0)
            cross += weighted.T @ self._basis.host_features(self._X[part])
            product += self._y[part].T @ weighted
        return Columns(own, square, cross, product)


class AugmentedPrediction(WeightPrediction):
    """A posterior predictive with a feature more at each new row: see :class:`~ppl_sgp.Augmentation`."""

    def __init__(self, *of_all: Any, centres: NewCentres, residual_variance: bool) -> None:
        super().__init__(*of_all, residual_variance=residual_variance)
        self._centres = centres

    @cached_property
    def row_moments(self) -> tuple[np.ndarray, np.ndarray]:
        return self._row_moments_by_components()  # the new features have no moments in common

    def _features_of(self, X_new: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():  # of rows far from all centres, which the new features are for
            warnings.filterwarnings("ignore", message="CentredBasis: .* lie far from all centres")
            return super()._features_of(X_new)

    def _at(self, rows: slice) -> tuple[np.ndarray, Columns]:
        return self._features(rows), self._centres.columns(self._X_new[rows])

    def _moments_of(self, draws: WeightDraws, given: tuple[np.ndarray, Columns]) -> tuple[np.ndarray, np.ndarray]:
        return self._centres.moments(draws, *given)

    def sample_draws(self, key: jax.Array, indices: np.ndarray, noise: bool | None = None) -> np.ndarray:
        """Refused: each row is predicted by a model of its own."""
        self._refuse("sample")

    def _joint(self, noise: bool, owner: str) -> NoReturn:
        self._refuse(owner)

    def _refuse(self, owner: str) -> NoReturn:
        raise ValueError(
            f"{owner}: an augmented prediction has no joint draws over rows, as each is predicted by a model of its "
            "own; predict without `augment` for those."
        )


def _products(draws: WeightDraws, Phi: np.ndarray, cross: np.ndarray) -> np.ndarray:
    """``φᵢᵀΣbᵢ`` for rows i of features and of vectors b, (b, q, n)."""
    if draws.independent:
        return draws.factor**2 @ (Phi * cross).T
    return np.array(
        [[np.sum((Phi @ factor) * (cross @ factor), axis=-1) for factor in outputs] for outputs in draws.factor]
    )


def kernel_of(basis: Basis, kernel: Kernel | None) -> Kernel:
    """The kernel of new centres: the one that was asked for, or that of the basis."""
    chosen = basis.centre_kernel if kernel is None else kernel
    if not isinstance(chosen, Kernel):
        raise ValueError(
            "Augmentation: pass the `kernel` that new centres get, such as sgp.Matern52(0.3): "
            f"{type(basis.unrotated).__name__} has no centres of its own."
        )
    return chosen


def _values(tree: tuple[Any, ...], X: jax.Array) -> jax.Array:
    kernel, points = tree
    return kernel(X, points)


def _diagonal(tree: tuple[Any, ...], X: jax.Array) -> jax.Array:
    return tree[0].diag(X)
