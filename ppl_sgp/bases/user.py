"""Any function of the user's as a basis."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .basis import Basis


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class CallableBasis(Basis):
    """Features computed by any function φ from inputs (n, d) to (n, m), row by row.

    The pass over the data calls it with float64 NumPy inputs and 64-bit JAX, so a function written in either gives
    float64; for models that evaluate features under ``jit`` or ``grad`` write it with ``jax.numpy``. Arrays that it
    captures should be float64 NumPy. It must be a pure function that treats rows alone: nothing, such as a mean,
    may be computed from the inputs it is called with.

    Priors are ``DiagonalPrior(scale)`` or any other over m weights. Statistics of such a basis cannot be saved,
    since a function cannot; for that derive a class from :class:`~ppl_sgp.Basis`, decorated with ``pytree_dataclass``,
    that holds the numbers of the function. Two of them are the same basis if they hold the same function object.

    NumPyro's Hilbert-space approximations, for one, become weights that are marginalised instead of sampled::

        from numpyro.contrib.hsgp.laplacian import eigenfunctions
        from numpyro.contrib.hsgp.spectral_densities import diag_spectral_density_squared_exponential

        basis = sgp.CallableBasis(lambda X: eigenfunctions(X, ell=1.5, m=20), num_features=20, input_dim=1)
        spd = jnp.sqrt(diag_spectral_density_squared_exponential(amplitude**2, lengthscale, ell=1.5, m=20, dim=1))
        prior = sgp.DiagonalPrior(spd)

    (NumPyro's ``alpha`` multiplies the kernel: it is a variance.)

    :param function: φ, from inputs (n, d) to features (n, m).
    :param num_features: m.
    :param input_dim: the number of input columns d.
    :raises ValueError: for something that cannot be called, or numbers that are not positive integers. Features raise
        it if the function returns another shape.

    .. doctest::

        >>> import jax.numpy as jnp, ppl_sgp as sgp
        >>> basis = sgp.CallableBasis(lambda X: jnp.concatenate([X, X**2], axis=1), num_features=2, input_dim=1)
        >>> basis.host_features([[3.0]]).tolist()
        [[3.0, 9.0]]
    """

    function: Callable[[Any], Any]
    size: int
    dim: int

    def __init__(self, function: Callable[[Any], Any], num_features: int, input_dim: int) -> None:
        if not callable(function):
            raise ValueError(
                f"CallableBasis: `function` must be callable, from inputs (n, d) to features (n, m); got "
                f"{type(function).__name__}."
            )
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "size", checks.whole_number("num_features", num_features, 1, "CallableBasis"))
        object.__setattr__(self, "dim", checks.whole_number("input_dim", input_dim, 1, "CallableBasis"))

    @property
    def num_features(self) -> int:
        """The number of features m."""
        return self.size

    @property
    def input_dim(self) -> int:
        """The number of input columns d."""
        return self.dim

    def features(self, X: Any, xp: ModuleType) -> Any:
        if xp is np:
            with jax.enable_x64(True), jax.ensure_compile_time_eval():
                return self._checked(np.asarray(self.function(X), dtype=np.float64), X)
        return self._checked(jnp.asarray(self.function(X), dtype=X.dtype), X)

    def _checked(self, features: Any, X: Any) -> Any:
        expected = (X.shape[0], self.num_features)
        if features.shape != expected:
            raise ValueError(
                f"CallableBasis: the function must return features of shape (n, m) = {expected} for inputs of shape "
                f"{X.shape}; got {features.shape}. Put features in columns, or make the basis with the `num_features` "
                "that it returns."
            )
        return features
