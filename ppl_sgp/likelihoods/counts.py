"""What likelihoods of counts with a rate ``exp(η)`` share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .likelihood import Likelihood, checked_columns, require_rows


class Counts(Likelihood):
    """Whole numbers, of which the predictor is the logarithm of a rate. Exposure enters as an offset."""

    is_log_concave = True
    takes_exposure = True

    def start(self, y: Any) -> jax.Array:
        """Log of a little more than the count."""
        return jnp.log(jnp.asarray(y) + 0.5)

    def check(self, y: Any, first_row: int = 0, owner: str = "compress_likelihood") -> np.ndarray:
        """Whole numbers of at least zero."""
        y = checked_columns(self, y, owner)
        wanted = "whole numbers of at least 0"
        require_rows(lambda b: (b >= 0) & np.isfinite(b) & (b == np.floor(b)), y, first_row, wanted, owner)
        return y
