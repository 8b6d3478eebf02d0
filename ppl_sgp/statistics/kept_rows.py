"""Rows kept as they are: what sites observe whose features move with their hyperparameters."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass
from .rows import as_float64, validated


@pytree_dataclass
class Rows:
    """n rows of inputs and outputs, validated; made by :func:`rows`. A pytree: pass it to models as an argument.

    Summaries have the names and meanings that they have in :class:`~ppl_sgp.SufficientStatistics`.

    :param X: inputs, shape (n, d), float64.
    :param y: outputs, shape (n,) or (n, q), float64.
    :param row_weights: relative noise precisions ω, shape (n,): row i has noise variance ``σ²/ωᵢ``; ``None`` if all
        are one.
    """

    X: Any
    y: Any
    row_weights: Any = None

    @property
    def num_rows(self) -> int:
        """The number of rows n."""
        return self.X.shape[0]

    @property
    def input_dim(self) -> int:
        """The number of inputs d."""
        return self.X.shape[1]

    @property
    def num_outputs(self) -> int:
        """The number of output columns q; 1 also for a one-dimensional y."""
        return self.y.shape[1] if self.y.ndim == 2 else 1

    @property
    def values(self) -> Any:
        """What a site observes: y, shape (n,), or of several outputs its transpose, (q, n)."""
        return self.y.T

    @property
    def weights(self) -> Any:
        """The row weights ω, ones if there are none, shape (n,)."""
        return np.ones(self.num_rows) if self.row_weights is None else self.row_weights

    @property
    def output_scale(self) -> Any:
        """Root mean square of y about zero, over all outputs: the natural unit of amplitudes and noise."""
        return jnp.mean(self.output_scales**2) ** 0.5 if self.num_outputs > 1 else self.output_scales

    @property
    def output_scales(self) -> Any:
        """Root mean square of y about zero, each output's own: shape (q,), or () for a one-dimensional y."""
        mean = self.weights @ self.y**2 / self.num_rows
        return mean**0.5

    @property
    def input_scale(self) -> Any:
        """Standard deviation of each input, shape (d,); zero for one that never varies."""
        # Rounding gives a constant column a tiny spread, from which lengthscales must not be taken.
        scale = self.X.std(axis=0)
        return (self.X.max(axis=0) > self.X.min(axis=0)).astype(scale.dtype) * scale

    @property
    def input_range(self) -> tuple[Any, Any]:
        """Least and largest value of each input, shape (d,) each."""
        return self.X.min(axis=0), self.X.max(axis=0)

    def _with_outputs(self, values: Any) -> Rows:
        """Rows with other outputs, in the shape of :attr:`values`: a value of the site that observes them."""
        return Rows(self.X, values.T, self.row_weights)

    @property
    def parts(self) -> dict[str, Any]:
        """What is written to a file, by name."""
        return {"rows": self}

    @classmethod
    def of_parts(cls, parts: dict[str, Any], path: Any) -> Rows:
        """The rows of a file.

        :raises ValueError: if they are not rows that could have been written.
        """
        found = parts.get("rows")
        if not isinstance(found, cls):
            raise ValueError(f"{path} holds {sorted(parts)}, and no rows.")
        return cls(*validated(None, found.X, found.y, found.row_weights, f"rows of {path}"))

    def require_same(self, X: Any, y: Any, row_weights: Any, owner: str) -> None:
        """Refuse rows that are not these, in their order, and say in what they differ.

        Each may be ``None``: then these are meant.
        """
        for name, given in (("X", X), ("y", y), ("row_weights", row_weights)):
            kept = getattr(self, name)
            if given is None:
                continue
            if kept is None or not np.array_equal(as_float64(checks.host_numbers(name, given, owner)), kept):
                raise ValueError(
                    f"{owner}: `{name}` is not that of the rows of this posterior, which knows them: leave it out."
                )

    def __repr__(self) -> str:
        return f"Rows(num_rows={self.num_rows}, input_dim={self.input_dim}, num_outputs={self.num_outputs})"


def rows(X: Any, y: Any, row_weights: Any = None) -> Rows:
    """Rows for sites that need all of them: exact GPs, and inducing points that are free.

    :param X: inputs, shape (n, d).
    :param y: outputs, shape (n,) or (n, q).
    :param row_weights: relative noise precisions, shape (n,): row i has noise variance ``σ²/ωᵢ``.
    :raises ValueError: for shapes that do not fit, no rows, or entries that are not finite numbers.

    .. doctest::

        >>> import numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> sgp.rows(X, np.sin(6 * X[:, 0]))
        Rows(num_rows=30, input_dim=1, num_outputs=1)
    """
    return Rows(*validated(None, X, y, row_weights, "rows"))
