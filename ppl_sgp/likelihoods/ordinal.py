"""Several classes in an order."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.nn import log_sigmoid, sigmoid

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from .likelihood import Derivatives, Likelihood, Parameter, checked_columns, require_rows
from .normal_tails import log_one_minus_exp

#: Standard deviations of the default priors, of the first cut point and of the logarithm of each distance.
FIRST_SPREAD, DISTANCE_SPREAD = 2.0, 1.0


@pytree_dataclass
class Ordinal(Likelihood):
    """Classes 0, 1, … C − 1 in their order, ``P(y ≤ j) = σ(cut_j − η)`` with the logistic function (proportional odds).

    Cut points take the place of an intercept: f needs none.

    :param num_classes: C, at least 2.
    :param cut_points: C − 1 increasing numbers to hold them fixed; by default free, their coordinates the first one and
        logarithms of distances, with normal priors around the shares of the classes.
    :raises ValueError: for fewer classes, or cut points that do not increase.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> sgp.likelihoods.Ordinal(3).parameter_names
        ('cut_0', 'log_distance_1')
        >>> sgp.likelihoods.Ordinal(3, cut_points=(-1.0, 1.0)).mean(0.0).round(3).tolist()
        [0.269, 0.462, 0.269]
    """

    num_classes: int = static()
    cut_points: Any = static(default=None)

    is_log_concave = True

    def __post_init__(self) -> None:
        """Refuse what is no number of classes, and cut points that do not increase."""
        checks.whole_number("num_classes", self.num_classes, 2, "Ordinal")
        if self.cut_points is None:
            return
        cuts = tuple(map(float, np.ravel(self.cut_points)))
        if len(cuts) != self.num_classes - 1 or not (np.isfinite(cuts).all() and (np.diff(cuts) > 0).all()):
            raise ValueError(
                f"Ordinal: `cut_points` must be {self.num_classes - 1} finite increasing numbers; got {cuts}."
            )
        object.__setattr__(self, "cut_points", cuts)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the coordinates, unless cut points are fixed."""
        if self.cut_points is not None:
            return ()
        return ("cut_0", *(f"log_distance_{j}" for j in range(1, self.num_classes - 1)))

    def free_parameters(self, y: np.ndarray) -> tuple[Parameter, ...]:
        """Priors around the logits of the shares of the classes."""
        if self.cut_points is not None:
            return ()
        counts = np.bincount(np.asarray(y, dtype=int), minlength=self.num_classes) + 1.0
        shares = np.cumsum(counts)[:-1] / counts.sum()
        cuts = np.log(shares) - np.log1p(-shares)
        locs, names = [cuts[0], *np.log(np.diff(cuts))], self.parameter_names
        spreads = [FIRST_SPREAD, *[DISTANCE_SPREAD] * (len(cuts) - 1)]
        return tuple(Parameter(name, float(loc), s) for name, loc, s in zip(names, locs, spreads, strict=True))

    def constrained(self, parameters: Any) -> dict[str, jax.Array]:
        """The cut points, (..., C − 1)."""
        return {} if self.cut_points is not None else {"cut_points": self._cuts(jnp.asarray(parameters))}

    def _cuts(self, parameters: jax.Array) -> jax.Array:
        steps = jnp.concatenate([parameters[..., :1], jnp.exp(parameters[..., 1:])], axis=-1)
        return jnp.cumsum(steps, axis=-1)

    def _all_cuts(self, parameters: Any, dtype: Any) -> jax.Array:
        if self.cut_points is not None:
            return jnp.asarray(self.cut_points, dtype)
        return self._cuts(jnp.asarray(parameters, dtype))

    def _ends(self, eta: jax.Array, y: jax.Array, parameters: Any) -> tuple[jax.Array, ...]:
        """Cut points below and above the class less η, and whether the class is the first, or the last."""
        cuts = self._all_cuts(parameters, eta.dtype)
        index, last = y.astype(jnp.int32), self.num_classes - 1
        below = cuts[jnp.clip(index - 1, 0, last - 1)] - eta
        above = cuts[jnp.clip(index, 0, last - 1)] - eta
        return below, above, index == 0, index == last

    def log_prob(self, eta: Any, y: Any, parameters: Any = ()) -> jax.Array:
        """Log probability of each row's class: ``log σ(b) + log σ(−a) + log(1 − e⁻⁽ᵇ⁻ᵃ⁾)``, which never cancels."""
        eta, (y,) = self.aligned(eta, y)
        below, above, first, last = self._ends(eta, y, parameters)
        inner = ~(first | last)
        distance = jnp.where(inner, above - below, 1)
        result = jnp.where(last, 0, log_sigmoid(above)) + jnp.where(first, 0, log_sigmoid(-below))
        return result + jnp.where(inner, log_one_minus_exp(distance), 0)

    def derivatives(self, eta: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """In closed form."""
        eta, (y,) = self.aligned(eta, y)
        below, above, first, last = self._ends(eta, y, parameters)
        gradient = jnp.where(first, 0, sigmoid(below)) - jnp.where(last, 0, sigmoid(-above))
        curvature = jnp.where(first, 0, sigmoid(below) * sigmoid(-below))
        curvature += jnp.where(last, 0, sigmoid(above) * sigmoid(-above))
        return Derivatives(self.log_prob(eta, y, parameters), gradient, curvature)

    def distribution(self, eta: Any, parameters: Any = (), y: Any = None) -> dist.Distribution:
        """Categorical of the class, ordered logistic."""
        eta = jnp.asarray(eta)
        return dist.OrderedLogistic(eta, self._all_cuts(parameters, eta.dtype))

    def mean(self, eta: Any, parameters: Any = (), y: Any = None) -> jax.Array:
        """Probabilities of the classes, (..., C)."""
        eta = jnp.asarray(eta)
        classes = jnp.arange(self.num_classes).astype(eta.dtype)
        return jnp.stack([jnp.exp(self.log_prob(eta, c, parameters)) for c in classes], axis=-1)

    def check(self, y: Any, first_row: int = 0, owner: str = "compress_likelihood") -> np.ndarray:
        """Whole numbers from 0 to C − 1."""
        y = checked_columns(self, y, owner)
        wanted = f"classes 0 to {self.num_classes - 1}"
        require_rows(lambda b: (b >= 0) & (b < self.num_classes) & (b == np.floor(b)), y, first_row, wanted, owner)
        return y
