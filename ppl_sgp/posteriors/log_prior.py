"""Log densities of the draws: of each latent site under its prior, and of the data given the hyperparameters.

What power scaling needs (Kallioinen et al. 2024, Detecting and diagnosing prior and likelihood sensitivity with
power-scaling). Leave-one-out densities do not sum to the log evidence: rows of a Gaussian process are dependent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.infer.util import compute_log_probs

from ..sites.tracing import is_improper, observed_sites


def log_densities_at(
    model: Callable[..., Any], sites: tuple[str, ...], data: Any, draws: dict[str, Any]
) -> dict[str, jax.Array]:
    """Log density (S,) of each of some sites at draws along a first axis, summed over elements.

    In the sites' own units, given the sites that they depend on. Improper priors have none. What the other sites would
    cost, such as the evidence, the compiler leaves out.
    """
    if not sites:
        return {}
    seeded = handlers.seed(model, jax.random.key(0))

    def at(draw: dict[str, Any]) -> dict[str, jax.Array]:
        densities, trace = compute_log_probs(seeded, (data,), {}, draw)
        proper = [name for name in sites if not is_improper(trace[name]["fn"])]
        return {name: jnp.sum(jnp.asarray(densities[name])) for name in proper}

    return jax.lax.map(at, draws)


def log_evidence_at(
    model: Callable[..., Any], site: str, data: Any, draws: dict[str, Any], positions: Any
) -> jax.Array:
    """The evidence (S,) that the observed site has at draws: its density, with what makes a bound of it.

    :param positions: numbers of the draws, (S,): a model without latent sites has no draws to count.
    """
    seeded = handlers.seed(model, jax.random.key(0))

    def at(numbered: tuple[Any, dict[str, Any]]) -> jax.Array:
        _, draw = numbered
        densities, trace = compute_log_probs(seeded, (data,), {}, draw)
        of_all_rows = observed_sites(trace).get(site)
        beside = 0.0 if of_all_rows is None else of_all_rows.beside_density
        return jnp.sum(densities[site]) + jnp.sum(jnp.asarray(beside, densities[site].dtype))

    return jax.lax.map(at, (positions, draws))
