"""One feature that is the same everywhere: the level of f."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from ..kernels import Constant, Kernel
from ..priors import DiagonalPrior
from .basis import Basis
from .inputs import checked_kernel


@pytree_dataclass
class ConstantBasis(Basis):
    """The single feature 1, whose weight is the level of f: beside the features of a process in :func:`~ppl_sgp.stack`.

    :param input_dim: the number of input columns d, which do not matter.
    :raises ValueError: if ``input_dim`` is not a positive integer.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> basis = sgp.ConstantBasis(input_dim=2)
        >>> basis.host_features([[3.0, 4.0]]).tolist(), basis.weight_prior(sgp.Constant(5.0)).scale.tolist()
        ([[1.0]], [5.0])
    """

    dim: int = static()

    def __init__(self, input_dim: int) -> None:
        object.__setattr__(self, "dim", checks.whole_number("input_dim", input_dim, 1, "ConstantBasis"))

    @property
    def num_features(self) -> int:
        """One."""
        return 1

    @property
    def input_dim(self) -> int:
        """The number of input columns d."""
        return self.dim

    @property
    def constant_features(self) -> np.ndarray:
        """True for the only feature."""
        return np.ones(1, dtype=bool)

    def feature_names(self, inputs: Sequence[str]) -> list[str]:
        """``constant``."""
        return ["constant"]

    def features(self, X: Any, xp: ModuleType) -> Any:
        return xp.ones_like(X[:, :1])

    def weight_prior(self, kernel: Kernel) -> DiagonalPrior:
        """The prior standard deviation of the level; f then has the kernel exactly.

        :param kernel: a :class:`~ppl_sgp.Constant` kernel; its amplitude may be traced.
        """
        constant = checked_kernel(kernel, Constant, "ConstantBasis", "For a prior of your own pass `DiagonalPrior`.")
        dtype = checks.common_dtype(constant.amplitude)
        return DiagonalPrior.from_log_scale(jnp.log(jnp.asarray(constant.amplitude, dtype))[None])
