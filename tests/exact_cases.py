"""Random regressions at the edges of rank and precision, each with its evidence by every path and in 60 digits.

Shared by the tests and by benchmarks/exact_evidence.py.
"""

from __future__ import annotations

import decimal
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import ppl_sgp as sgp
from tests.builders import IdentityBasis
from tests.reference import DIGITS, decimals, exact_log_evidence

PRIORS = ("diagonal", "dense", "kronecker", "block", "householder")
FEATURES = ("random", "smooth", "fourier", "duplicates", "constant", "zero", "units")
#: As multiples of m: fewer rows than features, as many, and more.
ROWS = (0.25, 0.5, 1.0, 1.25, 3.0)
NOISE = (1.0, 0.1, 1e-2, 1e-3, 1e-4)


class Case(NamedTuple):
    """A regression with features Phi (n, m), and a prior of its weights."""

    Phi: np.ndarray
    y: np.ndarray
    prior: sgp.WeightPrior
    noise_scale: float
    row_weights: np.ndarray | None

    def statistics(self, method: str) -> sgp.SufficientStatistics:
        """By the given method."""
        basis = IdentityBasis(self.Phi.shape[1])
        return sgp.sufficient_statistics(basis, self.Phi, self.y, row_weights=self.row_weights, method=method)


def features(kind: str, rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """Features of one of the :data:`FEATURES`, (n, m)."""
    x, Phi = rng.uniform(0, 1, (n, 1)), rng.standard_normal((n, m))
    if kind == "smooth":  # bumps wider than their distance, and a constant
        Phi = np.exp(-0.5 * ((x - np.linspace(0, 1, m)) / 0.4) ** 2)
        Phi[:, 0] = 1.0
    elif kind == "fourier":  # most frequencies below a cycle, so that ranks are at rounding
        phase = 2 * np.pi * x * np.abs(rng.normal(0, 0.4, m // 2))
        Phi = np.concatenate([np.cos(phase), np.sin(phase)], axis=1)
    elif kind == "duplicates":
        Phi = Phi[:, rng.integers(0, m, m)][rng.integers(0, n, n)]
    elif kind == "constant":
        Phi[:, : m // 2] = 1.0
    elif kind == "zero":
        Phi[:, rng.integers(0, m, m // 2)] = 0.0
    elif kind == "units":
        Phi = Phi * 10.0 ** rng.integers(-6, 7, m)
    return Phi


def _covariance(rng: np.random.Generator, m: int) -> np.ndarray:
    F = rng.standard_normal((m, m))
    C = F @ np.diag(10.0 ** rng.uniform(-3, 0, m)) @ F.T
    return (C + C.T) / 2


def prior_of(kind: str, rng: np.random.Generator, m: int, scale: float) -> sgp.WeightPrior:
    """A prior of one of the :data:`PRIORS`, half of them with a mean."""
    mean = jnp.asarray(scale * rng.standard_normal(m)) if rng.random() < 0.5 else None
    scales = scale * np.exp(rng.normal(0, 1, m))
    if kind == "dense":
        return sgp.DensePrior(scale**2 * _covariance(rng, m), mean=mean)
    if kind == "kronecker":
        return sgp.KroneckerPrior([scale**2 * _covariance(rng, 2), _covariance(rng, m // 2)], mean)
    if kind == "block":
        first = sgp.DiagonalPrior(scales[: m // 2], None if mean is None else mean[: m // 2])
        return sgp.BlockPrior([first, sgp.DensePrior(scale**2 * _covariance(rng, m - m // 2))])
    if kind == "householder":
        return sgp.HouseholderPrior(scales, rng.standard_normal((2, m)), mean)
    return sgp.DiagonalPrior(scales, mean)


def random_case(seed: int, m: int, prior: str | None = None) -> Case:
    """A case of m features, by the seed alone."""
    rng = np.random.default_rng(seed)
    n = max(1, round(m * ROWS[rng.integers(len(ROWS))]))
    Phi = features(FEATURES[rng.integers(len(FEATURES))], rng, n, m)
    kind = PRIORS[rng.integers(len(PRIORS))] if prior is None else prior
    noise_scale = NOISE[rng.integers(len(NOISE))]
    y = Phi @ rng.standard_normal(m) / (1 + np.abs(Phi).max()) + noise_scale * rng.standard_normal(n)
    y += rng.choice([0.0, 0.3]) * rng.standard_normal(n)
    row_weights = np.exp(rng.normal(0, 1, n)) if rng.random() < 0.3 else None
    scale = 10.0 ** rng.uniform(-1, 1.5)
    return Case(Phi, y, prior_of(kind, rng, m, scale), float(jnp.asarray(noise_scale)), row_weights)


def evidences(case: Case, method: str) -> dict[str, tuple[float, float]]:
    """By path, the evidence as the package has it and as it is."""
    Phi, y, prior, noise_scale, row_weights = case
    m, stats = Phi.shape[1], case.statistics(method)
    exact = exact_log_evidence(Phi, y, prior, noise_scale, row_weights)
    found: dict[str, tuple[Any, float]] = {type(prior).__name__: (sgp.log_evidence(stats, prior, noise_scale), exact)}

    def rotated(name: str, stats: sgp.SufficientStatistics, prior: sgp.WeightPrior) -> None:
        with decimal.localcontext(prec=DIGITS):
            Phi_rotated = decimals(Phi) @ decimals(stats.basis.rotation)  # type: ignore[attr-defined]
        exact = exact_log_evidence(Phi_rotated, y, prior, noise_scale, row_weights)
        found[name] = sgp.log_evidence(stats, prior, noise_scale), exact

    if isinstance(prior, sgp.DiagonalPrior):
        rotated("rotate()", stats.rotate(), prior)
        if prior.mean is None:
            unit = sgp.DiagonalPrior(jnp.ones(m, prior.log_scale.dtype))
            found["rotate(prior)"] = sgp.log_evidence(stats.rotate(prior), unit, noise_scale), exact
    if isinstance(prior, sgp.HouseholderPrior):
        orthonormal = stats.rotate(orthonormal=True)
        k = orthonormal.num_orthonormal
        rotated("rotate(orthonormal), reflected", orthonormal, _narrower(prior, k))
        rotated("rotate(orthonormal), diagonal", orthonormal, sgp.DiagonalPrior(prior.scale, prior.mean))
    return {name: (float(value), exact) for name, (value, exact) in found.items()}


def _narrower(prior: sgp.HouseholderPrior, k: int) -> sgp.HouseholderPrior:
    """Reflections of the first k weights only, which keep orthonormal statistics diagonal."""
    return sgp.HouseholderPrior(prior.scale, prior.vectors[:, :k], prior.mean)


def in_float32(prior: sgp.WeightPrior) -> sgp.WeightPrior:
    """The same with its numbers rounded."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), prior)
