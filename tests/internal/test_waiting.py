"""What JAX computes in the background is waited for where a user would see nothing happen, and said so."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp
from ppl_sgp._internal import waiting
from ppl_sgp.posteriors import runs


@pytest.fixture
def shown(monkeypatch):
    """What progress bars say."""
    texts = []

    class Bar:
        def __init__(self, disable, bar_format, desc):
            assert disable is None  # at a terminal only
            texts.append(desc)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            texts.append("closed")

        def update(self):
            texts.append("still")

    monkeypatch.setattr(waiting, "tqdm", Bar)
    monkeypatch.setattr(waiting, "LOOK", 0.0)
    return texts


@pytest.mark.parametrize("silent", [0.0, 60.0])
def test_long_waits_are_shown_and_short_ones_not(silent, shown, monkeypatch):
    answers = itertools.chain([False] * 3, itertools.repeat(True))
    monkeypatch.setattr(waiting, "_ready", lambda array: next(answers))
    monkeypatch.setattr(waiting, "SILENT", silent)
    waiting.wait_for({"a": jnp.ones(3), "b": np.ones(2), "c": None}, "the draws")
    assert shown == (["waiting for the draws", "still", "still", "still", "closed"][: 5 if not silent else 0])


def test_what_is_there_is_not_waited_for(shown):
    waiting.wait_for([np.ones(3), jnp.ones(2), 1.0], "nothing")
    assert shown == []


def test_a_wait_is_interrupted(shown, monkeypatch):
    def interrupted(array):
        raise KeyboardInterrupt

    monkeypatch.setattr(waiting, "_ready", interrupted)
    with pytest.raises(KeyboardInterrupt):
        waiting.wait_for(jnp.ones(2), "the draws")


@pytest.mark.slow
@pytest.mark.relaxed_promotion
def test_posteriors_wait_for_the_draws(monkeypatch):
    waited = []
    monkeypatch.setattr(runs, "wait_for", lambda values, what: waited.append((sorted(values), what)))
    X = np.linspace(0.0, 1.0, 30)[:, None]
    stats = sgp.sufficient_statistics(sgp.LinearBasis(1), X, X[:, 0] + 0.1 * np.cos(77 * X[:, 0]))
    model = sgp.models.reweighted_basis(scale=np.ones(2))
    mcmc = MCMC(NUTS(model), num_warmup=2, num_samples=2, progress_bar=False)
    with sgp.one_blas_thread():
        mcmc.run(jnp.zeros(2, jnp.uint32), stats)
    sgp.posterior(model, mcmc, stats)
    sgp.posterior(model, mcmc.get_samples(), stats)
    assert waited == [(["noise_scale"], "the draws")] * 2
