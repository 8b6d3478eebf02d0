"""Tensor products of bases and of priors: product kernels, functions that differ by group or season."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from types import ModuleType
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from .._internal import checks
from .._internal.pytree import pytree_dataclass
from ..kernels import Kernel
from ..priors import DiagonalPrior, KroneckerPrior, WeightPrior
from .basis import Basis, common_variance
from .composite import combined, first_known, own_priors
from .interpolation_weights import across
from .residual import Residual


@pytree_dataclass
class TensorBasis(Basis):
    """All products of one feature of each basis, ``φ₁(x) ⊗ φ₂(x) ⊗ …``; the last one's vary fastest.

    Made by :func:`tensor`. With the product of their priors f has the product of their kernels. The number of features
    is the product of theirs, and features cost O(n m).

    :param bases: the bases, all of the same inputs.
    """

    bases: tuple[Basis, ...]

    @property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(basis.num_features for basis in self.bases)

    @property
    def num_features(self) -> int:
        """The number of features m: the product of those of the bases."""
        return math.prod(self._sizes)

    @property
    def input_dim(self) -> int:
        """The number of input columns d."""
        return self.bases[0].input_dim

    def weight_prior(self, kernels: Kernel | Sequence[Kernel | WeightPrior]) -> DiagonalPrior | KroneckerPrior:  # type: ignore[override]
        """The product of the priors of the bases for a kernel each. f has the product of the kernels as its covariance.

        The product has one amplitude: let one kernel have it, and leave those of the others at one.

        :param kernels: a kernel for each basis, as its own ``weight_prior`` takes it, or a prior of its weights; or
            a product ``k1 * k2 * …`` of as many kernels, in the order of the bases.
        :return: a :class:`~ppl_sgp.DiagonalPrior` if all are, else a :class:`~ppl_sgp.KroneckerPrior`, whose
            evidence needs float64.
        :raises ValueError: unless there is one kernel or prior of the right size for each basis, of mean zero.
        """
        each = kernels.factors if isinstance(kernels, Kernel) else kernels
        return tensor(*own_priors(self.bases, each, "TensorBasis"))

    @property
    def constant_features(self) -> np.ndarray:
        """Whether each feature is a constant, shape (m,), Boolean: products of constants are."""
        return functools.reduce(np.kron, [basis.constant_features for basis in self.bases])

    def feature_names(self, inputs: Sequence[str]) -> list[str] | None:
        """Those of the bases, ``a × b``, if all have them."""
        names = [own for own in (basis.feature_names(inputs) for basis in self.bases) if own is not None]
        return [" × ".join(each) for each in itertools.product(*names)] if len(names) == len(self.bases) else None

    @property
    def approximates_kernel(self) -> bool:
        """Whether the features of any of the bases stand for a kernel."""
        return any(basis.approximates_kernel for basis in self.bases)

    @property
    def bounded(self) -> bool:
        """Whether the features of any of the bases mean nothing outside a box."""
        return any(basis.bounded for basis in self.bases)

    def effective_share(self, log_variance: jax.Array) -> jax.Array:
        """The least share of the bases, each with the prior variances summed over the features of the others."""
        log_variance = self._on_grid(log_variance)
        first = log_variance.ndim - len(self.bases)
        shares = []
        for i, basis in enumerate(self.bases):
            others = tuple(first + j for j in range(len(self.bases)) if j != i)
            shares.append(basis.effective_share(logsumexp(log_variance, axis=others) if others else log_variance))
        return jnp.min(jnp.stack(shares))

    def residual_variance(self, X: Any) -> np.ndarray:
        """Prior variance that f lacks because some of the bases lack theirs, shape (p, n), float64, at least 0.

        With ``vᵢ = qᵢ + rᵢ`` of each such basis, ``qᵢ = φᵢᵀφᵢ`` and rᵢ what it lacks, a product with all other
        features φ lacks ``(Π vᵢ − Π qᵢ) φ²``: a row for each of those, p in number.
        """
        lacking = self._lacking
        if not lacking:
            return super().residual_variance(X)
        X = self._host_inputs(X)
        have, whole = np.ones(len(X)), np.ones(len(X))
        for i in lacking:
            amplitude = np.asarray(_unit_amplitude(self.bases[i]), dtype=np.float64)
            own = np.sum(self.bases[i].features(X, np) ** 2, axis=1)
            whole = whole * (own + amplitude @ self.bases[i].residual_variance(X))
            have = have * own
        others = [basis.features(X, np) ** 2 for i, basis in enumerate(self.bases) if i not in lacking]
        return across([(whole - have).clip(min=0)[:, None], *others], operator.mul).T

    def residual(self, X: Any) -> Residual:
        """The same as functions: unseen levels, or cells of several categories, have one of the other inputs each."""
        variance, lacking = self.residual_variance(X), self._lacking
        groups = [self.bases[i].residual(X).group for i in lacking]
        if not lacking or any((group < 0).any() or len(group) != 1 for group in groups):
            return Residual.of_rows(variance)
        X = self._host_inputs(X)
        others = [basis.features(X, np) for i, basis in enumerate(self.bases) if i not in lacking]
        signs = np.sign(across([np.ones((len(X), 1)), *others], operator.mul)).T
        cells = np.unique(np.concatenate(groups), axis=1, return_inverse=True)[1]
        return Residual(np.sqrt(variance) * signs, np.broadcast_to(cells.reshape(1, -1), variance.shape))

    def residual_amplitude(self, prior: WeightPrior) -> jax.Array:
        """The prior variance that weights share along the bases that lack some, shape ``batch + (p,)``; else zero."""
        lacking, batch = self._lacking, prior.batch_shape
        if not lacking:
            return super().residual_amplitude(prior)
        grid = self._on_grid(jnp.broadcast_to(prior.log_variance, (*batch, prior.log_variance.shape[-1])))
        if not prior.independent.all():
            grid = jnp.full_like(grid, -jnp.inf)
        grid = jnp.moveaxis(grid, [len(batch) + i for i in lacking], range(-len(lacking), 0))
        along = math.prod(self._sizes[i] for i in lacking)
        grid = grid.reshape(*batch, self.num_features // along, along)
        return common_variance(DiagonalPrior.from_log_scale(grid / 2))

    @property
    def _lacking(self) -> list[int]:
        """Which of the bases may lack prior variance of their kernels."""
        return [i for i, basis in enumerate(self.bases) if _unit_amplitude(basis).shape[-1]]

    def _on_grid(self, log_variance: jax.Array) -> jax.Array:
        """Entries ``batch + (m,)``, or one for all, along an axis a basis."""
        batch = log_variance.shape[:-1]
        return jnp.broadcast_to(log_variance, (*batch, self.num_features)).reshape(*batch, *self._sizes)

    def admissible(self, X: np.ndarray) -> np.ndarray:
        """Those of all bases, one after the other."""
        return functools.reduce(lambda inputs, basis: basis.admissible(inputs), self.bases, X)

    def check_domain(self, X: Any) -> None:
        for basis in self.bases:
            basis.check_domain(X)

    def features(self, X: Any, xp: ModuleType) -> Any:
        return across([basis.features(X, xp) for basis in self.bases], operator.mul)

    @property
    def has_float32_features(self) -> bool:
        """Whether one of the bases has a way in float32."""
        return any(basis.has_float32_features for basis in self.bases)

    def fill_features(self, X: np.ndarray, out: np.ndarray, single: bool = False) -> None:
        """Products of the features of each basis, as it fills them itself."""
        each = [np.empty((len(X), size)) for size in self._sizes]
        for basis, own in zip(self.bases, each, strict=True):
            basis.fill_features(X, own, single)
        *others, last = each
        first = across([np.ones((len(X), 1)), *others], operator.mul)
        products = out.reshape(len(X), first.shape[1], last.shape[1])  # splits an axis, so it is the same memory
        np.multiply(first[:, :, None], last[:, None, :], out=products)

    def name_of(self, feature: int) -> str:
        numbers = np.unravel_index(feature, self._sizes)
        return " × ".join(basis.name_of(int(number)) for basis, number in zip(self.bases, numbers, strict=True))

    def not_finite_at(self, x: np.ndarray) -> str | None:
        return first_known(self.bases, x)


def _unit_amplitude(basis: Basis) -> jax.Array:
    """Squared amplitudes (p,) of what a basis lacks where all its weights have variance one."""
    return basis.residual_amplitude(DiagonalPrior.from_log_scale(jnp.zeros(basis.num_features)))


@overload
def tensor(*parts: Basis) -> TensorBasis: ...
@overload
def tensor(*parts: WeightPrior) -> DiagonalPrior | KroneckerPrior: ...
def tensor(*parts: Any) -> TensorBasis | DiagonalPrior | KroneckerPrior:
    """The tensor product of bases, or of the priors over their weights: f has the product of the kernels.

    :param parts: bases of the same inputs (:class:`~ppl_sgp.SelectedColumns` for some of them); or priors of mean
        zero, in the order of the bases, with one entry a weight.
    :return: for bases a :class:`TensorBasis`; for priors a :class:`~ppl_sgp.DiagonalPrior` if all are, else a
        :class:`~ppl_sgp.KroneckerPrior`.
    :raises ValueError: for a mixture or anything else, bases of different inputs, or priors of unknown size or with a
        mean.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> group = sgp.SelectedColumns(sgp.CategoricalBasis(3), [0], input_dim=2)
        >>> line = sgp.SelectedColumns(sgp.LinearBasis(1), [1], input_dim=2)
        >>> basis = sgp.tensor(group, line)  # an intercept and a slope a group
        >>> basis.host_features([[1.0, 5.0]]).tolist()
        [[0.0, 0.0, 1.0, 5.0, 0.0, 0.0]]
        >>> basis.weight_prior((sgp.Categorical(), sgp.Linear(weight_scale=2.0, bias=3.0))).scale.tolist()
        [3.0, 2.0, 3.0, 2.0, 3.0, 2.0]
    """
    return combined("tensor", parts, TensorBasis, _product_of_diagonals, KroneckerPrior)


def _product_of_diagonals(priors: tuple[DiagonalPrior, ...]) -> DiagonalPrior:
    for index, prior in enumerate(priors):
        if prior.num_weights is None or prior.mean is not None:
            raise ValueError(
                f"tensor: prior {index} must have one entry a weight and mean zero; got {prior!r}. Write "
                "`DiagonalPrior(jnp.full(m, scale))`, or let `TensorBasis.weight_prior` give it its size; a mean is of "
                "the product, as in `DiagonalPrior(tensor(p1, p2).scale, mean)`."
            )
    dtype = checks.common_dtype(*jax.tree.leaves(priors))
    batch = jnp.broadcast_shapes(*(prior.batch_shape for prior in priors))
    scales = [jnp.broadcast_to(jnp.asarray(p.log_scale, dtype), (*batch, int(p.num_weights or 0))) for p in priors]

    def combine(left: jax.Array, right: jax.Array) -> jax.Array:
        return (left[..., :, None] + right[..., None, :]).reshape(*batch, left.shape[-1] * right.shape[-1])

    return DiagonalPrior.from_log_scale(functools.reduce(combine, scales))
