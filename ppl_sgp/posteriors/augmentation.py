"""Predictive variances that grow away from the data, for bases whose features vanish there."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import jax
import numpy as np

from .._internal import checks
from ..bases.centred import CentredBasis
from ..bases.frozen_kernel import evaluate
from ..bases.rotated import RotatedBasis
from ..kernels import Kernel
from ..statistics.rows import validated
from .draws import Draws, KnownDraws, WeightDraws
from .prediction import Prediction


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


class NewCentres:
    """An augmentation for the draws of one model.

    :param augmentation: what was asked for.
    :param draws: posteriors of the weights.
    :param max_memory: bytes that intermediate results may take.
    :raises ValueError: if rows and draws do not fit together, or there is no kernel or no scale.
    """

    def __init__(self, augmentation: Augmentation, draws: Draws | KnownDraws, max_memory: float) -> None:
        X, y, omega = validated(draws.basis, augmentation.X, augmentation.y, augmentation.row_weights, "Augmentation")
        y = y[:, None] if y.ndim == 1 else y
        if y.shape[1] != draws.num_outputs:
            raise ValueError(f"Augmentation: `y` must have {draws.num_outputs} output(s); got {y.shape[1]}.")
        self._draws, self._X, self._y, self._max_memory = draws, X, y, max_memory
        self._omega = np.ones(len(X)) if omega is None else omega
        self._kernel = _kernel_of(draws.basis, augmentation.kernel)
        scale = np.sqrt(np.mean(y**2)) if augmentation.scale is None else augmentation.scale
        if not scale > 0:
            raise ValueError("Augmentation: y is identically zero, so it says nothing about `scale`; pass one.")
        self._scale = float(scale)

    def pointwise(self, X_new: np.ndarray, Phi: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Mean and variance (b, q, n) of f at inputs (n, d) with features (n, m), and noise (b, q), by batches."""
        own, square, cross, product = self._columns(X_new)
        for draws in self._draws:
            mean, variance, noise = draws.pointwise(Phi)
            noise_variance = noise[..., None] ** 2
            e = own - _products(draws, Phi, cross) / noise_variance
            s = (square - draws.variance(cross) / noise_variance) / noise_variance
            q = (product - draws.loc @ cross.T) / noise_variance
            information = (own / self._scale) ** 2 + s.clip(min=0)
            # A new feature that is zero at its own row, and at all others, changes nothing.
            gain = np.divide(e, information, out=np.zeros_like(e), where=information > 0)
            yield mean + gain * q, variance + gain * e, noise

    def _columns(self, X_new: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """k(x, x) (n,), ‖φ‖² (n,), Φᵀφ (n, m) and φᵀy (q, n) over the training rows, for each new row."""
        own = evaluate(_diagonal, (self._kernel,), X_new, np)
        m = self._draws.basis.num_features
        square, cross = np.zeros(len(X_new)), np.zeros((len(X_new), m))
        product = np.zeros((self._y.shape[1], len(X_new)))
        size = max(1, int(self._max_memory // (16 * (m + len(X_new)))))
        for start in range(0, len(self._X), size):
            part = slice(start, start + size)
            column = evaluate(_values, (self._kernel, X_new), self._X[part], np)
            weighted = self._omega[part, None] * column
            square += np.sum(weighted * column, axis=0)
            cross += weighted.T @ self._draws.basis.host_features(self._X[part])
            product += self._y[part].T @ weighted
        return own, square, cross, product


class AugmentedPrediction(Prediction):
    """A posterior predictive with a feature more at each new row: see :class:`~ppl_sgp.Augmentation`."""

    def __init__(self, *of_all: Any, centres: NewCentres) -> None:
        super().__init__(*of_all)
        self._centres = centres

    @cached_property
    def mean(self) -> np.ndarray:
        """Mean of f, and of y."""
        return self._shaped(self._row_moments[0])

    @cached_property
    def variance(self) -> np.ndarray:
        """Variance of f."""
        return self._shaped(self._row_moments[1])

    @cached_property
    def _row_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the mixture over draws, (q, n_new): the new features have no moments in common."""
        means, variances = [], []
        for _, mean, variance in self.components(noise=False):
            means.append(mean.mean(axis=0))
            variances.append(variance.mean(axis=0) + mean.var(axis=0))
        return np.concatenate(means, axis=-1), np.concatenate(variances, axis=-1)

    def _features_of(self, X_new: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():  # of rows far from all centres, which the new features are for
            warnings.filterwarnings("ignore", message="CentredBasis: .* lie far from all centres")
            return super()._features_of(X_new)

    def _pointwise(self, rows: slice, Phi: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        return self._centres.pointwise(self._X_new[rows], Phi)

    def sample_draws(self, key: jax.Array, indices: np.ndarray, noise: bool = True) -> np.ndarray:
        """Refused: each row is predicted by a model of its own."""
        raise ValueError("An augmented prediction has no joint draws over rows; predict without `augment` for those.")


def _products(draws: WeightDraws, Phi: np.ndarray, cross: np.ndarray) -> np.ndarray:
    """``φᵢᵀΣbᵢ`` for rows i of features and of vectors b, (b, q, n)."""
    if draws.independent:
        return draws.factor**2 @ (Phi * cross).T
    return np.array(
        [[np.sum((Phi @ factor) * (cross @ factor), axis=-1) for factor in outputs] for outputs in draws.factor]
    )


def _kernel_of(basis: Any, kernel: Kernel | None) -> Kernel:
    inner = basis.basis if isinstance(basis, RotatedBasis) else basis
    if kernel is None and isinstance(inner, CentredBasis):
        return inner.kernel
    if not isinstance(kernel, Kernel):
        raise ValueError(
            f"Augmentation: pass the `kernel` that new centres get, such as sgp.Matern52(0.3): {type(inner).__name__} "
            "has no centres of its own."
        )
    return kernel


def _values(tree: tuple[Any, ...], X: jax.Array) -> jax.Array:
    kernel, points = tree
    return kernel(X, points)


def _diagonal(tree: tuple[Any, ...], X: jax.Array) -> jax.Array:
    return tree[0].diag(X)
