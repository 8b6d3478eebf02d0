"""Small problems with arbitrary features, and what tests of both lanes share."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

import ppl_sgp as sgp
from ppl_sgp._internal.pytree import pytree_dataclass, static

X64 = jax.config.jax_enable_x64


def by_lane(float64, float32):
    """The value for the lane that runs."""
    return float64 if X64 else float32


@pytree_dataclass
class IdentityBasis(sgp.Basis):
    """φ(x) = x, so that inputs are the features."""

    dim: int = static()

    @property
    def num_features(self):
        return self.dim

    @property
    def input_dim(self):
        return self.dim

    def features(self, X, xp):
        return X


class Problem(NamedTuple):
    """A linear-Gaussian regression with features Phi."""

    Phi: np.ndarray
    y: np.ndarray
    scale: Any
    mean: Any = None
    noise_scale: float = 0.3
    row_weights: Any = None

    def statistics(self):
        return sgp.sufficient_statistics(
            IdentityBasis(self.Phi.shape[1]), self.Phi, self.y, row_weights=self.row_weights
        )

    def prior(self):
        return sgp.DiagonalPrior(self.scale, self.mean)


def _random(rng, n, m, **changes):
    """Positive and negative features of order one, y of order one."""
    y = rng.standard_normal(n)
    return Problem(rng.standard_normal((n, m)), y, np.exp(rng.normal(0, 0.5, m)))._replace(**changes)


def _low_rank(rng, n=40, m=20, rank=4):
    problem = _random(rng, n, m)
    return problem._replace(Phi=rng.standard_normal((n, rank)) @ rng.standard_normal((rank, m)))


def _duplicates(rng):
    problem = _random(rng, 30, 6)
    return problem._replace(Phi=problem.Phi[:, [0, 1, 0, 2, 3, 3]])


def _with_zeros(rng, columns):
    problem = _random(rng, 30, 6)
    problem.Phi[:, columns] = 0
    return problem


def _units(rng, scale_in_units):
    problem = _random(rng, 30, 6)
    units = 10.0 ** np.array([-6, -3, -1, 0, 3, 6])
    return problem._replace(Phi=problem.Phi * units, scale=problem.scale / units if scale_in_units else 1.0)


def _constant_y(rng):
    problem = _random(rng, 25, 6, y=np.full(25, 3.7))
    problem.Phi[:, 0] = 1
    return problem


PROBLEMS = {
    "tall": lambda rng: _random(rng, 40, 6),
    "square": lambda rng: _random(rng, 6, 6),
    "wide": lambda rng: _random(rng, 4, 6),
    "very wide": lambda rng: _random(rng, 2, 6),
    "one row": lambda rng: _random(rng, 1, 6),
    "one feature": lambda rng: _random(rng, 20, 1),
    "low rank": _low_rank,
    "duplicated columns": _duplicates,
    "zero columns": lambda rng: _with_zeros(rng, [1, 4]),
    "all zero": lambda rng: _with_zeros(rng, slice(None)),
    "wild units": lambda rng: _units(rng, True),
    "wild units, one prior": lambda rng: _units(rng, False),
    "constant y": _constant_y,
    "zero y": lambda rng: _random(rng, 20, 6, y=np.zeros(20)),
    "mean": lambda rng: _random(rng, 30, 6, mean=rng.standard_normal(6)),
    "mean, low rank": lambda rng: _low_rank(rng)._replace(mean=rng.standard_normal(20)),
    "scalar prior": lambda rng: _random(rng, 30, 6, scale=1.3),
    "small noise": lambda rng: _random(rng, 30, 6, noise_scale=1e-3),
    "large noise": lambda rng: _random(rng, 30, 6, noise_scale=1e3),
    "outputs": lambda rng: _random(rng, 30, 6, y=rng.standard_normal((30, 3)) * [1.0, 1e-3, 1e3]),
    "row weights": lambda rng: _random(rng, 30, 6, row_weights=np.exp(rng.normal(0, 2, 30))),
    "row weights, outputs": lambda rng: _random(
        rng, 30, 6, y=rng.standard_normal((30, 2)), row_weights=np.exp(rng.normal(0, 1, 30))
    ),
}


def smooth_rows(rng, n, noise_scale=0.1, num_outputs=None):
    """One input on [0, 1] and a smooth output, or several."""
    X = np.sort(rng.random(n))[:, None]
    phases = rng.random(num_outputs or 1) * 6
    y = np.sin(7 * X + phases) + noise_scale * rng.standard_normal((n, len(phases)))
    return X, y if num_outputs else y[:, 0]
