"""Several classes without an order."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from .likelihood import Derivatives, Likelihood, checked_columns, require_rows


@pytree_dataclass
class Categorical(Likelihood):
    """Classes 0, 1, … C − 1 with probabilities ``softmax(η)``: a predictor each, or all but the first, which is zero.

    A predictor a class treats all classes alike; what all predictors share is known from the prior alone. With a
    reference class there is one predictor less, and classes are compared with that one.

    :param num_classes: C, at least 2.
    :param reference: whether the predictor of class 0 is zero.
    :raises ValueError: for fewer classes.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> sgp.likelihoods.Categorical(3).num_latents, sgp.likelihoods.Categorical(3, reference=True).num_latents
        (3, 2)
    """

    num_classes: int = static()
    reference: bool = static(default=False)

    is_log_concave = True

    def __post_init__(self) -> None:
        """Refuse what is no number of classes."""
        checks.whole_number("num_classes", self.num_classes, 2, "Categorical")

    @property
    def num_latents(self) -> int:  # type: ignore[override]
        """Predictors of a row."""
        return self.num_classes - bool(self.reference)

    def logits(self, eta: Any) -> jax.Array:
        """Logits (..., C) of all classes from predictors (..., K), or (...) if K is one."""
        eta = jnp.asarray(eta)
        eta = eta[..., None] if self.num_latents == 1 else eta
        return jnp.concatenate([jnp.zeros_like(eta[..., :1]), eta], axis=-1) if self.reference else eta

    def log_prob(self, eta: Any, y: Any, parameters: Any = ()) -> jax.Array:
        """Log probability of each row's class."""
        eta, (y,) = self.aligned(eta, y)
        chosen = self._one_hot(y)
        return jnp.sum(chosen * jax.nn.log_softmax(self.logits(eta), axis=-1), axis=-1)

    def derivatives(self, eta: Any, y: Any, parameters: Any = ()) -> Derivatives:
        """In closed form: ``y − p`` and ``diag p − ppᵀ``, with the digits of probabilities near one."""
        eta, (y,) = self.aligned(eta, y)
        p, chosen = jax.nn.softmax(self.logits(eta), axis=-1), self._one_hot(y)
        others = jnp.asarray(1 - np.eye(self.num_classes), p.dtype)
        missing = p @ others  # 1 − p
        gradient = chosen * missing - (1 - chosen) * p
        diagonal = jnp.expand_dims(p * missing, -1) * jnp.eye(self.num_classes, dtype=p.dtype).reshape(
            *[1] * (p.ndim - 1), self.num_classes, self.num_classes
        )
        outer = jnp.expand_dims(p, -1) * jnp.expand_dims(p, -2)
        curvature = diagonal - outer * others.reshape(*[1] * (p.ndim - 1), *others.shape)
        first = int(self.reference)
        gradient, curvature = gradient[..., first:], curvature[..., first:, first:]
        if self.num_latents == 1:
            gradient, curvature = gradient[..., 0], curvature[..., 0, 0]
        return Derivatives(self.log_prob(eta, y), gradient, curvature)

    def _one_hot(self, y: jax.Array) -> jax.Array:
        classes = jnp.arange(self.num_classes).astype(y.dtype).reshape(*[1] * y.ndim, -1)
        return (jnp.expand_dims(y, -1) == classes).astype(y.dtype)

    def distribution(self, eta: Any, parameters: Any = (), y: Any = None) -> dist.Distribution:
        """Categorical of the class."""
        return dist.CategoricalLogits(self.logits(eta))

    def mean(self, eta: Any, parameters: Any = (), y: Any = None) -> jax.Array:
        """Probabilities of the classes, (..., C)."""
        return jax.nn.softmax(self.logits(eta), axis=-1)

    def check(self, y: Any, first_row: int = 0, owner: str = "compress_likelihood") -> np.ndarray:
        """Whole numbers from 0 to C − 1."""
        y = checked_columns(self, y, owner)
        wanted = f"classes 0 to {self.num_classes - 1}"
        require_rows(lambda b: (b >= 0) & (b < self.num_classes) & (b == np.floor(b)), y, first_row, wanted, owner)
        return y
