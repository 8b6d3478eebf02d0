"""SVGP: sparse variational Gaussian processes by minibatches, for any likelihood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm.auto import tqdm

from .._internal import checks
from .._internal.random import random_key
from ..inference.compress_likelihood import likelihood_of
from .batches import RowBatches, row_batches
from .coordinates import Coordinates
from .driver import Training, train
from .gaussian import GaussianNoise
from .held_out import held_out_rows
from .natural import Natural
from .start import family_of, points_of, sample_of, start_of
from .svgp_fit import SVGPFit, draws_of, posterior_of
from .svgp_passes import final_steps
from .svgp_step import PointProblem, State, entropy_of, optimiser, svgp_step

OWNER = "svgp"
#: Standard deviation of each hyperparameter's logarithm at the start of ``hyperparameters="normal"``.
SPREAD = 0.02


def svgp(
    key: jax.Array,
    X: Any,
    y: Any = None,
    likelihood: Any = None,
    kernel: Any = None,
    *,
    num_points: int = 500,
    points: Any = None,
    move_points: bool = True,
    hyperparameters: str = "point",
    start: dict[str, Any] | None = None,
    num_steps: int = 2000,
    batch_size: int | None = None,
    learning_rate: float = 0.02,
    natural_size: float = 0.1,
    held_out: Any = None,
    check_every: int = 500,
    patience: int = 5,
    num_draws: int = 16,
    previous: SVGPFit | None = None,
    progress: bool | None = None,
) -> SVGPFit:
    """Fit a sparse variational Gaussian process by minibatches (Hensman and others 2013, 2015).

    The bound ``Σ E_q log p(yᵢ | fᵢ) − KL`` of m whitened inducing values is maximised: their Gaussian by natural
    gradients, hyperparameters and points by Adam. A step costs O(m³ + b m²), whatever n. At the end, where it costs no
    more than the steps, q is made exact for the hyperparameters by natural steps of size one over all rows (with
    Gaussian noise one of them), and the bound is evaluated.

    Lengthscales, amplitude and noise begin at those of an exact GP on 1,000 rows where noise is Gaussian, else at
    the medians of the default priors (those of :func:`ppl_sgp.models.basis_gp`); points at centres of clusters.

    :param key: a JAX random key.
    :param X: inputs, shape (n, d): an array, a memory map, or chunks, as :func:`row_batches` takes them.
    :param y: outcomes, shape (n,), in their own units.
    :param likelihood: one of ``ppl_sgp.likelihoods``, or a function from predictors to a NumPyro distribution; default
        Gaussian noise. With K predictors a row there are K functions, which share kernel and points.
    :param kernel: class of the kernel, or a function of lengthscales (d,) and an amplitude; default squared
        exponential. The function has an unknown level as well, of the same amplitude.
    :param num_points: m.
    :param points: points to begin at, shape (m, d).
    :param move_points: whether points are optimised.
    :param hyperparameters: ``"point"``, at their most probable values; or ``"normal"``, a normal distribution of their
        logarithms (type-I), and predictions are mixtures over draws of it.
    :param start: values to begin at: some of ``lengthscale``, ``amplitude``, ``noise_scale``.
    :param num_steps: steps. In the second half of them step sizes fall.
    :param batch_size: b; default 1,000, or all of fewer rows.
    :param learning_rate: of Adam, for logarithms of hyperparameters, and points in units of the inputs' deviations.
    :param natural_size: of natural steps, at most one.
    :param held_out: rows that tell when to stop, and which state is best: a pair ``(X, y)``, or the share of the rows,
        which must be arrays then. Default none: the bound does not overfit by itself.
    :param check_every: steps between looks at these.
    :param patience: looks without a better state after which it stops.
    :param num_draws: draws of the hyperparameters of ``"normal"``.
    :param previous: a fit of the same rows to go on from, with ``num_steps`` more; what it was given need not be again.
    :param progress: show a progress bar; default only at a terminal.
    :return: the fit; interrupted by Ctrl-C, what was reached, with ``reason``.
    :raises ValueError: for rows that cannot be used, by their number, and arguments that do not fit.
    :raises DivergenceError: for bounds that are not finite, with what had been reached.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 300)[:, None]
        >>> y = np.sin(9 * X[:, 0]) + 0.1 * np.cos(77 * np.arange(300.0) ** 2)
        >>> with jax.enable_x64(True):  # or numpyro.enable_x64() at the start
        ...     fit = sgp.stochastic.svgp(jax.random.key(0), X, y, num_points=12, num_steps=50)
        ...     prediction = fit.predict([[0.5]])
        >>> bool(abs(prediction.mean[0] - np.sin(4.5)) < 0.1), len(fit.bound_trace)
        (True, 50)
    """
    key = random_key(key, OWNER)
    _check(hyperparameters, num_steps, learning_rate, natural_size, num_draws, previous)
    likelihood = previous.problem.likelihood if previous else _likelihood(likelihood)
    known = None if isinstance(likelihood, GaussianNoise) else likelihood
    X, y, held = held_out_rows(key, X, y, previous.held_out if previous else held_out, known, OWNER)
    size = 1000 if batch_size is None else batch_size
    if batch_size is None and hasattr(X, "shape"):
        size = min(size, len(X))
    batches = row_batches(X, y, size, likelihood=known, owner=OWNER)
    show = None if progress is None else not progress
    keys = jax.random.split(key, 4)
    if previous is None:
        with tqdm(disable=show, bar_format="{desc} [{elapsed}]") as bar:
            problem, z = _problem(
                keys[:2], batches, likelihood, kernel, points, num_points, start, bar.set_description_str
            )
        state, trained = _state(problem, z, hyperparameters, move_points, learning_rate), None
    else:
        problem, trained = previous.problem, previous.training
        previous.require_inputs(batches.input_dim, OWNER)
        state = trained.last
    first = 0 if trained is None else trained.steps
    adam = optimiser(float(learning_rate), first, num_steps)

    on_device = jax.device_put(problem)

    def step(state: State, key: jax.Array, batch: Any) -> tuple[State, jax.Array]:
        rows = batch.X, batch.y, jnp.asarray(batch.scale, batch.X.dtype)
        return svgp_step(adam, (first, num_steps), float(natural_size), on_device, state, key, rows)

    def density(state: State) -> float:
        assert held is not None
        return held.density(posterior_of(problem, adam, state, keys[3], num_draws))

    training: Training[State] = train(
        step,
        state,
        batches,
        keys[2],
        num_steps,
        held_out=None if held is None else density,
        check_every=check_every,
        patience=patience,
        previous=trained,
        progress=progress,
        owner=OWNER,
    )
    draws = draws_of(problem, adam, training.state, keys[3], num_draws)
    natural, bound = training.state.natural, None
    if training.reason != "interrupted" and 2 * batches.num_rows <= training.steps * size:
        parameters = adam.get_params(training.state.optimiser)
        natural, bound = final_steps(problem, parameters, draws, natural, batches, show)
        if bound is not None and "log_spread" in parameters:
            prior = jax.vmap(problem.coordinates.log_prior)(draws)
            bound += float(jnp.mean(prior) + entropy_of(parameters))
    state = training.state._replace(natural=natural)
    posterior = posterior_of(problem, adam, state, keys[3], num_draws, training)
    return SVGPFit(posterior, training, {"batch_size": size}, problem, held, bound)


def _likelihood(likelihood: Any) -> Any:
    return GaussianNoise() if likelihood is None else likelihood_of(likelihood, OWNER)


def _check(
    hyperparameters: str, num_steps: int, learning_rate: float, natural_size: float, num_draws: int, previous: Any
) -> None:
    if hyperparameters not in ("point", "normal"):
        raise ValueError(f'{OWNER}: `hyperparameters` must be "point" or "normal"; got {hyperparameters!r}.')
    checks.whole_number("num_steps", num_steps, 1, OWNER)
    checks.whole_number("num_draws", num_draws, 1, OWNER)
    checks.positive("learning_rate", learning_rate, OWNER)
    checks.positive("natural_size", natural_size, OWNER)
    if natural_size > 1:
        raise ValueError(f"{OWNER}: `natural_size` must be at most one; got {natural_size}.")
    if previous is not None and not isinstance(previous, SVGPFit):
        raise ValueError(f"{OWNER}: `previous` must be a fit of sgp.stochastic.svgp; got {type(previous).__name__}.")


def _problem(
    keys: jax.Array,
    batches: RowBatches,
    likelihood: Any,
    kernel: Any,
    points: Any,
    num_points: int,
    start: Any,
    progress: Callable[[str], None],
) -> tuple[PointProblem, np.ndarray]:
    """What is fitted, and coordinates to begin at."""
    family = family_of(kernel, OWNER)
    checks.whole_number("num_points", num_points, 1, OWNER)
    X, y, level = sample_of(keys[0], batches, likelihood, OWNER)
    coordinates = Coordinates.of_data(family, X, y, likelihood)
    progress("hyperparameters to start from")
    z = start_of(keys[0], X, y, likelihood, coordinates, start, OWNER, progress)
    progress("inducing points")
    Z = points_of(keys[1], X, coordinates.unit_kernel(z), points, num_points, OWNER)
    unit = np.where(np.ptp(X, axis=0) > 0, X.std(axis=0), 1.0)
    return PointProblem(likelihood, coordinates, Z, unit, level), z


def _state(
    problem: PointProblem, z: np.ndarray, hyperparameters: str, move_points: bool, learning_rate: float
) -> State:
    parameters = {"hyper": jnp.asarray(z)}
    if hyperparameters == "normal":
        parameters["log_spread"] = jnp.full(z.shape, np.log(SPREAD))
    if move_points:
        parameters["moved"] = jnp.zeros(problem.points.shape)
    natural = Natural.prior(problem.likelihood.num_latents, len(problem.points))
    return State(natural, optimiser(float(learning_rate), 0, 1).init(parameters))
