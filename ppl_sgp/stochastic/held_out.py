"""Rows that are held out of a stochastic fit, to tell when it stops."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from .._internal import checks
from .._internal.random import host_generator
from ..likelihoods.likelihood import Likelihood

#: Rows that are held out at most where a share is asked for.
MOST = 2000


class HeldOut(NamedTuple):
    """Inputs and outcomes of rows that are not trained on, and their numbers where they were among those given."""

    X: np.ndarray
    y: np.ndarray
    rows: np.ndarray | None = None

    def density(self, fit: Any) -> float:
        """The mean log predictive density of a fit, in nats a row."""
        given = {}
        if self.y.ndim == 2:
            given["given"] = self.y
        return float(np.mean(fit.predict(self.X, **given).log_density(self.y)))


def held_out_rows(
    key: jax.Array, X: Any, y: Any, held_out: Any, likelihood: Likelihood | None, owner: str
) -> tuple[Any, Any, HeldOut | None]:
    """The rows that are left, and those held out.

    :param held_out: ``None``, a pair ``(X, y)``, a share of the rows between 0 and 1/2, or what was held out before.
    """
    if held_out is None:
        return X, y, None
    if isinstance(held_out, HeldOut):
        if held_out.rows is None:
            return X, y, held_out
        if len(X) < len(held_out.rows) or not np.array_equal(np.asarray(X)[held_out.rows], held_out.X):
            raise ValueError(f"{owner}: these are not the rows of `previous`: those that were held out differ.")
        left = np.setdiff1d(np.arange(len(X)), held_out.rows)
        return np.asarray(X)[left], np.asarray(y)[left], held_out
    if isinstance(held_out, tuple | list) and len(held_out) == 2:
        X_held, y_held = checks.finite_inputs(held_out[0], None, owner, "held_out[0]"), held_out[1]
        y_held = (
            checks.host_numbers("held_out[1]", y_held, owner)
            if likelihood is None
            else likelihood.check(y_held, 0, owner)
        )
        if likelihood is None:
            checks.require_finite("held_out[1]", y_held, owner)
        if len(X_held) != len(y_held):
            raise ValueError(f"{owner}: `held_out` has {len(X_held)} rows of X but {len(y_held)} of y.")
        return X, y, HeldOut(X_held, np.asarray(y_held, np.float64))
    if not isinstance(held_out, float) or not 0 < held_out <= 0.5:
        raise ValueError(
            f"{owner}: `held_out` must be a pair (X, y), or a share of the rows up to 0.5; got {held_out!r}."
        )
    if y is None or not hasattr(X, "shape"):
        raise ValueError(f"{owner}: a share can be held out of arrays only; pass rows, `held_out=(X, y)`.")
    X = checks.finite_inputs(X, None, owner)
    y = checks.host_numbers("y", y, owner) if likelihood is None else likelihood.check(y, 0, owner)
    if len(X) != len(y):
        raise ValueError(f"{owner}: `X` has {len(X)} rows but `y` has {len(y)}; they must match.")
    order = host_generator(key, owner, 2).permutation(len(X))
    count = max(1, min(MOST, int(held_out * len(X))))
    held, left = np.sort(order[:count]), np.sort(order[count:])
    if likelihood is None:
        checks.require_finite("y", y, owner)
    return X[left], y[left], HeldOut(X[held], np.asarray(y[held], np.float64), held)
