"""Type-II fits of hyperparameters and inducing points, by schedules that choose points anew or move them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import init_to_value
from scipy.optimize import minimize
from tqdm.auto import tqdm

from .._internal import checks
from .._internal.random import random_key
from .._internal.shown import ShownFields
from ..evidence import inducing
from ..kernels import Kernel, SquaredExponential
from ..kernels.hyperprior_scales import AMPLITUDE_SPREAD, NOISE_SHARE, NOISE_SPREAD, lengthscale_prior
from ..statistics.kept_rows import ChunkedRows, Rows
from .inducing_objective import evidence, hyperparameters, value_and_gradients
from .inducing_points import select_inducing_points
from .maximise import LEAST_GAIN, Maximum, Objective, maximise

OWNER = "fit_inducing"
SCHEDULES = ("joint", "fix", "reinitialise", "fix-retrain", "reinitialise-retrain")
#: Iterations between two choices of points; how many of these, and how many that make it worse, end a schedule; and
#: iterations after the last one (Hughes-Hallett 2022, section 3.1.2).
ROUND, MOST_ROUNDS, MOST_WORSE, LAST = 25, 40, 10, 100
INTERRUPTED = "interrupted"


@dataclasses.dataclass(frozen=True, repr=False)
class InducingFit(ShownFields):
    """What :func:`~ppl_sgp.fit_inducing` found: the best point that it saw.

    :ivar values: ``lengthscale``, ``amplitude`` and ``noise_scale``, by name, in their own units.
    :ivar kernel: the kernel with these.
    :ivar points: inducing points, shape (m, d), in units of the inputs.
    :ivar noise_scale: standard deviation of the noise: a number, or one an output, shape (q,).
    :ivar bound: the evidence by ``method``, summed over outputs, in nats; for ``"vfe"`` a bound from below.
    :ivar upper_bound: the bound from above on the exact evidence there, summed over outputs.
    :ivar log_joint: ``bound`` plus the log density of the hyper-priors.
    :ivar trace: the best ``log_joint`` so far after each evaluation.
    :ivar num_evaluations: evaluations of the evidence with its gradient.
    :ivar converged: whether a further Newton step would gain next to nothing.
    :ivar message: why it ended, and what such a step would gain.
    """

    values: dict[str, Any]
    kernel: Kernel
    points: np.ndarray
    noise_scale: Any
    bound: float
    upper_bound: float
    log_joint: float
    trace: np.ndarray
    num_evaluations: int
    converged: bool
    message: str

    @property
    def gap(self) -> float:
        """``upper_bound − bound``: what is lost at most against the exact GP at these hyperparameters, in nats.

        A certificate for ``method="vfe"``; what is really lost is often far less, as the bound from above is looser.
        Where it is large, more points, or a smoother kernel, may help.
        """
        return self.upper_bound - self.bound

    @property
    def samples(self) -> dict[str, Any]:
        """The hyperparameters as one draw of :func:`ppl_sgp.models.inducing_gp`, for :func:`~ppl_sgp.posterior`."""
        return {name: value[None] for name, value in self._at_sites().items()}

    def init_strategy(self) -> Callable[..., Any]:
        """Starting values for NUTS: ``NUTS(inducing_gp(fit.points), init_strategy=fit.init_strategy())``."""
        return init_to_value(values=self._at_sites())

    def _at_sites(self) -> dict[str, Any]:
        """In the shapes of the model's sites, where one lengthscale or one noise is a number."""
        arrays = {name: jnp.asarray(value) for name, value in self.values.items()}
        return {name: value.reshape(()) if value.size == 1 else value for name, value in arrays.items()}


