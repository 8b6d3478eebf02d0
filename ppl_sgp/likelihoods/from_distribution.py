"""Any NumPyro distribution as a likelihood, with derivatives by JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from .likelihood import Likelihood, Parameter, checked_columns, require_rows


@pytree_dataclass
class FromDistribution(Likelihood):
    """The likelihood that a function of the predictor makes, such as ``lambda eta: dist.Poisson(jnp.exp(eta))``.

    Gradient and curvature are JAX's: they are as good in the tails as the distribution's ``log_prob`` is. Ready
    likelihoods are faster and stable there.

    :param function: from predictors (n,), or (n, K), to a distribution of batch shape (n,), univariate; with
        parameters, these follow by name, real numbers: ``lambda eta, log_scale: dist.Laplace(eta,
        jnp.exp(log_scale))``.
    :param num_latents: predictors of a row, K.
    :param parameters: by name, mean and standard deviation of the normal prior of each; they are coordinates on the
        real line, and the function transforms them.
    :raises ValueError: for what is not a function, or names without a mean and a positive standard deviation.

    .. doctest::

        >>> import jax.numpy as jnp, numpyro.distributions as dist, ppl_sgp as sgp
        >>> counts = sgp.likelihoods.FromDistribution(lambda eta: dist.Poisson(jnp.exp(eta)))
        >>> float(counts.derivatives(0.0, 3.0).gradient)
        2.0
    """

    function: Callable[..., dist.Distribution] = static()
    num_latents: int = static(default=1)  # type: ignore[assignment]
    priors: tuple[tuple[str, float, float], ...] = static(default=())

    def __init__(
        self,
        function: Callable[..., dist.Distribution],
        num_latents: int = 1,
        parameters: dict[str, tuple[float, float]] | None = None,
    ) -> None:
        if not callable(function):
            raise ValueError(
                f"FromDistribution: `function` must make a NumPyro distribution of a predictor; got {function!r}."
            )
        checks.whole_number("num_latents", num_latents, 1, "FromDistribution")
        priors = tuple((name, float(loc), float(scale)) for name, (loc, scale) in (parameters or {}).items())
        for name, _, scale in priors:
            checks.positive(f"parameters[{name!r}][1]", scale, "FromDistribution")
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "num_latents", num_latents)
        object.__setattr__(self, "priors", priors)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(name for name, _, _ in self.priors)

    def free_parameters(self, y: np.ndarray) -> tuple[Parameter, ...]:
        """The parameters with the priors that were given."""
        return tuple(Parameter(*prior) for prior in self.priors)

    def constrained(self, parameters: Any) -> dict[str, jax.Array]:
        """Parameters by name, as they are."""
        parameters = jnp.asarray(parameters)
        return {name: parameters[..., i] for i, name in enumerate(self.parameter_names)}

    def distribution(self, eta: Any, parameters: Any = (), y: Any = None) -> dist.Distribution:
        """What the function makes."""
        named = {name: jnp.asarray(parameters)[i] for i, name in enumerate(self.parameter_names)}
        return self.function(jnp.asarray(eta), **named)

    def log_prob(self, eta: Any, y: Any, parameters: Any = ()) -> jax.Array:
        """That of the distribution."""
        eta, (y,) = self.aligned(eta, y)
        made = self.distribution(eta, parameters)
        if made.support is not None and made.support.is_discrete and jnp.issubdtype(y.dtype, jnp.floating):
            y = y.astype(jnp.int32) if isinstance(made, CATEGORICAL) else y
        return made.log_prob(y)

    def check(self, y: Any, first_row: int = 0, owner: str = "compress_likelihood") -> np.ndarray:
        """Outcomes in the support of the distribution."""
        y = checked_columns(self, y, owner)
        eta = np.zeros(() if self.num_latents == 1 else (self.num_latents,))
        parameters = [prior[1] for prior in self.priors]
        made = self.distribution(eta, parameters)
        if made.event_shape or made.batch_shape:
            raise ValueError(
                f"{owner}: the likelihood must be univariate, of batch shape (n,) for predictors of n rows; of one row "
                f"it has batch shape {made.batch_shape} and event shape {made.event_shape}."
            )

        def good(block: np.ndarray) -> np.ndarray:
            with np.errstate(invalid="ignore"):
                return np.isfinite(block) & np.asarray(made.support(jnp.asarray(block)), dtype=bool)

        require_rows(good, y, first_row, f"in the support of {type(made).__name__}", owner)
        return y


#: Distributions that look their value up.
CATEGORICAL = (dist.CategoricalLogits, dist.CategoricalProbs)
