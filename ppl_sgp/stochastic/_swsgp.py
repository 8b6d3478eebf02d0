"""SWSGP: sparse within sparse Gaussian processes, up to a hundred thousand inducing points of which a row uses few."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm.auto import tqdm

from .._internal import checks
from .._internal.random import random_key
from ..inference.compress_likelihood import likelihood_of
from ._svgp import svgp
from .batches import Batch, RowBatches, row_batches
from .coordinates import Coordinates
from .driver import Training, train
from .function_fit import FunctionFit
from .gaussian import GaussianNoise
from .held_out import held_out_rows
from .neighbour_posterior import VariationalNeighbours
from .neighbour_start import first_points, first_values
from .neighbours import METHODS, Neighbours, union
from .start import SAMPLE, family_of, sample_of, start_of
from .svgp_step import optimiser
from .swsgp_step import NeighbourProblem, NeighbourState, PointState, swsgp_step, values_of

OWNER = "swsgp"
#: Steps after which lengthscales are looked at, and by what they may have moved, in logarithms and relative to each
#: other, before neighbours are found anew.
LOOK, MOVED = 200, 0.1
#: The fit that hyperparameters are taken from where noise is not Gaussian.
FIRST_FIT: dict[str, Any] = {"num_points": 200, "num_steps": 500, "natural_size": 0.2, "learning_rate": 0.02}
#: Points of a full covariance at most: 200 MB for each of four arrays.
MOST_FULL = 5000


@dataclasses.dataclass(frozen=True, repr=False)
class SWSGPFit(FunctionFit):
    """What :func:`~ppl_sgp.stochastic.swsgp` found."""

    @property
    def objective(self) -> float:
        """Mean of the last estimates of the objective, in nats: no bound of the evidence."""
        return float(self.trace[-1])

    @property
    def bound(self) -> float:
        """There is none."""
        raise AttributeError(
            "The objective of SWSGP is no bound of the evidence, and compares nothing: take densities of rows that "
            "were held out. Its mean is `objective`."
        )


def swsgp(
    key: jax.Array,
    X: Any,
    y: Any = None,
    likelihood: Any = None,
    kernel: Any = None,
    *,
    num_points: int = 5000,
    num_neighbours: int = 16,
    points: Any = None,
    covariance: str = "diagonal",
    joint: bool = False,
    num_active: int | None = None,
    nearest: str = "kernel",
    hyperparameters: str = "fixed",
    start: dict[str, Any] | None = None,
    num_steps: int = 5000,
    batch_size: int | None = None,
    learning_rate: float = 0.01,
    point_rate: float = 0.01,
    held_out: Any = 0.05,
    check_every: int = 500,
    patience: int = 5,
    previous: SWSGPFit | None = None,
    progress: bool | None = None,
) -> SWSGPFit:
    """Fit a sparse within sparse Gaussian process (Tran, Milios, Michiardi & Filippone 2021).

    There are m inducing points, up to a hundred thousand, and each row sees the H of them that are nearest to it:
    those of the largest covariance, found by a tree. A step costs O(b H³) and touches the points of its rows only; with
    a full covariance O(b m H²).

    **What is maximised is no lower bound of the evidence**: it may exceed it, and does not compare fits with different
    numbers of points or neighbours. Compare densities of rows that were held out. Nor is it an evidence for MCMC.

    Hyperparameters are those of an exact GP on 1,000 rows where noise is Gaussian, else of :func:`svgp` with 200 points
    on 20,000 rows, and stay there: this objective prefers shorter lengthscales and less noise than the data, and
    held-out densities fall while it rises. Points are rows at random (up to 2,000 of them centres of clusters); their
    values begin at predictions from the rows around them, and are optimised by Adam.

    :param key: a JAX random key.
    :param X: inputs, shape (n, d): an array, a memory map, or chunks, as :func:`row_batches` takes them.
    :param y: outcomes, shape (n,), in their own units.
    :param likelihood: one of ``ppl_sgp.likelihoods``, or a function from predictors to a NumPyro distribution; default
        Gaussian noise.
    :param kernel: class of the kernel, as of :func:`svgp`.
    :param num_points: m.
    :param num_neighbours: H, at most m.
    :param points: the points, shape (m, d), instead.
    :param covariance: of the values at the points: ``"diagonal"``, or ``"full"`` for at most 5,000 points.
    :param joint: let all rows of a batch share the union of their points (SWSGP-U), O(u³ + u²b) for u points:
        objectives are closer to a bound, and joint predictions fit the training.
    :param num_active: u; where a union is larger, those that most rows have are taken. Default: all, b·H at most.
    :param nearest: ``"kernel"`` or ``"distance"``, in units of the points' standard deviations.
    :param hyperparameters: ``"fixed"`` where they begin, or ``"learned"`` with the rest, and then neighbours are found
        again when lengthscales have moved by a tenth relative to each other.
    :param start: values to begin at: some of ``lengthscale``, ``amplitude``, ``noise_scale``.
    :param num_steps: steps. In the second half of them step sizes fall.
    :param batch_size: b; default 256, with ``joint`` 64, or all of fewer rows.
    :param learning_rate: of Adam, for logarithms of hyperparameters.
    :param point_rate: of Adam, for values of points in units of the amplitude, and logarithms of their deviations.
    :param held_out: rows that tell when to stop, and which state is best: a pair ``(X, y)``, or the share of the rows
        (of arrays). Default 0.05, at most 2,000 rows; of chunks none.
    :param check_every: steps between looks at these.
    :param patience: looks without a better state after which it stops.
    :param previous: a fit of the same rows to go on from, with ``num_steps`` more; what it was given need not be again.
    :param progress: show a progress bar; default only at a terminal.
    :return: the fit; interrupted by Ctrl-C, what was reached, with ``reason``.
    :raises ValueError: for rows that cannot be used, by their number, H above m, and arguments that do not fit.
    :raises DivergenceError: for objectives that are not finite, with what had been reached.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 400)[:, None]
        >>> y = np.sin(9 * X[:, 0]) + 0.1 * np.cos(77 * np.arange(400.0) ** 2)
        >>> fit = sgp.stochastic.swsgp(
        ...     jax.random.key(0), X, y, num_points=50, num_neighbours=6, num_steps=300, batch_size=64
        ... )
        >>> bool(abs(fit.predict([[0.5]]).mean[0] - np.sin(4.5)) < 0.15)
        True
    """
    key = random_key(key, OWNER)
    checks.whole_number("num_steps", num_steps, 1, OWNER)
    checks.positive("learning_rate", learning_rate, OWNER)
    checks.positive("point_rate", point_rate, OWNER)
    if previous is not None and not isinstance(previous, SWSGPFit):
        raise ValueError(f"{OWNER}: `previous` must be a fit of sgp.stochastic.swsgp; got {type(previous).__name__}.")
    likelihood = previous.problem.likelihood if previous else _likelihood(likelihood)
    known = None if isinstance(likelihood, GaussianNoise) else likelihood
    chunks = y is None or not hasattr(X, "shape")
    held_out = previous.held_out if previous else None if chunks and held_out == 0.05 else held_out
    X, y, held = held_out_rows(key, X, y, held_out, known, OWNER)
    shared = previous.problem.joint if previous else joint
    size = (64 if shared else 256) if batch_size is None else batch_size
    if batch_size is None and not chunks:
        size = min(size, len(X))
    batches = row_batches(X, y, size, likelihood=known, owner=OWNER)
    show, keys = None if progress is None else not progress, jax.random.split(key, 4)
    if previous is None:
        _check(batches, covariance, len(points) if points is not None else num_points, num_neighbours, nearest, points)
        if hyperparameters not in ("fixed", "learned"):
            raise ValueError(f'{OWNER}: `hyperparameters` must be "fixed" or "learned"; got {hyperparameters!r}.')
        active = min(num_points if points is None else len(points), size * num_neighbours)
        if num_active is not None:
            active = min(active, checks.whole_number("num_active", num_active, num_neighbours, OWNER))
        settings = (num_neighbours, joint, active, nearest, hyperparameters == "fixed")
        with tqdm(disable=show, bar_format="{desc} [{elapsed}]") as bar:
            problem, state = _start(
                keys,
                batches,
                likelihood,
                kernel,
                points,
                num_points,
                settings,
                covariance,
                start,
                bar.set_description_str,
            )
        trained = None
    else:
        problem, trained = previous.problem, previous.training
        previous.require_inputs(batches.input_dim, OWNER)
        state = trained.last
    first = 0 if trained is None else trained.steps
    adam = optimiser(float(learning_rate), first, num_steps)
    on_device = jax.device_put(problem)  # once: a step would copy all points
    table = NeighbourTable(problem, adam, X if not chunks else None)

    def step(state: NeighbourState, key: jax.Array, batch: Batch) -> tuple[NeighbourState, jax.Array]:
        numbers, places = table.at(state, batch)
        rows = batch.X, batch.y, jnp.asarray(batch.scale, batch.X.dtype), numbers, places
        return swsgp_step(adam, float(point_rate), (first, num_steps), on_device, state, rows)

    training: Training[NeighbourState] = train(
        step,
        state,
        batches,
        keys[2],
        num_steps,
        held_out=None if held is None else lambda state: held.density(_posterior(problem, adam, state)),
        check_every=check_every,
        patience=patience,
        previous=trained,
        progress=progress,
        owner=OWNER,
        label="objective",
    )
    return SWSGPFit(_posterior(problem, adam, training.state, training), training, {"batch_size": size}, problem, held)


class NeighbourTable:
    """The neighbours of all training rows, found anew when lengthscales have moved; of chunks those of each batch."""

    def __init__(self, problem: NeighbourProblem, adam: Any, X: Any) -> None:
        self._problem, self._adam, self._X, self._seen = problem, adam, X, 0
        self._lengthscales: np.ndarray | None = None
        self._nearest: Any = None
        self._numbers: np.ndarray | None = None

    def at(self, state: NeighbourState, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Points of a batch (u,), and the places of each row's in them (b, H)."""
        if self._seen % LOOK == 0:
            self._look(state)
        self._seen += 1
        known = self._numbers is not None and batch.rows is not None
        numbers = self._numbers[batch.rows] if known else self._nearest.of(batch.X)  # type: ignore[index]
        size = self._problem.num_active if self._problem.joint else min(numbers.size, len(self._problem.points))
        return union(numbers, len(self._problem.points), size)

    def _look(self, state: NeighbourState) -> None:
        problem = self._problem
        z = np.asarray(self._adam.get_params(state.optimiser)["hyper"], np.float64)
        logs = (z + problem.coordinates.centre)[: problem.coordinates.input_dim]
        logs = logs - logs.mean()
        if self._lengthscales is not None and np.abs(logs - self._lengthscales).max() < MOVED:
            return
        self._lengthscales = logs
        kernel = problem.coordinates.unit_kernel(z)
        self._nearest = Neighbours(kernel, problem.points, problem.num_neighbours, problem.nearest)
        if self._X is not None:
            self._numbers = self._nearest.of(np.asarray(self._X))