def fit_inducing(
    key: jax.Array,
    rows: Rows | ChunkedRows,
    kernel_family: Callable[..., Kernel] | None = None,
    num_points: int = 100,
    *,
    schedule: str = "reinitialise-retrain",
    method: str = "vfe",
    blocks: Any = None,
    start: dict[str, Any] | None = None,
    max_iterations: int = 500,
    iterations_per_round: int = ROUND,
    progress: bool | None = None,
    max_memory: float = 1e9,
) -> InducingFit:
    """Maximise evidence × hyper-priors over hyperparameters θ and inducing points Z (type-II).

    Points are chosen by :func:`~ppl_sgp.select_inducing_points`, greedily for the kernel at the time. Schedules
    (Hughes-Hallett 2022, section 3.1.2), with L-BFGS for what is free:

    - ``"joint"``: θ and Z from the start; slow, and the worst on average.
    - ``"fix"``: θ alone.
    - ``"reinitialise"``: θ for some iterations, points chosen anew, and so on, until ten choices have made it worse;
      then θ.
    - ``"fix-retrain"``: fix, points chosen anew, then θ and Z.
    - ``"reinitialise-retrain"``: as reinitialise, until a choice makes it worse; then θ and Z. The best in that thesis.

    Where points chosen anew have no finite density, such as for lack of a Cholesky factor beyond all jitter, they are
    chosen for the best θ so far, or fewer of them are taken, with a warning.

    The best θ and Z that were seen are returned, also if interrupted. Hyper-priors are the defaults of
    :func:`ppl_sgp.models.basis_gp`, one lengthscale an input, and medians are the start. With q outputs all share the
    kernel, and each has its own noise. An evaluation costs O(n m²), and memory does not grow with n.

    :param key: a JAX random key, for the choice of points.
    :param rows: from :func:`~ppl_sgp.rows`. Subtract the mean of y first.
    :param kernel_family: class of the kernel, or a function of (lengthscale, amplitude), lengthscales of shape (d,);
        default squared exponential.
    :param num_points: m; there may be fewer: see :func:`~ppl_sgp.select_inducing_points`.
    :param schedule: one of the five.
    :param method: ``"vfe"``, ``"dtc"``, ``"fitc"``, ``"pitc"`` or ``"pic"``, as of :func:`~ppl_sgp.inducing_evidence`.
    :param blocks: of PITC and PIC.
    :param start: hyperparameters to start from: some of ``lengthscale``, ``amplitude``, ``noise_scale``.
    :param max_iterations: iterations of L-BFGS in the last stage, and of θ alone in "fix".
    :param iterations_per_round: iterations of θ between two choices of points; more for few rows.
    :param progress: show the best bound so far; default only at a terminal.
    :param max_memory: bytes for the choice of points.
    :raises ValueError: for arguments that do not fit, y identically zero, float32, or no finite density at the start.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 200)[:, None]
        >>> rows = sgp.rows(X, np.sin(9 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0]))
        >>> with jax.enable_x64(True):  # or numpyro.enable_x64() at the start
        ...     fit = sgp.fit_inducing(jax.random.key(0), rows, num_points=10)
        ...     fit.converged, len(fit.points), bool(0.05 < fit.noise_scale < 0.1)
        (True, 10, True)
    """
    run = _Run(random_key(key, OWNER), rows, kernel_family, num_points, method, blocks, progress, max_memory)
    if schedule not in SCHEDULES:
        raise ValueError(f"{OWNER}: `schedule` must be one of {SCHEDULES}; got {schedule!r}.")
    checks.whole_number("max_iterations", max_iterations, 1, OWNER)
    checks.whole_number("iterations_per_round", iterations_per_round, 1, OWNER)
    try:
        with run.bar:
            end = _follow(run, schedule, run.log_values(start or {}), max_iterations, iterations_per_round)
            converged, message = end.converged, f"{end.reason}; {end.step}"
    except KeyboardInterrupt:
        if run.best is None:
            raise
        converged, message = False, INTERRUPTED
    if not converged:
        checks.warn(f"{OWNER} has not converged: {message}. {_remedy(message)}")
    return run.result(converged, message)


def _remedy(message: str) -> str:
    if message == INTERRUPTED:
        return "This is the best point so far."
    if message.startswith("the iteration limit"):
        return "Raise `max_iterations`."
    return (
        "Points close to each other, or to a kernel's kinks, leave few digits; the best point seen is returned. Fewer "
        'points or `schedule="fix"` converge more surely.'
    )


def _follow(run: _Run, schedule: str, theta: np.ndarray, max_iterations: int, per_round: int) -> Maximum:
    """Go through a schedule from a start; the run remembers the best."""
    theta, Z, _ = run.choose(theta)
    if schedule == "joint":
        return run.maximise(theta, Z, max_iterations, move=True)
    if schedule in ("fix", "fix-retrain"):
        end = run.maximise(theta, Z, max_iterations)
        if schedule == "fix":
            return end
        best, before = run.best_point(), run.best_value
        theta, chosen, value = run.choose(best[0])
        return run.maximise(*((theta, chosen) if value > before else best), max_iterations, move=True)
    worse = 0
    for _ in range(MOST_ROUNDS):
        before = run.best_value
        theta = run.steps(theta, Z, per_round)
        settled = run.best_value - before < LEAST_GAIN
        value = run.log_joint(theta, Z)
        theta, Z, chosen_value = run.choose(theta)
        if not chosen_value > value:
            worse += 1
            if settled or schedule == "reinitialise-retrain" or worse == MOST_WORSE:
                break
    move = schedule == "reinitialise-retrain"
    return run.maximise(*run.best_point(), max_iterations if move else LAST, move=move)


