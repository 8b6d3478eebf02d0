"""Bases and priors side by side: sums of independent functions."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass
from ..kernels import Kernel
from ..priors import BlockPrior, DiagonalPrior, WeightPrior
from .basis import Basis


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
        if not isinstance(kernels, tuple | list) or len(kernels) != len(self.bases):
            got = f"{len(kernels)}" if isinstance(kernels, tuple | list) else type(kernels).__name__
            raise ValueError(
                f"StackedBasis.weight_prior needs a tuple of {len(self.bases)} kernels or priors, one for each basis; "
                f"got {got}."
            )
        return stack(
            *(
                _sized(kernel, basis) if isinstance(kernel, WeightPrior) else basis.weight_prior(kernel)
                for basis, kernel in zip(self.bases, kernels, strict=True)
            )
        )

    def _check_domain(self, X: Any) -> None:
        for basis in self.bases:
            basis._check_domain(X)

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

    def _name_of(self, feature: int) -> str:
        index = 0
        while feature >= self.bases[index].num_features:
            feature -= self.bases[index].num_features
            index += 1
        return f"{self.bases[index]._name_of(feature)} (part {index} of the stack)"

    def _features(self, X: Any, xp: ModuleType) -> Any:
        return xp.concatenate([basis._features(X, xp) for basis in self.bases], axis=1)


@overload
def stack(*parts: Basis) -> StackedBasis: ...
@overload
def stack(*parts: WeightPrior) -> DiagonalPrior | BlockPrior: ...
def stack(*parts: Any) -> StackedBasis | DiagonalPrior | BlockPrior:
    """Bases side by side, or the priors over their weights.

    :param parts: bases of the same inputs (:class:`~ppl_sgp.SelectedColumns` for some of them); or priors, in the
        order of the bases, with one entry a weight.
    :return: for bases a :class:`StackedBasis`; for priors a :class:`~ppl_sgp.DiagonalPrior` if all are, else a
        :class:`~ppl_sgp.BlockPrior`.
    :raises ValueError: for a mixture or anything else, bases of different inputs, or priors of unknown size.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> slow = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(1.0), 10, input_dim=1)
        >>> fast = sgp.FourierBasis.sample(jax.random.key(1), sgp.Matern32(0.1), 20, input_dim=1)
        >>> basis = sgp.stack(slow, fast)
        >>> prior = basis.weight_prior((sgp.SquaredExponential(1.2, amplitude=3.0), sgp.Matern32(0.1)))
        >>> basis.num_features, prior.num_weights
        (30, 30)
    """
    if parts and all(isinstance(part, Basis) for part in parts):
        if len({basis.input_dim for basis in parts}) > 1:
            raise ValueError(
                f"stack: bases must take the same inputs; got {', '.join(str(basis.input_dim) for basis in parts)} "
                "columns. Wrap one that sees some of them in `SelectedColumns(basis, columns, input_dim)`."
            )
        return StackedBasis(tuple(parts))
    if parts and all(isinstance(part, DiagonalPrior) for part in parts):
        return _stacked_diagonals(parts)
    if parts and all(isinstance(part, WeightPrior) for part in parts):
        return BlockPrior(parts)
    raise ValueError(
        "stack takes bases, or priors, one or more of either; got "
        f"{', '.join(type(part).__name__ for part in parts) or 'nothing'}."
    )


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


def _sized(prior: WeightPrior, basis: Basis) -> WeightPrior:
    """The prior with one entry for each weight of ``basis``."""
    m = basis.num_features
    if isinstance(prior, DiagonalPrior) and prior.num_weights in (None, 1):
        log_scale = jnp.broadcast_to(prior.log_scale, (*jnp.shape(prior.log_scale)[:-1], m))
        return DiagonalPrior.from_log_scale(log_scale, prior.mean)
    if prior.num_weights != m:
        raise ValueError(
            f"StackedBasis.weight_prior: a prior has {prior.num_weights} weights but its {type(basis).__name__} has "
            f"{m} features; give one entry for each."
        )
    return prior
