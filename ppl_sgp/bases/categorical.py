"""Indicators of the levels of a category: varying intercepts, and with other bases varying functions."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from ..kernels import Categorical, Kernel
from ..priors import DensePrior, DiagonalPrior, WeightPrior
from .basis import Basis, common_variance
from .inputs import checked_kernel
from .residual import Residual

UNSEEN = ("refuse", "zero", "prior")


@pytree_dataclass
class CategoricalBasis(Basis):
    """One feature a level of a category, which is 1 where the input is that level and else 0.

    Its weights are the values of f at the levels. In :func:`~ppl_sgp.tensor` with another basis it makes a function
    a level, with hyperparameters that all levels share: ``tensor(group, LinearBasis(1))`` has varying intercepts and
    slopes, ``tensor(group, LaplaceBasis(...))`` a Gaussian process a group. Groups may have any number of rows.

    With ``sum_to_zero`` the K values sum to zero, so that a constant beside them is their mean: the features are K − 1
    orthonormal contrasts (Helmert's), and equal independent priors of their weights treat all levels alike. f then has
    the kernel of the levels less its means over them: for :class:`~ppl_sgp.Categorical`
    ``amplitude²(1[x = x'] − 1/K)``, standard deviations of ``amplitude √(1 − 1/K)``.

    :param levels: the values that stand for levels in X, shape (K,): any distinct numbers. An integer K means codes
        from 0 to K − 1.
    :param sum_to_zero: whether the values at the levels sum to zero.
    :param unseen: what becomes of other values in X. ``"refuse"``: an error that names row and value (under ``jit``,
        where they cannot be read, features are NaN). ``"zero"``: all features are zero, and f has nothing of this
        basis. ``"prior"``: the same, and predictions add the variance of a level of which nothing is known, if all
        weights share one variance; covariances and joint draws have one such level for all rows of it.
    :param labels: a name of each level for results and messages, such as ``["AA", "UA"]``; default the values.
    :raises ValueError: for levels that are not distinct finite numbers (in float32, to be safe in either precision), or
        other values of the options.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> basis = sgp.CategoricalBasis([10, 20, 30])
        >>> basis.host_features([[30], [10]]).tolist()
        [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
        >>> basis.weight_prior(sgp.Categorical(2.0)).scale.tolist()
        [2.0, 2.0, 2.0]
    """

    levels: Any
    sum_to_zero: bool = static()
    unseen: str = static()
    labels: tuple[str, ...] = static()

    def __init__(
        self,
        levels: int | Sequence[float] | Any,
        *,
        sum_to_zero: bool = False,
        unseen: str = "refuse",
        labels: Sequence[str] | None = None,
    ) -> None:
        owner = "CategoricalBasis"
        values = _checked_levels(levels, owner)
        if unseen not in UNSEEN:
            raise ValueError(f"{owner}: `unseen` must be one of {', '.join(map(repr, UNSEEN))}; got {unseen!r}.")
        if sum_to_zero and (len(values) < 2 or unseen == "prior"):
            raise ValueError(
                f"{owner}: `sum_to_zero` needs two levels or more, and no `unseen='prior'`, since values that sum to "
                f"zero say nothing of further ones; got {len(values)} levels and unseen={unseen!r}."
            )
        names = [f"{value:.6g}" for value in values] if labels is None else list(labels)
        if len(names) != len(values) or not all(isinstance(name, str) for name in names):
            raise ValueError(
                f"{owner}: `labels` must be one text for each of the {len(values)} levels; got {labels!r}. Values that "
                "occur in X are the argument `levels`."
            )
        object.__setattr__(self, "levels", values)
        object.__setattr__(self, "sum_to_zero", bool(sum_to_zero))
        object.__setattr__(self, "unseen", unseen)
        object.__setattr__(self, "labels", tuple(map(str, names)))

    @classmethod
    def from_data(cls, X: Any, **options: Any) -> CategoricalBasis:
        """A basis of the values that occur in a column, in increasing order.

        :param X: training inputs, shape (n, 1).
        :param options: as the class takes them.
        :raises ValueError: if ``X`` is not a finite (n, 1) array, or as the class.

        .. doctest::

            >>> import numpy as np, ppl_sgp as sgp
            >>> sgp.CategoricalBasis.from_data(np.array([[3], [1], [3]])).levels.tolist()
            [1.0, 3.0]
        """
        return cls(np.unique(checks.finite_inputs(X, 1, "CategoricalBasis.from_data")), **options)

    @property
    def num_levels(self) -> int:
        """The number of levels K."""
        return self.levels.shape[-1]

    @property
    def num_features(self) -> int:
        """The number of features m: one a level, or one less if values sum to zero."""
        return self.num_levels - self.sum_to_zero

    @property
    def input_dim(self) -> int:
        """The number of input columns: 1."""
        return 1

    @property
    def constant_features(self) -> np.ndarray:
        """Whether each feature is a constant, shape (m,): a single level that all rows must have is."""
        return np.full(self.num_features, self.num_levels == 1 and self.unseen == "refuse")

    def feature_names(self, inputs: Sequence[str]) -> list[str]:
        """The name of the input with the labels of the levels, ``carrier = AA``, or ``carrier, contrast 1``, …"""
        if self.sum_to_zero:
            return [f"{inputs[0]}, contrast {j}" for j in range(1, self.num_levels)]
        return [f"{inputs[0]} = {label}" for label in self.labels]

    def admissible(self, X: np.ndarray) -> np.ndarray:
        """The nearest levels."""
        levels = np.asarray(self.levels)
        return levels[np.argmin(np.abs(X - levels[None, :]), axis=1)][:, None]

    def features(self, X: Any, xp: ModuleType) -> Any:
        same = X == xp.asarray(self.levels, dtype=X.dtype)[None, :]
        features = same.astype(X.dtype)
        if self.sum_to_zero:
            features = features @ xp.asarray(_contrasts(self.num_levels), dtype=X.dtype)
        return xp.where(same.any(axis=1, keepdims=True), features, xp.nan) if self.unseen == "refuse" else features

    def weight_prior(self, kernel: Kernel) -> DiagonalPrior | DensePrior:
        """The covariance of f at the levels, or of their contrasts; f then has the kernel exactly.

        :param kernel: :class:`~ppl_sgp.Categorical` for independent levels; or any kernel of one input, evaluated at
            the values of the levels. Its hyperparameters may be traced.
        :return: of independent levels a :class:`~ppl_sgp.DiagonalPrior` of shape (m,), in O(m); else a
            :class:`~ppl_sgp.DensePrior`, in O(K²), whose evidence needs float64. A covariance of your own, such as one
            with an LKJ prior, is a ``DensePrior`` too.
        :raises ValueError: if ``kernel`` is no kernel.
        """
        remedy = "Pass `sgp.Categorical(amplitude)` for independent levels."
        kernel = checked_kernel(kernel, Kernel, "CategoricalBasis", remedy)  # type: ignore[type-abstract]
        dtype = checks.common_dtype(*jax.tree.leaves(kernel))
        if isinstance(kernel, Categorical):
            log_amplitude = jnp.log(jnp.asarray(kernel.amplitude, dtype))
            return DiagonalPrior.from_log_scale(jnp.broadcast_to(log_amplitude, (self.num_features,)))
        covariance = kernel(jnp.asarray(self.levels, dtype)[:, None])
        if self.sum_to_zero:
            H = jnp.asarray(_contrasts(self.num_levels), dtype)
            covariance = H.T @ covariance @ H
        return DensePrior(covariance)

    def residual_variance(self, X: Any) -> np.ndarray:
        """Prior variance of unseen levels in units of that of the others, shape (1, n); (0, n) unless they have it."""
        if self.unseen != "prior":
            return super().residual_variance(X)
        X = self._host_inputs(X)
        return (X != np.asarray(self.levels)[None, :]).all(axis=1).astype(np.float64)[None]

    def residual(self, X: Any) -> Residual:
        """Unseen levels as functions: rows of one level share it."""
        root = self.residual_variance(X)
        levels = np.unique(self._host_inputs(X)[:, 0], return_inverse=True)[1]
        return Residual(root, np.broadcast_to(levels, root.shape))

    def residual_amplitude(self, prior: WeightPrior) -> jax.Array:
        """The common prior variance of the weights, shape ``batch + (1,)``; zero if they do not share one."""
        return common_variance(prior)[..., None] if self.unseen == "prior" else super().residual_amplitude(prior)

    def not_finite_at(self, x: np.ndarray) -> str | None:
        if self.unseen != "refuse" or (x == np.asarray(self.levels)).any():
            return None
        known = ", ".join(f"{value:.6g}" for value in self.levels[:8]) + ", …" * (self.num_levels > 8)
        return (
            f"CategoricalBasis: {x[0]:.6g} is none of its {self.num_levels} levels, {known}. Make the basis with all "
            'levels that occur, or with `unseen="prior"` (or "zero") for new ones, or leave those rows out.'
        )


def _checked_levels(levels: Any, owner: str) -> np.ndarray:
    if np.ndim(levels) == 0:
        return np.arange(checks.whole_number("levels", levels, 1, owner), dtype=np.float64)
    values = checks.host_numbers("levels", levels, owner).astype(np.float64)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise ValueError(f"{owner}: `levels` must be an array (K,) of finite numbers; got {levels!r}.")
    if len(np.unique(values.astype(np.float32))) < len(values):
        raise ValueError(
            f"{owner}: `levels` must be distinct, also when rounded to float32; some of the {len(values)} are equal. "
            "Encode levels as integers 0, 1, …, with their names as `labels`."
        )
    return values


def _contrasts(num_levels: int) -> np.ndarray:
    """Helmert's orthonormal contrasts H, (K, K − 1): ``HᵀH = I``, ``HHᵀ = I − 11ᵀ/K``."""
    j = np.arange(1.0, num_levels)
    rows = np.arange(num_levels)[:, None]
    return np.where(rows < j, 1.0, np.where(rows == j, -j, 0.0)) / np.sqrt(j * (j + 1))
