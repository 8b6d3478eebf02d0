"""Positive parameters of likelihoods: fixed, or free on the logarithmic scale under a normal prior."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .._internal import checks
from .likelihood import Likelihood, Parameter


class PositiveParameters(Likelihood):
    """Base of likelihoods with positive parameters, fields that are static: a number, or free.

    A free one is ``None``, with a prior that follows the data, or mean and standard deviation of its logarithm; users
    pass ``dist.LogNormal`` for the latter.
    """

    #: The fields, in the order of the coordinates.
    positive: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        """Refuse what is neither positive nor a log-normal prior."""
        for name in self.positive:
            object.__setattr__(self, name, _checked(name, getattr(self, name), type(self).__name__))

    def default_priors(self, y: np.ndarray) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation of the logarithm of each parameter, by name, for outcomes of some rows."""
        raise NotImplementedError

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters that are not fixed."""
        return tuple(name for name in self.positive if not isinstance(getattr(self, name), float))

    def free_parameters(self, y: np.ndarray) -> tuple[Parameter, ...]:
        """The parameters that are not fixed, with priors of their logarithms."""
        defaults = self.default_priors(y)
        return tuple(Parameter(name, *(getattr(self, name) or defaults[name])) for name in self.parameter_names)

    def constrained(self, parameters: Any) -> dict[str, jax.Array]:
        """Parameters by name in their own units, of logarithms of shape (..., p)."""
        values = jnp.exp(jnp.asarray(parameters))
        return {name: values[..., i] for i, name in enumerate(self.parameter_names)}

    def logarithms(self, parameters: Any, dtype: Any) -> list[jax.Array]:
        """Logarithms of all positive parameters, in the order of ``positive``."""
        free = dict(zip(self.parameter_names, range(len(self.positive)), strict=False))
        coordinates = jnp.asarray(parameters, dtype)
        return [
            coordinates[free[name]] if name in free else jnp.asarray(np.log(getattr(self, name)), dtype)
            for name in self.positive
        ]


def _checked(name: str, value: Any, owner: str) -> Any:
    if value is None or (isinstance(value, tuple) and len(value) == 2):
        return value
    if isinstance(value, dist.LogNormal) and not value.batch_shape:
        return float(value.loc), float(value.scale)
    if isinstance(value, dist.Distribution):
        raise ValueError(
            f"{owner}: `{name}` must be a number, or have a log-normal prior, which is normal on the scale of its "
            f"expansion, such as dist.LogNormal(0.0, 1.0); got {type(value).__name__} of shape {value.batch_shape}."
        )
    checks.positive(name, value, owner)
    if np.ndim(value):
        raise ValueError(f"{owner}: `{name}` must be one number for all rows; got shape {np.shape(value)}.")
    return float(value)
