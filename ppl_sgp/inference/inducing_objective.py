"""The objective of fits of inducing points: evidence × hyper-priors, and its gradients in both."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from ..evidence import inducing
from ..evidence.inducing_parts import Parts


def hyperparameters(medians: dict[str, jax.Array], theta: jax.Array) -> dict[str, jax.Array]:
    """Hyperparameters by name, in the shapes of their medians, of their logarithms in one vector."""
    values, first = {}, 0
    for name, median in medians.items():
        values[name] = jnp.exp(theta[first : first + median.size]).reshape(median.shape)
        first += median.size
    return values


@functools.partial(jax.jit, static_argnums=0)
def value_and_gradients(
    model: tuple[Any, ...], medians: dict[str, jax.Array], parts: Parts, outputs: jax.Array, theta: Any, Z: Any
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Evidence × densities of hyperparameters in their own units, and its gradients in θ and Z."""
    method, family, spreads = model

    def log_joint(theta: jax.Array, Z: jax.Array) -> jax.Array:
        values = hyperparameters(medians, theta)
        kernel = family(values["lengthscale"], values["amplitude"])
        of_rows = inducing.evaluate(method, parts, kernel, Z, values["noise_scale"], outputs)
        densities = [
            jnp.sum(dist.LogNormal(median, spread).log_prob(values[name]))
            for (name, median), spread in zip(medians.items(), spreads, strict=True)
        ]
        return jnp.sum(of_rows) + jnp.sum(jnp.stack(densities))

    return jax.value_and_grad(log_joint, (0, 1))(theta, Z)


#: Compiled for each method.
evidence = functools.partial(jax.jit, static_argnums=0)(inducing.evaluate)