class _Run:
    """The objective of a fit in the logarithms θ of hyperparameters and in points Z, and the best that it saw."""

    def __init__(
        self,
        key: jax.Array,
        rows: Rows | ChunkedRows,
        family: Callable[..., Kernel] | None,
        num_points: int,
        method: str,
        blocks: Any,
        progress: bool | None,
        max_memory: float,
    ) -> None:
        self.key, self.rows, self.method, self.max_memory = key, rows, method, max_memory
        self.family = _checked_family(family)
        self.num_points = checks.whole_number("num_points", num_points, 1, OWNER)
        if not isinstance(rows, (Rows, ChunkedRows)):
            raise ValueError(f"{OWNER}: `rows` must come from sgp.rows(X, y); got {type(rows).__name__}.")
        scales = np.asarray(rows.output_scales, dtype=np.float64)
        if not (scales > 0).all():
            raise ValueError(
                f"{OWNER}: y is identically zero, so its scale says nothing about amplitude and noise. Check the "
                "outputs, or maximise sgp.inducing_evidence with priors of your own."
            )
        spread = np.asarray(rows.input_scale, dtype=np.float64)
        median, log_spread = lengthscale_prior(jnp.asarray(spread))
        # In the order of their names, as compiled functions see a dictionary.
        self.priors = {
            "amplitude": (np.log(float(rows.output_scale)), AMPLITUDE_SPREAD),
            "lengthscale": (np.log(np.asarray(median)), log_spread),
            "noise_scale": (np.log(NOISE_SHARE * scales), NOISE_SPREAD),
        }
        self.medians = {name: jnp.asarray(median) for name, (median, _) in self.priors.items()}
        at_medians = {name: jnp.exp(median) for name, median in self.medians.items()}
        kernel = self.family(at_medians["lengthscale"], at_medians["amplitude"])
        inducing.check_arguments(OWNER, rows, kernel, np.zeros((1, rows.input_dim)), at_medians["noise_scale"], method)
        parts = inducing.parts_of(OWNER, rows, self.num_points, method, blocks)
        self.parts, self.values = jax.device_put((parts, np.asarray(rows.values)))
        self.unit = np.where(spread > 0, spread, 1.0)
        self.best: tuple[np.ndarray, np.ndarray] | None = None
        self.best_value, self.trace = -np.inf, list[float]()
        disable = None if progress is None else not progress
        self.bar = tqdm(disable=disable, desc="inducing points", unit=" evaluations")

    def log_values(self, values: dict[str, Any]) -> np.ndarray:
        """θ of hyperparameters, or of the medians of their priors for those that are not there, in one vector."""
        unknown = set(values) - set(self.priors)
        if unknown:
            raise ValueError(f"{OWNER}: `start` may have {list(self.priors)}; got {sorted(unknown)} as well.")
        parts = []
        for name, (median, _) in self.priors.items():
            checks.positive(name, values.get(name, 1.0), OWNER)
            log_value = np.log(np.asarray(values[name])) if name in values else median
            parts.append(np.broadcast_to(log_value, np.shape(median)).ravel())
        return np.concatenate(parts)

    def hyperparameters(self, theta: Any) -> dict[str, Any]:
        """Hyperparameters by name, in their own units."""
        return hyperparameters(self.medians, jnp.asarray(theta))

    def choose(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Points chosen greedily for the kernel at θ, with θ and the density, which is finite.

        Where it would not be, points are chosen for the best θ so far, then the first half of them, and so on, since
        fewer have a Cholesky factor sooner; in the end the best point stays.
        """
        Z = self._greedy(theta)
        value = self.log_joint(theta, Z)
        if not np.isfinite(value) and self.best is not None and not np.array_equal(self.best[0], theta):
            theta = self.best[0]
            Z = self._greedy(theta)
            value = self.log_joint(theta, Z)
        asked = len(Z)
        while not np.isfinite(value) and len(Z) > 1:
            Z = Z[: len(Z) // 2]
            value = self.log_joint(theta, Z)
        if not np.isfinite(value):
            if self.best is not None:
                return *self.best, self.best_value
            raise ValueError(
                f"{OWNER}: the density is not finite at the start, {self.hyperparameters(theta)}. Check the scales of "
                "inputs and outputs, or pass a `start`."
            )
        if len(Z) < asked:
            checks.warn(
                f"{OWNER}: with {asked} points the density is not finite at {self.hyperparameters(theta)}; it goes on "
                f"with {len(Z)}. Check that the kernel is positive definite, and that the noise is not far below it."
            )
        return theta, Z, value

    def _greedy(self, theta: np.ndarray) -> np.ndarray:
        kernel = self.kernel_at(theta)
        chosen = select_inducing_points(self.key, self.rows, kernel, self.num_points, max_memory=self.max_memory)
        return chosen.points

    def kernel_at(self, theta: Any) -> Kernel:
        """The kernel at θ."""
        values = self.hyperparameters(theta)
        return self.family(values["lengthscale"], values["amplitude"])

    def log_joint(self, theta: np.ndarray, Z: np.ndarray) -> float:
        """Evidence × hyper-priors; −∞ where it or a gradient is not finite."""
        return self._evaluate(theta, Z)[0]

    def best_point(self) -> tuple[np.ndarray, np.ndarray]:
        """The best θ and Z so far."""
        assert self.best is not None
        return self.best

    def steps(self, theta: np.ndarray, Z: np.ndarray, iterations: int) -> np.ndarray:
        """Where so many iterations in θ lead."""
        objective, x = self._objective(theta, Z, move=False)
        minimize(objective.negative, x, jac=True, method="L-BFGS-B", options={"maxiter": iterations})
        return objective.best_x

    def maximise(self, theta: np.ndarray, Z: np.ndarray, iterations: int, move: bool = False) -> Maximum:
        """The maximum in θ, or in θ and Z."""
        objective, x = self._objective(theta, Z, move)
        return maximise(objective, x, iterations)

    def _objective(self, theta: np.ndarray, Z: np.ndarray, move: bool) -> tuple[Objective, np.ndarray]:
        k = len(theta)

        def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
            points = x[k:].reshape(Z.shape) * self.unit if move else Z
            value, of_theta, of_Z = self._evaluate(x[:k], points)
            return value, np.concatenate([of_theta, (of_Z * self.unit).ravel()]) if move else of_theta

        start = np.concatenate([theta, (Z / self.unit).ravel()]) if move else theta
        return Objective(evaluate, float(np.finfo(np.float64).eps)), start

    def _evaluate(self, theta: np.ndarray, Z: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        spreads = tuple(spread for _, spread in self.priors.values())
        model = (self.method, self.family, spreads)
        value, gradients = value_and_gradients(model, self.medians, self.parts, self.values, theta, Z)
        finite = all(np.isfinite(each).all() for each in (value, *gradients))
        value = float(value) if finite else -np.inf
        if value > self.best_value:
            self.best, self.best_value = (theta.copy(), Z), value
        self.trace.append(self.best_value)
        self.bar.update()
        self.bar.set_postfix(best=f"{self.best_value:.6g}", refresh=False)
        return value, np.asarray(gradients[0]), np.asarray(gradients[1])

    def result(self, converged: bool, message: str) -> InducingFit:
        """What there is to say about the best point."""
        theta, Z = self.best_point()
        values, kernel = self.hyperparameters(theta), self.kernel_at(theta)
        noise_scale = values["noise_scale"]
        bound, upper = (
            float(np.sum(evidence(name, self.parts, kernel, Z, noise_scale, self.values)))
            for name in (self.method, "upper")
        )
        trace = np.array(self.trace)
        return InducingFit(
            values, kernel, Z, noise_scale, bound, upper, self.best_value, trace, len(trace), converged, message
        )


def _checked_family(family: Any) -> Callable[..., Kernel]:
    if family is None:
        return SquaredExponential
    if not callable(family) or isinstance(family, Kernel):
        raise ValueError(
            f"{OWNER}: `kernel_family` must be a class such as sgp.Matern52, or a function of lengthscale and "
            f"amplitude; got {f'one of {type(family).__name__}' if isinstance(family, Kernel) else repr(family)}. "
            "Hyperparameters to start from go into `start`."
        )
    return family