def _likelihood(likelihood: Any) -> Any:
    return GaussianNoise() if likelihood is None else likelihood_of(likelihood, OWNER)


def _check(
    batches: RowBatches, covariance: str, num_points: int, num_neighbours: int, nearest: str, points: Any
) -> None:
    checks.whole_number("num_points", num_points, 1, OWNER)
    checks.whole_number("num_neighbours", num_neighbours, 1, OWNER)
    if num_neighbours > num_points:
        raise ValueError(
            f"{OWNER}: `num_neighbours` is {num_neighbours}, and there are only {num_points} points. Take at most that "
            "many; with all of them it is SVGP."
        )
    if points is None and num_points > batches.num_rows:
        raise ValueError(
            f"{OWNER}: `num_points` is {num_points}, but points are chosen among {batches.num_rows} rows. Take fewer, "
            "or pass `points`."
        )
    if covariance not in ("diagonal", "full"):
        raise ValueError(f'{OWNER}: `covariance` must be "diagonal" or "full"; got {covariance!r}.')
    if covariance == "full" and num_points > MOST_FULL:
        raise ValueError(
            f'{OWNER}: covariance "full" is for at most {MOST_FULL} points; got {num_points}. Take "diagonal".'
        )
    if nearest not in METHODS:
        raise ValueError(f"{OWNER}: `nearest` must be one of {METHODS}; got {nearest!r}.")


