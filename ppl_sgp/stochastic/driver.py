"""The loop of all stochastic fits: batches in, a state and estimates of the bound out, whatever happens in between."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import jax
import numpy as np
from tqdm.auto import tqdm

from .._internal.random import random_key
from .batches import Batch, RowBatches

S = TypeVar("S")
#: A step: from a state, a key and a batch to the next state, and a scalar estimate of the bound at the state before. It
#: may donate the buffers of the state, whose owner the loop is, and should be compiled once.
Step = Callable[[S, jax.Array, Batch], tuple[S, jax.Array]]

#: Steps whose estimates are fetched together: a step need not wait for the one before.
FETCHED = 10
#: Estimates that running means are of.
WINDOW = 100
#: How far below its first running mean, in units of its size and spread, a bound is taken for lost.
LOST = 10.0

FINISHED, INTERRUPTED, STOPPED = (
    "the given number of steps was made",
    "interrupted",
    "the held-out density does not rise any more",
)


class DivergenceError(FloatingPointError):
    """A fit that came to numbers that are not finite, or whose bound fell without end.

    :ivar step: the number of the step.
    :ivar training: what was reached at the last check before, a :class:`Training`.
    """

    def __init__(self, message: str, step: int, training: Any) -> None:
        super().__init__(message)
        self.step, self.training = step, training


@dataclasses.dataclass(frozen=True)
class Training(Generic[S]):
    """What :func:`train` reached; pass it as ``previous`` to go on.

    :ivar state: the state: the last one, or with ``held_out`` the best.
    :ivar last: the last state, which training goes on from.
    :ivar estimates: of the bound, one a step, in nats, shape (t,). They are noisy: see :meth:`running_mean`.
    :ivar held_out: steps made, and the held-out density after them, shape (c, 2).
    :ivar reason: why it stopped, in words.
    """

    state: S
    last: S
    estimates: np.ndarray
    held_out: np.ndarray
    reason: str

    @property
    def steps(self) -> int:
        """How many steps were made, over all calls."""
        return len(self.estimates)

    def running_mean(self, window: int = WINDOW) -> np.ndarray:
        """Means of the last ``window`` estimates at each step, of fewer at first, shape (t,)."""
        total = np.concatenate([[0.0], np.cumsum(self.estimates)])
        end = np.arange(1, len(total))
        start = np.maximum(end - window, 0)
        return (total[end] - total[start]) / (end - start)


def train(
    step: Step[S],
    state: S,
    batches: RowBatches,
    key: jax.Array,
    num_steps: int,
    *,
    held_out: Callable[[S], float] | None = None,
    check_every: int = 500,
    patience: int = 5,
    previous: Training[S] | None = None,
    progress: bool | None = False,
    owner: str = "train",
    label: str = "bound",
) -> Training[S]:
    """Make steps until there are enough, the held-out density falls, or somebody interrupts.

    Step t has the key ``fold_in(key, t)``, and t goes on counting in a training that is resumed: with rows in arrays
    an interrupted and resumed training is the one that was not interrupted.

    :param step: from a state, a key and a :class:`~ppl_sgp.stochastic.Batch` to the next state, and a scalar
        estimate of the bound at the state before. It may consume the state.
    :param state: where to begin, any tree of arrays; it may be consumed. Not used with ``previous``.
    :param batches: the rows.
    :param key: a JAX random key.
    :param num_steps: how many steps to make, now.
    :param held_out: the log density of rows that are not trained on, a function of the state, higher is better. The
        best state is kept, and training stops after ``patience`` checks without a better one.
    :param check_every: steps between these checks, at which a copy of the state is kept as well.
    :param previous: training to go on from.
    :param progress: show a progress bar, with the running mean of the estimates; ``None``: only at a terminal.
    :param owner: who asks, for messages.
    :param label: what the estimates are of.
    :raises DivergenceError: for estimates, or held-out densities, that are not finite, and bounds that fall without
        end; with what had been reached.
    """
    key = random_key(key, owner)
    run = _Run(state if previous is None else _copied(previous.last), previous, owner, patience)
    first = run.steps
    reason = FINISHED
    with (
        tqdm(total=num_steps, disable=None if progress is None else not progress, desc=label, unit="step") as bar,
        _deferred_interrupts() as pressed,
    ):
        try:
            for t in range(first, first + num_steps):
                key_batch, key_step = jax.random.split(jax.random.fold_in(key, t))
                run.take(*step(run.state, key_step, batches.draw(key_batch)))
                made = t + 1 - first
                if made % FETCHED == 0 or made == num_steps:
                    run.fetch()
                    bar.update(made - bar.n)
                    bar.set_postfix_str(f"{label} {np.mean(run.estimates[-WINDOW:]):.6g}", refresh=False)
                if (t + 1) % check_every == 0 or made == num_steps:
                    run.fetch()
                    if run.check(held_out):
                        reason = STOPPED
                        break
                if pressed():
                    reason = INTERRUPTED
                    break
        except KeyboardInterrupt:
            if not run.steps and not run.pending:
                raise  # nothing has been reached
            reason = INTERRUPTED
        run.fetch()
    return run.training(reason)


class _Run(Generic[S]):
    """A training in the making."""

    def __init__(self, state: S, previous: Training[S] | None, owner: str, patience: int) -> None:
        self.state, self._owner, self._patience = state, owner, patience
        self.pending: list[jax.Array] = []
        self.estimates: list[float] = [] if previous is None else previous.estimates.tolist()
        self.held_out: list[tuple[int, float]] = []
        self._best: S | None = None
        self._good, self._good_steps = _copied(state), len(self.estimates)
        if previous is not None and len(previous.held_out):
            self.held_out = [(int(steps), float(value)) for steps, value in previous.held_out]
            self._best = previous.state

    @property
    def steps(self) -> int:
        """How many steps were made whose estimates have been fetched."""
        return len(self.estimates)

    def take(self, state: S, estimate: jax.Array) -> None:
        """The outcome of a step."""
        self.state = state
        self.pending.append(estimate)

    def fetch(self) -> None:
        """Estimates that were computed meanwhile; refused if they are not finite, or the bound is lost."""
        values = [float(value) for value in jax.device_get(self.pending)]
        self.pending = []
        for i, value in enumerate(values):
            if not np.isfinite(value):
                self._diverged(self.steps + i, f"the estimate of the bound is {value}")
        self.estimates += values
        if self.steps >= 2 * WINDOW:
            start, now = np.array(self.estimates[:WINDOW]), np.mean(self.estimates[-WINDOW:])
            if now < start.mean() - LOST * (abs(start.mean()) + start.std()):
                self._diverged(self.steps - 1, f"the bound fell from {start.mean():.4g} to {now:.4g}")

    def check(self, held_out: Callable[[S], float] | None) -> bool:
        """Whether to stop; keeps the state if it is the best, or if nothing is held out."""
        if held_out is None:
            self._good, self._good_steps = _copied(self.state), self.steps
            return False
        value = float(held_out(self.state))
        if not np.isfinite(value):
            self._diverged(self.steps - 1, f"the held-out density is {value}")
        self._good, self._good_steps = _copied(self.state), self.steps
        if self._best is None or value > max(value for _, value in self.held_out):
            self._best = self._good
        self.held_out.append((self.steps, value))
        values = [value for _, value in self.held_out]
        return len(values) - 1 - int(np.argmax(values)) >= self._patience

    def training(self, reason: str, at_check: bool = False) -> Training[S]:
        """What was reached."""
        last = self._good if at_check else self.state
        estimates = np.array(self.estimates[: self._good_steps] if at_check else self.estimates)
        held_out = np.array(self.held_out, dtype=np.float64).reshape(-1, 2)
        return Training(last if self._best is None else self._best, last, estimates, held_out, reason)

    def _diverged(self, step: int, what: str) -> None:
        raise DivergenceError(
            f"{self._owner}: {what} at step {step}. Take smaller steps (`learning_rate`), larger batches, or scale "
            f"y to a standard deviation near one. What there was after {self._good_steps} steps is this error's "
            "`training`.",
            step,
            self.training(f"diverged at step {step}", at_check=True),
        )


def _copied(state: S) -> S:
    """A copy whose buffers no step can consume."""
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, (jax.Array, np.ndarray)) else leaf, state)


@contextlib.contextmanager
def _deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """Ctrl-C between steps, not within one, whose state may be consumed already; a second one at once."""
    count = [0]

    def pressed() -> bool:
        return count[0] > 0

    def handler(signum: int, frame: Any) -> None:
        count[0] += 1
        if count[0] > 1:
            raise KeyboardInterrupt

    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or usual is not signal.default_int_handler:
        yield pressed
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, usual)
