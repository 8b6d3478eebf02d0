"""Draws by chain, and where they come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import jax
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass, static
from .._internal.waiting import wait_for

#: What does inside programs what this object does on the host.
IN_PROGRAMS = (
    " For gradients in inputs there is `sgp.predict_gradient(posterior, X_new)`; for those in hyperparameters, or "
    "inside `jit`, use `posterior = sgp.weight_posterior(stats, prior, noise_scale)` and `stats.basis(X_new) @ "
    "posterior.mean`."
)


@dataclasses.dataclass(frozen=True)
class Run:
    """Draws of a model's sites by chain, and what the sampler says of each; without sites, one draw of nothing.

    :ivar by_chain: draws by site name, shape (chains, draws, …).
    :ivar extra: fields of the sampler, shape (chains, draws, …).
    :ivar key_data: numbers of a key that no chain has used.
    :ivar model: the model, ``None`` if it is not known.
    :ivar data: its argument.
    :ivar dims: names of the dimensions of each site, where they are known without the model.
    :ivar max_tree_depth: the deepest tree that NUTS was allowed, if it was NUTS.
    """

    by_chain: dict[str, np.ndarray]
    extra: dict[str, np.ndarray]
    key_data: np.ndarray
    model: Callable[..., Any] | None
    data: Any
    dims: dict[str, list[str]] | None = None
    max_tree_depth: int | None = None

    @cached_property
    def samples(self) -> dict[str, np.ndarray]:
        """Draws by site name, those of one chain after the other."""
        return {name: values.reshape(-1, *values.shape[2:]) for name, values in self.by_chain.items()}

    @property
    def num_chains(self) -> int:
        """The number of chains."""
        return self._counts[0]

    @property
    def num_draws(self) -> int:
        """The number of draws of a chain."""
        return self._counts[1]

    @property
    def _counts(self) -> tuple[int, int]:
        return next((values.shape[:2] for values in self.by_chain.values()), (1, 1))

    @property
    def key(self) -> jax.Array:
        """A key that no chain has used."""
        return jax.random.wrap_key_data(jax.numpy.asarray(self.key_data))

    def take(self, indices: np.ndarray) -> Run:
        """Chosen draws, as if of one chain."""
        by_chain = {name: values[indices][None] for name, values in self.samples.items()}
        extra = {name: values.reshape(-1, *values.shape[2:])[indices][None] for name, values in self.extra.items()}
        return dataclasses.replace(self, by_chain=by_chain, extra=extra)

    def stored(self, dims: dict[str, list[str]]) -> StoredRun:
        """What is written to a file."""
        named = tuple((name, tuple(names)) for name, names in dims.items())
        return StoredRun(
            tuple(self.by_chain.values()),
            tuple(self.extra.values()),
            self.key_data,
            tuple(self.by_chain),
            tuple(self.extra),
            named,
            self.max_tree_depth,
        )


@pytree_dataclass
class StoredRun:
    """The fields of a :class:`Run` in a form for files: names, and arrays in their order."""

    draws: tuple[Any, ...]
    extra: tuple[Any, ...]
    key_data: Any
    sites: tuple[str, ...] = static()
    fields: tuple[str, ...] = static()
    dims: tuple[Any, ...] = static()
    max_tree_depth: int | None = static()

    def run(self, model: Callable[..., Any] | None, data: Any) -> Run:
        """The run."""
        by_chain, extra = (
            dict(zip(self.sites, self.draws, strict=True)),
            dict(zip(self.fields, self.extra, strict=True)),
        )
        dims = {name: list(names) for name, names in self.dims}
        return Run(by_chain, extra, self.key_data, model, data, dims, self.max_tree_depth)


def run_of(draws: Any, model: Callable[..., Any], data: Any) -> Run:
    """The run behind a NumPyro ``MCMC``, a mapping of draws by site name, or an object with such ``samples``.

    An empty mapping is the one draw of a model without latent sites.

    :raises ValueError: for anything else, no draws, or arrays that do not have the draws along their first axis.
    """
    if callable(getattr(draws, "get_samples", None)):
        return _of_mcmc(draws, model, data)
    samples = getattr(draws, "samples", draws)
    wait_for(samples, "the draws")
    if not isinstance(samples, Mapping) or not all(isinstance(name, str) for name in samples):
        raise ValueError(
            "Draws must be a NumPyro MCMC after its run, or a dictionary of arrays by site name such as "
            f"`mcmc.get_samples()`, `{{}}` of a model without latent sites; got {type(draws).__name__}."
        )
    arrays = {name: checks.host_numbers(name, values, "posterior", IN_PROGRAMS) for name, values in samples.items()}
    lengths = {name: values.shape[0] if values.ndim else None for name, values in arrays.items()}
    distinct = set(lengths.values())
    if len(distinct) > 1 or None in distinct or 0 in distinct:
        raise ValueError(
            f"Draws must be arrays with at least one draw along their first axis, as many in each; got first axes "
            f"{lengths}. Pass `mcmc.get_samples()` (not grouped by chain)."
        )
    return Run({name: values[None] for name, values in arrays.items()}, {}, np.zeros(2, np.uint32), model, data)


def _of_mcmc(mcmc: Any, model: Callable[..., Any], data: Any) -> Run:
    try:
        samples = mcmc.get_samples(group_by_chain=True)
    except AssertionError:  # NumPyro's answer before `run`
        samples = {}
    wait_for(samples, "the draws")
    by_chain = {name: np.asarray(values) for name, values in samples.items()}
    if not by_chain or min(values.shape[1] for values in by_chain.values()) == 0:
        raise ValueError("The MCMC has no draws. Call `mcmc.run(key, statistics)` with `num_samples` > 0 first.")
    fields = mcmc.get_extra_fields(group_by_chain=True)
    extra = {name: np.asarray(values) for name, values in fields.items() if not isinstance(values, (dict, tuple))}
    depth = getattr(mcmc.sampler, "_max_tree_depth", None)
    deepest = None if depth is None else int(np.max(depth))
    return Run(by_chain, extra, _unused_key_data(getattr(mcmc, "last_state", None)), model, data, None, deepest)


def _unused_key_data(state: Any) -> np.ndarray:
    """From the first chain's key after its last draw."""
    state_key = getattr(state, "rng_key", None)
    if state_key is None:
        return np.zeros(2, np.uint32)
    typed = jax.numpy.issubdtype(state_key.dtype, jax.dtypes.prng_key)
    numbers = jax.random.key_data(state_key) if typed else state_key
    first = jax.random.wrap_key_data(numbers.reshape(-1, numbers.shape[-1])[0])
    return np.asarray(jax.random.key_data(jax.random.fold_in(first, 1)))
