"""What every likelihood offers: log densities of rows given their predictors, with derivatives, and predictions."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .._internal import checks
from . import expected


class Derivatives(NamedTuple):
    """Log density of rows, its gradient and its curvature (the *negative* second derivative) in their predictors.

    Shapes with one predictor a row: (...) each; with K: (...), (..., K) and (..., K, K).
    """

    log_prob: jax.Array
    gradient: jax.Array
    curvature: jax.Array


class Parameter(NamedTuple):
    """A parameter of a likelihood that is not fixed: a coordinate on the real line, with a normal prior.

    :ivar name: its name, in its own units.
    :ivar loc: prior mean of the coordinate.
    :ivar scale: prior standard deviation of the coordinate.
    """

    name: str
    loc: float
    scale: float


class Likelihood(abc.ABC):
    """The distribution of a row's outcome given its predictor ``η = f(x) + offset``.

    Subclasses are pytree dataclasses. They must offer :meth:`log_prob` and :meth:`distribution`; derivatives, averages
    and means have defaults, by JAX and by quadrature. All are functions of arrays, usable under ``jit``, in the dtype
    of ``eta``:

    - ``eta``, predictors, shape (...); with ``num_latents`` K > 1 shape (..., K).
    - ``y``, shape (...), or (..., ``num_columns``) where a row is more than one number: an outcome with its trials, or
      with the bounds it is known to lie between. Broadcast against ``eta``.
    - ``parameters``, coordinates on the real line of what is not fixed, shape (p,), in the order of
      ``parameter_names``; ``()`` if there are none.
    """

    #: Predictors of a row.
    num_latents: int = 1
    #: Numbers that ``y`` holds for a row.
    num_columns: ClassVar[int] = 1
    #: Whether outcomes are counts of rate ``exp(η)``, to which an exposure adds its logarithm.
    takes_exposure: ClassVar[bool] = False
    #: Whether log densities have two derivatives everywhere: else only averages over predictors have a curvature.
    is_smooth: ClassVar[bool] = True
    #: Whether curvatures in the predictors are positive semi-definite everywhere.
    is_log_concave: ClassVar[bool] = False

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters that are not fixed."""
        return ()

    def free_parameters(self, y: np.ndarray) -> tuple[Parameter, ...]:
        """The parameters that are not fixed, with their priors, which follow the scale of the data.

        :param y: outcomes of some of the rows, on the host.
        """
        return ()

    def constrained(self, parameters: Any) -> dict[str, jax.Array]:
        """Parameters by name in their own units, of coordinates of shape (..., p)."""
        return {}

    @abc.abstractmethod
    def log_prob(self, eta: Any, y: Any, parameters: Any = ()) -> jax.Array:
        """Log density of each row, with all constants, shape (...)."""

    @abc.abstractmethod
    def distribution(self, eta: Any, parameters: Any = (), y: Any = None) -> dist.Distribution:
        """The distribution of new outcomes, of batch shape (...).

        :param y: what a row has besides its outcome, such as the trials of a binomial, in the columns that ``y`` has
            there; ``None`` where the likelihood needs none.
        """

    @abc.abstractmethod
    def check(self, y: Any, first_row: int = 0, owner: str = "compress_likelihood") -> np.ndarray:
        """Outcomes as a float64 array, (n,) or (n, ``num_columns``), on the host.

        :param first_row: the number of the first of these rows among all.
        :raises ValueError: for a row outside the support, by its number.
        """

    def outcome(self, y: Any) -> Any:
        """Of the columns of ``y`` the one that :meth:`distribution` is of."""
        return y if self.num_columns == 1 else y[..., 0]

    def mean(self, eta: Any, parameters: Any = (), y: Any = None) -> jax.Array:
        """Mean of the outcome given the predictor; of classes their probabilities, shape (..., K)."""
        return jnp.asarray(self.distribution(eta, parameters, y).mean)

    def derivatives(self, eta: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """Log density, gradient and curvature in the predictors."""
        return self.joint_derivatives(eta, y, jnp.asarray(parameters, jnp.asarray(eta).dtype), num_free=0)

    def joint_derivatives(self, eta: Any, y: Any, parameters: Any, num_free: int | None = None) -> Derivatives:
        """Derivatives in predictors and parameters together, K + p coordinates a row, by JAX.

        :param num_free: of how many parameters, the first ones; default all. With none and one predictor the result has
            the shapes of one predictor.
        """
        eta, columns = self.aligned(eta, y)
        batch, parameters = columns[0].shape, jnp.asarray(parameters, eta.dtype)
        K, p = self.num_latents, len(parameters) if num_free is None else num_free
        y = jnp.stack([column.ravel() for column in columns], axis=-1).reshape(-1, *self.columns_shape)

        def row(coordinates, y):
            own = coordinates[0] if K == 1 else coordinates[:K]
            return self.log_prob(own, y, jnp.concatenate([coordinates[K:], parameters[p:]]))

        free = jnp.broadcast_to(parameters[:p], (len(y), p))
        coordinates = jnp.concatenate([eta.reshape(-1, K), free], axis=1)

        def slope(coordinates, y):
            value, gradient = jax.value_and_grad(row)(coordinates, y)
            return gradient, (value, gradient)

        hessian, (value, gradient) = jax.vmap(jax.jacfwd(slope, has_aux=True))(coordinates, y)
        parts = (value, gradient, -hessian)
        if K + p == 1:
            parts = (value, gradient[:, 0], -hessian[:, 0, 0])
        return Derivatives(*(part.reshape(*batch, *part.shape[1:]) for part in parts))

    def averaged(self, mean: Any, covariance: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """Averages of log density, gradient and curvature over normal predictors: by quadrature, unless overridden.

        :param mean: means of the predictors, (...) or (..., K).
        :param covariance: their variances (...), or covariances (..., K, K).
        """
        return expected.averaged(self, mean, covariance, y, parameters)

    def averaged_joint(self, mean: Any, covariance: Any, y: Any, parameters: Any) -> Derivatives:
        """Averages of :meth:`joint_derivatives` over normal predictors, at one value of the parameters."""
        kind = type(self)
        by_jax = kind.derivatives is Likelihood.derivatives and kind.averaged is Likelihood.averaged
        joint = expected.averaged_joint(self, mean, covariance, y, parameters)
        return joint if by_jax else self._with_own(joint, self.averaged(mean, covariance, y, parameters))

    def _with_own(self, joint: Derivatives, own: Derivatives) -> Derivatives:
        """Derivatives with those in the predictors replaced."""
        K, rows = self.num_latents, own.log_prob.shape
        gradient = joint.gradient.at[..., :K].set(own.gradient.reshape(*rows, K))
        curvature = joint.curvature.at[..., :K, :K].set(own.curvature.reshape(*rows, K, K))
        return Derivatives(own.log_prob, gradient, curvature)

    def start(self, y: Any) -> jax.Array:
        """Predictors (...) or (..., K), from the outcome alone, where Newton's method begins."""
        y = jnp.asarray(y)
        shape = y.shape[: y.ndim - len(self.columns_shape)]
        return jnp.zeros(shape if self.num_latents == 1 else (*shape, self.num_latents), y.dtype)

    def predictor_scale(self, y: np.ndarray) -> float:
        """A typical standard deviation of f, for default priors of amplitudes: one, unless η has the unit of y.

        :param y: outcomes of some of the rows, on the host.
        """
        return 1.0

    @property
    def columns_shape(self) -> tuple[int, ...]:
        """Shape of ``y`` beyond its rows."""
        return () if self.num_columns == 1 else (self.num_columns,)

    def aligned(self, eta: Any, y: Any) -> tuple[jax.Array, list[jax.Array]]:
        """Predictors, and the columns of ``y`` in their dtype and in the shape of rows."""
        eta = jnp.asarray(eta)
        y = jnp.asarray(y, eta.dtype)
        rows = eta.shape if self.num_latents == 1 else eta.shape[:-1]
        columns = [y] if self.num_columns == 1 else [y[..., j] for j in range(self.num_columns)]
        shape = jnp.broadcast_shapes(rows, columns[0].shape)
        eta = jnp.broadcast_to(eta, (*shape, *eta.shape[len(rows) :]))
        return eta, [jnp.broadcast_to(column, shape) for column in columns]


def checked_columns(likelihood: Likelihood, y: Any, owner: str) -> np.ndarray:
    """Outcomes as finite or infinite numbers of the right shape, in float64; NaN is refused, with its row."""
    y = checks.host_numbers("y", y, owner)
    if y.ndim == 2 and y.shape[1] == 1 and likelihood.num_columns == 1:
        y = y[:, 0]
    wanted = "(n,)" if likelihood.num_columns == 1 else f"(n, {likelihood.num_columns})"
    if y.ndim != 1 + len(likelihood.columns_shape) or y.shape[1:] != likelihood.columns_shape:
        raise ValueError(
            f"{owner}: `y` of {type(likelihood).__name__} must have shape {wanted}; got {y.shape}. "
            f"{type(likelihood).__name__}'s docstring says what its columns are."
        )
    return y.astype(np.float64, copy=False)


def require_rows(
    good: Callable[[np.ndarray], np.ndarray], y: np.ndarray, first_row: int, wanted: str, owner: str
) -> None:
    """Refuse rows where ``good`` is false, with the number of the first. O(block) memory."""
    count, first = checks.count_bad(y, lambda block: ~good(block))
    if count:
        raise ValueError(
            f"{owner}: `y` must be {wanted}; {count} of {len(y)} rows are not (first: row {first_row + first}, "
            f"{y[first].tolist()!r}). Correct or drop those rows first. Nothing is dropped silently."
        )
