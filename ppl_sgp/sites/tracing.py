"""Looking at a model before it is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from numpyro import handlers
from numpyro.distributions import ImproperUniform
from numpyro.infer.initialization import init_to_uniform


def draw_once(model: Callable[..., Any], statistics: Any) -> dict[str, Any]:
    """The sites of a model with some values; improper priors, which cannot be drawn from, get a starting value."""
    seeded = handlers.seed(model, jax.random.key(0))
    return handlers.trace(handlers.substitute(seeded, substitute_fn=_improper)).get_trace(statistics)


def prior_draws(
    model: Callable[..., Any], statistics: Any, key: jax.Array, count: int, *, observed: bool
) -> dict[str, jax.Array]:
    """Joint draws of all sites with the draws along the first axis; with ``observed``, of the observed ones as well."""
    free = handlers.uncondition(model) if observed else model

    def draw(key: jax.Array) -> dict[str, Any]:
        seeded = handlers.seed(free, key)  # within, so that starting values have a key
        trace = handlers.trace(handlers.substitute(seeded, substitute_fn=_improper)).get_trace(statistics)
        return {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}

    return jax.jit(jax.vmap(draw))(jax.random.split(key, count))


def is_improper(fn: Any) -> bool:
    """Whether a distribution, expanded or masked, is an improper prior, which cannot be drawn from."""
    while hasattr(fn, "base_dist"):
        fn = fn.base_dist
    return isinstance(fn, ImproperUniform)


def _improper(site: dict[str, Any]) -> Any:
    return init_to_uniform(site) if is_improper(site.get("fn")) and not site["is_observed"] else None
