"""The loop: traces, interruption and resumption, early stopping, and fits that diverge."""

import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppl_sgp.stochastic import DivergenceError, row_batches, train

X, y = np.zeros((20, 1)), np.arange(20.0)


@pytest.fixture
def batches():
    return row_batches(X, y, 4)


compiled = []


@jax.jit
def towards_mean(state, y):
    compiled.append(1)
    return state + 0.1 * (jnp.mean(y) - state), -((jnp.mean(y) - state) ** 2)


def step(state, key, batch):
    return towards_mean(state, batch.y)


def start():
    return jnp.zeros(())


def test_steps_find_what_they_look_for_and_compile_once(key, batches):
    compiled.clear()
    run = train(step, start(), batches, key, 300)
    assert abs(float(run.state) - y.mean()) < 4 and run.steps == 300
    np.testing.assert_allclose(run.running_mean()[-1], run.estimates[-100:].mean(), rtol=1e-5)
    np.testing.assert_allclose(run.running_mean(10)[4], run.estimates[:5].mean(), rtol=1e-5)
    assert len(compiled) <= 1


def test_going_on_is_the_same_as_not_having_stopped(key, batches):
    whole = train(step, start(), batches, key, 37)
    part = train(step, start(), batches, key, 20)
    again = train(step, start(), batches, key, 17, previous=part)
    np.testing.assert_array_equal(again.estimates, whole.estimates)
    assert float(again.state) == float(whole.state) and part.steps == 20


def test_the_best_state_on_held_out_rows_is_kept(key, batches):
    densities = iter([1.0, 3.0, 2.0, 2.5, 0.0, 9.0])
    run = train(step, start(), batches, key, 100, held_out=lambda _: next(densities), check_every=5, patience=3)
    assert run.steps == 25 and "held-out" in run.reason
    np.testing.assert_array_equal(run.held_out, [[5, 1], [10, 3], [15, 2], [20, 2.5], [25, 0]])
    assert float(run.state) == float(train(step, start(), batches, key, 10).state)
    assert float(run.last) == float(train(step, start(), batches, key, 25).state)


@pytest.mark.parametrize("how", ["exception", "signal"])
def test_interrupted_it_keeps_what_was_reached(key, batches, how):
    count = []

    def interrupted(state, key, batch):
        count.append(1)
        if len(count) == 8:
            if how == "exception":
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGINT)
        return step(state, key, batch)

    run = train(interrupted, start(), batches, key, 100)
    assert run.reason == "interrupted"
    assert run.steps == (7 if how == "exception" else 8)
    whole = train(step, start(), batches, key, 12)
    resumed = train(step, start(), batches, key, 12 - run.steps, previous=run)
    np.testing.assert_array_equal(resumed.estimates, whole.estimates)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nothing_reached_nothing_kept(key, batches):
    def interrupted(state, key, batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(interrupted, start(), batches, key, 3)


def test_numbers_that_are_not_finite_are_named_with_their_step(key, batches):
    def breaks(state, key, batch):
        state, value = step(state[0], key, batch), state[1] + 1
        return (state[0], value), jnp.where(value == 24, jnp.nan, state[1])

    begin = (start(), jnp.zeros((), jnp.int32))
    with pytest.raises(DivergenceError, match="is nan at step 23.*learning_rate.*after 20 steps") as error:
        train(breaks, begin, batches, key, 100, check_every=10)
    assert error.value.step == 23 and error.value.training.steps == 20
    assert int(error.value.training.state[1]) == 20


def test_a_bound_that_falls_without_end_is_named(key, batches):
    def falls(state, key, batch):
        return state + 1, -(state**2)

    with pytest.raises(DivergenceError, match="the bound fell from"):
        train(falls, start(), batches, key, 2000)


def test_held_out_densities_must_be_finite(key, batches):
    with pytest.raises(DivergenceError, match="held-out density is nan"):
        train(step, start(), batches, key, 20, held_out=lambda _: np.nan, check_every=5)


def test_state_that_steps_consume(key, batches):
    consuming = jax.jit(lambda state, y: (state + jnp.mean(y), state[0]), donate_argnums=0)

    def donated(state, key, batch):
        return consuming(state, batch.y)

    run = train(donated, jnp.zeros(3), batches, key, 12, held_out=lambda state: float(state[0]), check_every=4)
    again = train(donated, run.state, batches, key, 3, previous=run)
    assert np.isfinite(np.asarray(run.state)).all() and again.steps == 15
