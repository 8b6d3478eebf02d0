"""Distributions over compressed data, of every shape and storage, for the tests of the distribution contract."""

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ppl_sgp as sgp

#: n rows, distinct inputs (rows repeat them: rank ≤ 2·distinct), m features, rotated, outputs, row weights.
DATA = {
    "dense": dict(n=12, distinct=12, m=6),
    "few_rows": dict(n=4, distinct=4, m=6),
    "dual": dict(n=9, distinct=3, m=8),
    "diagonal": dict(n=12, distinct=12, m=6, rotated=True),
    "diagonal_null": dict(n=9, distinct=3, m=8, rotated=True),
    "orthonormal": dict(n=12, distinct=12, m=6, rotated=True, orthonormal=True),
    "two_outputs": dict(n=12, distinct=12, m=6, q=2),
    "weighted": dict(n=12, distinct=12, m=6, weighted=True),
    # For quadrature: as few dimensions as possible.
    "tiny_1": dict(n=3, distinct=3, m=2),
    "tiny_2": dict(n=4, distinct=4, m=2),
    "tiny_weighted": dict(n=4, distinct=4, m=2, weighted=True),
    "tiny_full": dict(n=2, distinct=2, m=4),
    "tiny_dual": dict(n=4, distinct=2, m=4),
    "tiny_null": dict(n=3, distinct=1, m=2, rotated=True),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Data:
    """Rows and their statistics."""

    X: np.ndarray
    y: np.ndarray
    row_weights: np.ndarray | None
    statistics: sgp.SufficientStatistics

    @cached_property
    def Phi(self) -> np.ndarray:
        return self.statistics.basis.host_features(self.X)


def make_data(n, distinct, m, rotated=False, orthonormal=False, q=None, weighted=False) -> Data:
    rng = np.random.default_rng(n + 100 * m + distinct)
    X = rng.normal(size=(distinct, 1))[np.arange(n) % distinct]
    y = rng.normal(size=n if q is None else (n, q))
    row_weights = rng.uniform(0.3, 3.0, size=n) if weighted else None
    basis = sgp.FourierBasis.sample(jax.random.key(m), sgp.SquaredExponential(0.5), m, 1)
    statistics = sgp.sufficient_statistics(basis, X, y, row_weights=row_weights)
    return Data(X, y, row_weights, statistics.rotate(orthonormal=orthonormal) if rotated else statistics)


_DATA = {}


def data(name: str) -> Data:
    """The named data, made once."""
    if name not in _DATA:
        _DATA[name] = make_data(**DATA[name])
    return _DATA[name]


def sparse_gp(statistics, parameters):
    prior = sgp.DiagonalPrior.from_log_scale(parameters["log_scale"], parameters.get("mean"))
    return sgp.SparseGP(statistics, prior, parameters["noise_scale"])


def reflected_gp(statistics, parameters):
    prior = sgp.HouseholderPrior(jnp.exp(parameters["log_scale"]), parameters["vectors"], parameters["mean"])
    return sgp.SparseGP(statistics, prior, parameters["noise_scale"])


def joint_gp(statistics, parameters):
    prior = sgp.DensePrior(scale_tril=jnp.tril(parameters["scale_tril"]), mean=parameters["mean"])
    return sgp.SparseGP(statistics, prior, parameters["noise_scale"])


def compressed_normal(statistics, parameters):
    return sgp.CompressedNormal(statistics, parameters["weights"], parameters["noise_scale"])


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One distribution: a family, data, and the shapes of its parameters before the weights."""

    data_name: str
    family: Callable[..., Any]
    batches: dict[str, tuple[int, ...]]
    batch_shape: tuple[int, ...] = ()

    @property
    def data(self) -> Data:
        return data(self.data_name)

    @property
    def statistics(self) -> sgp.SufficientStatistics:
        return self.data.statistics

    @cached_property
    def parameters(self) -> dict[str, jax.Array]:
        rng = np.random.default_rng(1)
        m = self.statistics.num_features
        values = {}
        for name, batch in self.batches.items():
            z = rng.normal(size=batch if name == "noise_scale" else (*batch, m))
            values[name] = jnp.asarray(0.5 * np.exp(0.3 * z) if name == "noise_scale" else 0.5 * z)
        return values

    @property
    def observed_data(self) -> sgp.SufficientStatistics:
        return self.statistics

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.statistics.projection.shape[-1:]

    @property
    def num_residual(self) -> int:
        """Degrees of freedom of a last entry that is a residual sum of squares."""
        return int(self.statistics.moments.num_rows - self.statistics.compressed.rank)

    def remake(self, site, noise_scale, **options):
        """The distribution with another noise."""
        weights = site.prior if isinstance(site, sgp.SparseGP) else site.weights
        return type(site)(site.data, weights, noise_scale, **options)

    def shape_arguments(self, site):
        """What ``infer_shapes`` takes besides data and noise."""
        return (site.prior if isinstance(site, sgp.SparseGP) else jnp.shape(site.weights),)

    def make(self, parameters: dict[str, Any] | None = None):
        """The distribution, at its own or at given parameters."""
        return self.family(self.statistics, self.parameters if parameters is None else parameters)

    @cached_property
    def value(self) -> jax.Array:
        """One value of the support, away from its boundary, that the distribution could have drawn."""
        statistics = self.statistics
        rng = np.random.default_rng(2)
        c = rng.normal(size=(*self.batch_shape, statistics.projection.shape[-1] - 1))
        if statistics.is_diagonal:
            c = np.where(statistics.compressed.factor == 0, 0.0, c)
        dof = float(statistics.moments.num_rows - statistics.compressed.rank)
        rss = 0.3 * dof * (1 + rng.random((*self.batch_shape, 1)))
        return jnp.asarray(np.concatenate([c, rss], axis=-1))

    @property
    def weight_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the weights, float64, shape batch + (m,)."""
        shape = (*self.batch_shape, self.statistics.num_features)
        values = {name: np.asarray(value, dtype=np.float64) for name, value in self.parameters.items()}
        mean = values["weights"] if "weights" in values else values.get("mean", np.zeros(1))
        scale = np.exp(values["log_scale"]) if "log_scale" in values else np.zeros(1)
        return np.broadcast_to(mean, shape), np.broadcast_to(scale, shape)

    @property
    def noise_scale(self) -> np.ndarray:
        return np.broadcast_to(np.asarray(self.parameters["noise_scale"], dtype=np.float64), self.batch_shape)


PRIOR = {"log_scale": (), "noise_scale": ()}
PRIOR_MEAN = {**PRIOR, "mean": ()}
WEIGHTS = {"weights": (), "noise_scale": ()}
CASES = {
    "gp-dense": Case("dense", sparse_gp, PRIOR),
    "gp-few_rows": Case("few_rows", sparse_gp, PRIOR),
    "gp-dual": Case("dual", sparse_gp, PRIOR),
    "gp-diagonal_null": Case("diagonal_null", sparse_gp, PRIOR),
    "gp-diagonal_mean": Case("diagonal", sparse_gp, PRIOR_MEAN),
    "gp-weighted_mean": Case("weighted", sparse_gp, PRIOR_MEAN),
    "gp-batch": Case("dual", sparse_gp, {"log_scale": (3, 1), "mean": (2,), "noise_scale": (2,)}, (3, 2)),
    "gp-two_outputs": Case("two_outputs", sparse_gp, {"log_scale": (3, 1), "noise_scale": (2,)}, (3, 2)),
    "weights-weighted": Case("weighted", compressed_normal, WEIGHTS),
    "weights-diagonal_null": Case("diagonal_null", compressed_normal, WEIGHTS),
    "weights-batch": Case("two_outputs", compressed_normal, {"weights": (3, 1), "noise_scale": (2,)}, (3, 2)),
}

#: Priors with correlations: their moments and densities are tested in tests/priors/.
STRUCTURED = {
    "gp-reflected": Case("orthonormal", reflected_gp, {**PRIOR_MEAN, "vectors": (2,)}),
    "gp-joint": Case("dense", joint_gp, {"scale_tril": (6,), "mean": (), "noise_scale": ()}),
}

QUADRATURE = {
    f"{prefix}-{name}": Case(name, family, batches)
    for prefix, family, batches in (("gp", sparse_gp, PRIOR), ("weights", compressed_normal, WEIGHTS))
    for name in DATA
    if name.startswith("tiny")
}


@dataclasses.dataclass(frozen=True, eq=False)
class ExactCase:
    """An exact GP of a few rows, asked as a :class:`Case` is."""

    num_outputs: int | None = None
    weighted: bool = False
    noise_batch: tuple[int, ...] = ()
    batch_shape: tuple[int, ...] = ()
    num_residual = None

    @cached_property
    def observed_data(self) -> sgp.Rows:
        rng = np.random.default_rng(6)
        y = rng.normal(size=7 if self.num_outputs is None else (7, self.num_outputs))
        return sgp.rows(rng.normal(size=(7, 2)), y, rng.uniform(0.3, 3.0, 7) if self.weighted else None)

    @property
    def event_shape(self) -> tuple[int, ...]:
        return (7,)

    @cached_property
    def parameters(self) -> dict[str, jax.Array]:
        z = np.random.default_rng(1).normal(size=self.noise_batch)
        values = {"lengthscale": np.array([0.7, 1.4]), "amplitude": np.array(1.2), "noise_scale": 0.5 * np.exp(0.3 * z)}
        return {name: jnp.asarray(value) for name, value in values.items()}

    def remake(self, site, noise_scale, **options):
        return type(site)(site.data, *self.shape_arguments(site), noise_scale, **options)

    def shape_arguments(self, site):
        return (site.kernel,)

    def make(self, parameters: dict[str, Any] | None = None):
        values = self.parameters if parameters is None else parameters
        return self.of_kernel(sgp.Matern52(values["lengthscale"], values["amplitude"]), values["noise_scale"])

    def of_kernel(self, kernel, noise_scale):
        return sgp.ExactGP(self.observed_data, kernel, noise_scale)

    @cached_property
    def value(self) -> jax.Array:
        return jnp.asarray(np.random.default_rng(2).normal(size=(*self.batch_shape, 7)))


@dataclasses.dataclass(frozen=True, eq=False)
class InducingCase(ExactCase):
    """The same through four inducing points."""

    method: str = "fitc"

    def remake(self, site, noise_scale, **options):
        return super().remake(site, noise_scale, method=self.method, **options)

    def shape_arguments(self, site):
        return site.kernel, site.Z

    def of_kernel(self, kernel, noise_scale):
        Z = np.random.default_rng(4).normal(size=(4, 2))
        return sgp.InducingGP(self.observed_data, kernel, Z, noise_scale, self.method)


@dataclasses.dataclass(frozen=True, eq=False)
class GridCase(ExactCase):
    """A grid with two gaps, and seven cells observed."""

    method: str = "auto"

    @property
    def solver(self) -> sgp.GridSolver:
        return sgp.GridSolver(method=self.method)

    @cached_property
    def observed_data(self) -> sgp.Grid:
        rng = np.random.default_rng(6)
        gaps = np.arange(9).reshape(3, 3) % 5 == 1
        weights = rng.choice([1.0, 2.0], (3, 3)) if self.weighted else None
        return sgp.Grid(
            [[0.0, 1.0, 2.5], rng.normal(size=(3, 2))], rng.normal(size=(3, 3)), gaps=gaps, noise_weights=weights
        )

    def remake(self, site, noise_scale, **options):
        return type(site)(site.data, site.kernels, noise_scale, solver=self.solver, **options)

    def shape_arguments(self, site):
        return (site.kernels,)

    def make(self, parameters: dict[str, Any] | None = None):
        values = self.parameters if parameters is None else parameters
        first, second = values["lengthscale"]
        kernels = [sgp.Matern52(first, values["amplitude"]), sgp.SquaredExponential(second)]
        return sgp.GridGP(self.observed_data, kernels, values["noise_scale"], solver=self.solver)


EXACT = {
    "exact": ExactCase(),
    "exact-batch": ExactCase(2, True, (3, 2), (3, 2)),
    "exact-outputs": ExactCase(2, False, (), (2,)),
    "fitc-batch": InducingCase(2, True, (3, 2), (3, 2)),
    "dtc": InducingCase(method="dtc"),
    "grid": GridCase(),
    "grid-filled": GridCase(weighted=True, noise_batch=(2,), batch_shape=(2,), method="fill"),
}
