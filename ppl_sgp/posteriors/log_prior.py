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

from ..sites.tracing import is_improper


def log_densities_at(
    model: Callable[..., Any], observed: str, latent: tuple[str, ...], data: Any, draws: dict[str, Any]
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Log densities (S,) of each latent site under its prior, and of the observed site, at draws along a first axis.

    Those of latent sites are in the sites' own units, given the sites that their priors depend on, summed over
    elements. Improper priors have none.
    """
    seeded = handlers.seed(model, jax.random.key(0))

    def total(density: Any) -> jax.Array:
        return jnp.sum(jnp.asarray(density))

    def at(draw: dict[str, Any]) -> tuple[dict[str, jax.Array], jax.Array]:
        densities, trace = compute_log_probs(seeded, (data,), {}, draw)
        proper = [name for name in latent if not is_improper(trace[name]["fn"])]
        return {name: total(densities[name]) for name in proper}, total(densities[observed])

    return jax.lax.map(at, draws)
