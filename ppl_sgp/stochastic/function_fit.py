"""What fits of functions share: a posterior, and the training that may go on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .held_out import HeldOut
from .result import StochasticFit


@dataclasses.dataclass(frozen=True, repr=False)
class FunctionFit(StochasticFit):
    """A fit of functions whose features move; its posterior is a :class:`~.functions.VariationalFunctions`.

    :ivar problem: what was fitted.
    :ivar held_out: the rows that were held out.
    """

    problem: Any
    held_out: HeldOut | None

    def require_inputs(self, input_dim: int, owner: str) -> None:
        """Refuse to go on with rows of another number of inputs."""
        known = self.problem.coordinates.input_dim
        if input_dim != known:
            raise ValueError(f"{owner}: `previous` has {known} inputs; got {input_dim}.")

    @property
    def samples(self) -> dict[str, np.ndarray]:
        """Hyperparameters by name, the draws along the first axis; of a point a single one."""
        return self.posterior.samples

    @property
    def points(self) -> np.ndarray:
        """Inducing points, (m, d)."""
        return np.asarray(self.posterior.points)

    @property
    def objective_trace(self) -> np.ndarray:
        """Estimates of the objective, one a step, in nats, (t,); they are noisy: see :attr:`trace`."""
        return self.training.estimates

    @property
    def trace(self) -> np.ndarray:
        """Running means of these, (t,)."""
        return self.training.running_mean()

    @property
    def reason(self) -> str:
        """Why it stopped, in words."""
        return self.training.reason
