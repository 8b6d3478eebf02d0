"""Data that models take are equal where their arrays are the same, as caches of compiled programs ask."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp

X = np.linspace(0, 1, 12).reshape(-1, 1)
Y = np.sin(5 * X[:, 0])


def statistics():
    return sgp.sufficient_statistics(sgp.LaplaceBasis.from_data(X, 5), X, Y)


DATA = {
    "statistics": statistics,
    "rotated": lambda: statistics().rotate(),
    "compressed likelihood": lambda: sgp.compress_likelihood(
        sgp.LinearBasis(1), X, (Y > 0).astype(float), sgp.likelihoods.Bernoulli(), prior=sgp.DiagonalPrior(1.0)
    ),
    "rows": lambda: sgp.rows(X.copy(), Y.copy()),
    "grid": lambda: sgp.Grid([X[:4, 0], X[:3, 0]], Y.reshape(4, 3)),
    "several": lambda: (statistics(), sgp.rows(X.copy(), Y.copy())),
}


def with_ids(data):
    """Ids in the place of arrays, as NumPyro's MCMC makes the key of its programs."""
    return jax.tree.map(lambda leaf: id(leaf) if isinstance(leaf, np.ndarray | jax.Array) else leaf, data)


@pytest.mark.parametrize("name", DATA)
def test_keys_of_the_same_data_are_equal_and_of_others_are_not(name, relaxed_promotion):
    data, other = DATA[name](), DATA[name]()
    assert with_ids(data) == with_ids(data) and hash(with_ids(data)) == hash(with_ids(data))
    assert with_ids(data) != with_ids(other), "equal arrays are others: what is compiled holds those that it was given"


def test_with_arrays_only_itself_is_equal():
    first, second = statistics(), statistics()
    assert first == first and first != second and len({first, second, first}) == 2
    assert first.__eq__(3) is False


def test_kernels_of_numbers_are_equal_by_value():
    assert sgp.Matern32(1.0, 2.0) == sgp.Matern32(1.0, 2.0) != sgp.Matern52(1.0, 2.0)
    assert sgp.Matern32(1.0) != sgp.Matern32(2.0)
    assert sgp.Matern32(jnp.ones(2)) != sgp.Matern32(jnp.ones(2))


@pytest.mark.slow
@pytest.mark.float64_only
@pytest.mark.relaxed_promotion
def test_chains_one_after_the_other_share_their_program(monkeypatch):
    """As with arrays. (Without a progress bar NumPyro compiles its loop anew for each chain, whatever the data.)"""
    names = []
    for name in ("CI", "PYTEST_XDIST_WORKER"):  # which turn NumPyro's progress bars off
        monkeypatch.delenv(name, raising=False)

    def count(event, seconds, **of):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(of.get("fun_name"))

    mcmc = MCMC(
        NUTS(sgp.models.reweighted_basis()), num_warmup=5, num_samples=5, num_chains=3, chain_method="sequential"
    )
    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        mcmc.run(jax.random.key(0), statistics().rotate())
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
    assert names.count("jit(_body_fn)") == 1