def _start(
    keys: jax.Array,
    batches: RowBatches,
    likelihood: Any,
    kernel: Any,
    points: Any,
    num_points: int,
    settings: tuple[int, bool, int, str, bool],
    covariance: str,
    start: Any,
    progress: Callable[[str], None],
) -> tuple[NeighbourProblem, NeighbourState]:
    family = family_of(kernel, OWNER)
    X, y, level = sample_of(keys[0], batches, likelihood, OWNER)
    coordinates = Coordinates.of_data(family, X, y, likelihood)
    progress("hyperparameters to start from")
    if start is None and not isinstance(likelihood, GaussianNoise):
        first = svgp(keys[0], *batches.some(keys[0], SAMPLE)[:2], likelihood, kernel, **FIRST_FIT, progress=False)
        z = np.asarray(first.coordinates[0] - coordinates.centre)
    else:
        z = start_of(keys[0], X, y, likelihood, coordinates, start, OWNER, progress)
    progress("inducing points and their values")
    Z = first_points(keys[1], batches, X, points, num_points, OWNER)
    unit = np.asarray(float(np.exp(coordinates.centre[X.shape[1]] + z[X.shape[1]])))
    problem = NeighbourProblem(likelihood, coordinates, Z, level, unit, *settings)
    values = first_values(problem, z, batches.some(keys[3], max(50_000, 2 * len(Z))), covariance)
    hyper = optimiser(1.0, 0, 1).init({"hyper": jnp.asarray(z)})
    return problem, NeighbourState(PointState.of(values), hyper)


def _posterior(
    problem: NeighbourProblem, adam: Any, state: NeighbourState, training: Training[NeighbourState] | None = None
) -> VariationalNeighbours:
    """The posterior at a state, with what a training recorded."""
    z = adam.get_params(state.optimiser)["hyper"][None]
    numbers = jnp.arange(len(problem.points))
    values = jax.tree.map(np.asarray, values_of(state.points.value, jnp.asarray(problem.unit), numbers))
    named = problem.coordinates.by_name(np.asarray(z), problem.likelihood)
    kernels = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), jax.vmap(problem.coordinates.kernel)(z))
    return VariationalNeighbours(
        kernels,
        problem.points,
        values.loc,
        values.root,
        problem.level,
        problem.likelihood,
        np.asarray(jax.vmap(problem.coordinates.parameters)(z), np.float64),
        tuple(named.values()),
        np.zeros(0) if training is None else training.estimates,
        np.zeros((0, 2)) if training is None else training.held_out,
        problem.num_neighbours,
        problem.nearest,
        tuple(named),
        "" if training is None else training.reason,
    )
