"""What fits of functions share: a posterior, and the training that may go on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .._internal.shown import Shown
from ..diagnostics.report import Report
from .driver import Training
from .held_out import HeldOut


@dataclasses.dataclass(frozen=True, repr=False)
class StochasticFit(Shown):
    """Base of what fits return.

    :ivar posterior: the posterior, a :class:`~.functions.VariationalFunctions`.
    :ivar training: what the loop reached, from which ``previous`` goes on.
    :ivar problem: what was fitted.
    :ivar held_out: the rows that were held out.
    """

    posterior: Any
    training: Training[Any]
    problem: Any
    held_out: HeldOut | None

    @property
    def samples(self) -> dict[str, np.ndarray]:
        """Hyperparameters by name, the draws along the first axis; of a point a single one."""
        return self.posterior.samples

    @property
    def objective_trace(self) -> np.ndarray:
        """Estimates of the objective, one a step, in nats, (t,). They are noisy; see ``training.running_mean()``."""
        return self.training.estimates

    @property
    def trace(self) -> np.ndarray:
        """Running means of these, (t,)."""
        return self.training.running_mean()

    @property
    def reason(self) -> str:
        """Why it stopped, in words."""
        return self.training.reason

    def predict(self, X_new: Any, **options: Any) -> Any:
        """Predictions at new inputs: see :meth:`VariationalFunctions.predict`."""
        return self.posterior.predict(X_new, **options)

    def to_arviz(self, key: Any, X: Any = None, y: Any = None, X_new: Any = None, **options: Any) -> Any:
        """ArviZ's container: see :meth:`VariationalFunctions.to_arviz`."""
        return self.posterior.to_arviz(key, X, y, X_new, **options)

    def report(self, X: Any = None, y: Any = None) -> Report:
        """What is wrong with the fit, in plain words: see :meth:`VariationalFunctions.report`."""
        return self.posterior.report(X, y)

    def save(self, path: Any) -> None:
        """Write the posterior to a file that :func:`~ppl_sgp.load_posterior` reads; training cannot go on from it."""
        self.posterior.save(path)

    def facts(self) -> dict[str, Any]:
        """Those of the posterior."""
        return self.posterior.facts()
