"""Bases and priors side by side: sums of independent functions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from ..kernels import Kernel
from ..priors import BlockPrior, DiagonalPrior, WeightPrior
from .basis import Basis
from .composite import combined, first_known, own_priors, require_same_inputs
from .residual import Residual


@pytree_dataclass
class StackedBasis(Basis):
    """Features of several bases side by side: f is a sum of independent functions, one a basis.

    Made by :func:`stack`: for kernels that are sums, or for fixed effects that are marginalised together with a
    process.

    :param bases: the bases, all of the same inputs.
    """

    bases: tuple[Basis, ...]

    @property
    def num_features(self) -> int:
        """The number of features m, over all bases."""
        return sum(basis.num_features for basis in self.bases)

    @property
    def input_dim(self) -> int:
        """The number of input columns d."""
        return self.bases[0].input_dim

    def weight_prior(self, kernels: Sequence[Kernel | WeightPrior]) -> DiagonalPrior | BlockPrior:  # type: ignore[override]
        """The priors of the bases for a kernel each, stacked. f has the sum of the kernels as its covariance.

        :param kernels: a kernel for each basis, as its own ``weight_prior`` takes it; or a prior over its weights,
            such as ``DiagonalPrior(10.0)`` for fixed effects.
        :return: a :class:`~ppl_sgp.DiagonalPrior` if all are, else a :class:`~ppl_sgp.BlockPrior`.
        :raises ValueError: unless there is one kernel or prior of the right size for each basis.
        """
        return stack(*own_priors(self.bases, kernels, "StackedBasis"))

    @property
    def parts(self) -> tuple[Basis, ...]:
        """The bases."""
        return self.bases

    @property
    def constant_features(self) -> np.ndarray:
        """Whether each feature is a constant, shape (m,), Boolean."""
        return np.concatenate([basis.constant_features for basis in self.bases])

    @property
    def approximates_kernel(self) -> bool:
        """Whether the features of any of the bases stand for a kernel."""
        return any(basis.approximates_kernel for basis in self.bases)

    def effective_share(self, log_variance: jax.Array) -> jax.Array:
        """The least share of the bases: a scalar."""
        log_variance = jnp.broadcast_to(log_variance, (*log_variance.shape[:-1], self.num_features))
        pairs = zip(self.bases, jnp.split(log_variance, self._ends, axis=-1), strict=True)
        return jnp.min(jnp.stack([basis.effective_share(own) for basis, own in pairs]))

    def residual_variance(self, X: Any) -> np.ndarray:
        """Those of the bases, one after the other, shape (p, n)."""
        X = self._host_inputs(X)
        return np.concatenate([basis.residual_variance(X) for basis in self.bases])

    def residual(self, X: Any) -> Residual:
        """Those of the bases, one after the other."""
        X = self._host_inputs(X)
        return Residual.joined([basis.residual(X) for basis in self.bases])

    def residual_amplitude(self, prior: WeightPrior) -> jax.Array:
        """Those of the bases, one after the other, shape ``batch + (p,)``."""
        own = _independent_blocks(prior, [basis.num_features for basis in self.bases])
        return jnp.concatenate([b.residual_amplitude(part) for b, part in zip(self.bases, own, strict=True)], axis=-1)

    @property
    def _ends(self) -> np.ndarray:
        return np.cumsum([basis.num_features for basis in self.bases])[:-1]

    def admissible(self, X: np.ndarray) -> np.ndarray:
        """Those of all bases, one after the other."""
        return functools.reduce(lambda inputs, basis: basis.admissible(inputs), self.bases, X)

    def check_domain(self, X: Any) -> None:
        for basis in self.bases:
            basis.check_domain(X)

    def features(self, X: Any, xp: ModuleType) -> Any:
        return xp.concatenate([basis.features(X, xp) for basis in self.bases], axis=1)

    @property
    def has_float32_features(self) -> bool:
        """Whether one of the bases has a way in float32."""
        return any(basis.has_float32_features for basis in self.bases)

    def fill_features(self, X: np.ndarray, out: np.ndarray, single: bool = False) -> None:
        """Features of each basis, as it fills them itself."""
        start = 0
        for basis in self.bases:
            basis.fill_features(X, out[:, start : start + basis.num_features], single)
            start += basis.num_features

    def name_of(self, feature: int) -> str:
        index = 0
        while feature >= self.bases[index].num_features:
            feature -= self.bases[index].num_features
            index += 1
        return f"{self.bases[index].name_of(feature)} (part {index} of the stack)"

    def not_finite_at(self, x: np.ndarray) -> str | None:
        return first_known(self.bases, x)


@pytree_dataclass
class NamedStack(StackedBasis):
    """A :class:`StackedBasis` whose parts have names; made by :func:`stack` with keywords.

    :param names: a name of each basis, for ``predict(parts=...)``, sites of :func:`~ppl_sgp.models.additive` and
        messages.
    """

    names: tuple[str, ...] = static()

    @property
    def part_names(self) -> tuple[str, ...]:
        """The names."""
        return self.names

    def name_of(self, feature: int) -> str:
        """A feature in messages: its number in its part, and the name of that."""
        part = int(np.searchsorted(self._ends, feature, side="right"))
        start = 0 if part == 0 else self._ends[part - 1]
        return f"{self.bases[part].name_of(feature - int(start))} ({self.names[part]!r} of the stack)"


@overload
def stack(*parts: Basis, **named: Basis) -> StackedBasis: ...
@overload
def stack(*parts: WeightPrior) -> DiagonalPrior | BlockPrior: ...
def stack(*parts: Any, **named: Basis) -> StackedBasis | DiagonalPrior | BlockPrior:
    """Bases side by side, or the priors over their weights.

    With keywords bases have names: ``stack(trend=..., season=...)``. Predictions of parts go by them, as do the sites
    of :func:`~ppl_sgp.models.additive`.

    :param parts: bases of the same inputs (:class:`~ppl_sgp.SelectedColumns` for some of them); or priors, in the
        order of the bases, with one entry a weight.
    :param named: bases by name, instead.
    :return: for bases a :class:`StackedBasis`, with names a :class:`NamedStack`; for priors a
        :class:`~ppl_sgp.DiagonalPrior` if all are, else a :class:`~ppl_sgp.BlockPrior`.
    :raises ValueError: for a mixture or anything else, bases of different inputs, or priors of unknown size.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> slow = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(1.0), 10, input_dim=1)
        >>> fast = sgp.FourierBasis.sample(jax.random.key(1), sgp.Matern32(0.1), 20, input_dim=1)
        >>> basis = sgp.stack(slow, fast)
        >>> prior = basis.weight_prior((sgp.SquaredExponential(1.2, amplitude=3.0), sgp.Matern32(0.1)))
        >>> basis.num_features, prior.num_weights
        (30, 30)
        >>> sgp.stack(slow=slow, fast=fast).part_names
        ('slow', 'fast')
    """
    if named:
        if parts or not all(isinstance(part, Basis) for part in named.values()):
            raise ValueError("stack: with names all are bases, and each has one, as in `stack(trend=b1, season=b2)`.")
        require_same_inputs(tuple(named.values()), "stack")
        return NamedStack(tuple(named.values()), tuple(named))
    return combined("stack", parts, StackedBasis, _stacked_diagonals, BlockPrior)


def _stacked_diagonals(priors: tuple[DiagonalPrior, ...]) -> DiagonalPrior:
    sizes = []
    for index, prior in enumerate(priors):
        if prior.num_weights is None:
            raise ValueError(
                f"stack: prior {index} has one scale for an unknown number of weights. Give one entry a weight, "
                "`DiagonalPrior(jnp.full(m, scale))`, or let `StackedBasis.weight_prior` do so."
            )
        sizes.append(prior.num_weights)
    dtype = checks.common_dtype(*jax.tree.leaves(priors))
    batch = jnp.broadcast_shapes(*(prior.batch_shape for prior in priors))

    def joined(arrays: list[Any]) -> jax.Array:
        parts = zip(arrays, sizes, strict=True)
        return jnp.concatenate([jnp.broadcast_to(jnp.asarray(a, dtype), (*batch, m)) for a, m in parts], axis=-1)

    means = [prior.mean for prior in priors]
    mean = None if all(part is None for part in means) else joined([0.0 if part is None else part for part in means])
    return DiagonalPrior.from_log_scale(joined([prior.log_scale for prior in priors]), mean)


def _independent_blocks(prior: WeightPrior, sizes: list[int]) -> list[DiagonalPrior]:
    """The priors of blocks of independent weights; in place of correlated ones, none at all: variances of zero."""
    m, ends = sum(sizes), np.cumsum(sizes)[:-1]
    log_variance = jnp.broadcast_to(prior.log_variance, (*prior.batch_shape, m))
    known = np.split(np.broadcast_to(prior.independent, (m,)), ends)
    return [
        DiagonalPrior.from_log_scale(own / 2 if independent.all() else jnp.full_like(own, -jnp.inf))
        for own, independent in zip(jnp.split(log_variance, ends, axis=-1), known, strict=True)
    ]
