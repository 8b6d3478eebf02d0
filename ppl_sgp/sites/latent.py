"""GPs with explicit weights, for any likelihood."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from .._internal import checks
from .._internal.batching import full_precision
from ..bases.basis import Basis
from ..priors import WeightPrior


class LatentGP:
    """A draw of a latent function, ``f(x) = φ(x)ᵀw``; made by :func:`latent`.

    :ivar weights: w, shape batch + (m,), batch being that of the plates around :func:`latent`.
    """

    def __init__(self, basis: Basis, weights: jax.Array) -> None:
        self.basis, self.weights = basis, weights

    def __call__(self, X: Any = None, *, features: Any = None, index: Any = None) -> jax.Array:
        """Values of f. O(n·m), besides the features.

        :param X: inputs, shape (n, d).
        :param features: ``basis(X)``, shape (n, m), instead of ``X``: computed once outside the model, it is
            not computed again at every step of a sampler.
        :param index: which member of a one-dimensional batch each row belongs to, integers of shape (n,) from 0 to
            the number of groups less one, for groups of unequal sizes. Where it cannot be read, under ``jit`` as an
            argument, entries out of range count as the nearest group, as JAX has it.
        :return: shape batch + (n,); (n,) with ``index``.
        :raises ValueError: unless exactly one of ``X`` and ``features`` is given, if shapes do not fit, or for an
            ``index`` that is not of integers, or is out of range, and can be read.
        """
        if (X is None) == (features is None):
            raise ValueError("latent: pass exactly one of `X` and `features`.")
        Phi = self.basis(X) if features is None else jnp.asarray(features)
        m = self.basis.num_features
        if Phi.ndim != 2 or Phi.shape[1] != m:
            raise ValueError(f"latent: `features` must have shape (n, {m}), as `basis(X)`; got {Phi.shape}.")
        with full_precision():
            if index is None:
                return self.weights @ Phi.T.astype(self.weights.dtype)
            index = jnp.asarray(index)
            if self.weights.ndim != 2 or index.shape != Phi.shape[:1]:
                raise ValueError(
                    f"latent: `index` must have shape {Phi.shape[:1]}, a group for each row, and needs weights of "
                    f"shape (groups, m) from a plate around `latent`; got shape {index.shape} and weights "
                    f"{self.weights.shape}."
                )
            _check_groups(index, len(self.weights))
            own = self.weights.at[index].get(mode="clip")
            return jnp.sum(Phi.astype(self.weights.dtype) * own, axis=1)


def _check_groups(index: jax.Array, num_groups: int) -> None:
    if not jnp.issubdtype(index.dtype, jnp.integer):
        raise ValueError(f"latent: `index` must be integers, a group for each row; got {index.dtype}.")
    if checks.is_concrete(index) and index.size and not (0 <= int(index.min()) and int(index.max()) < num_groups):
        raise ValueError(
            f"latent: `index` must be from 0 to {num_groups - 1}, for weights of {num_groups} groups; got "
            f"{int(index.min())} to {int(index.max())}. A group without data needs a place in the plate, too."
        )


def latent(name: str, basis: Basis, prior: WeightPrior, *, centred: bool = False) -> LatentGP:
    """Sample the weights of a GP and return the function they make: for likelihoods other than Gaussian.

    ``eta = sgp.latent("f", basis, basis.weight_prior(kernel))(X)`` goes into any likelihood, such as
    ``dist.Bernoulli(logits=eta)``, ``dist.Poisson(jnp.exp(eta))`` or ``dist.StudentT(4.0, eta, scale)``.
    The cost grows with n; with Gaussian noise use :func:`~ppl_sgp.observe` instead, for most other likelihoods on many
    rows :func:`~ppl_sgp.compress_likelihood`.

    Non-centred by default: sites ``{name}_whitened`` (m,), standard normal, and the deterministic
    ``{name}_weights`` (m,). Centred, ``{name}_weights`` is sampled from the prior itself; of a
    :class:`~ppl_sgp.DiagonalPrior` it is a ``Normal``, so ``LocScaleReparam`` can act on it. A plate around
    the call gives a batch of independent functions with the same prior: groups, or several outputs.

    :param name: prefix of the sites; another one for each GP of a model.
    :param basis: the frozen basis.
    :param prior: a single prior of its weights, such as ``basis.weight_prior(kernel)``.
    :param centred: sample the weights themselves; better where the data determine them well.
    :return: a function of inputs.
    :raises ValueError: for a prior that does not fit the basis.

    .. doctest::

        >>> import jax, numpy as np, numpyro, ppl_sgp as sgp
        >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), 10, 1)
        >>> with numpyro.handlers.seed(rng_seed=0), numpyro.plate("group", 3):
        ...     f = sgp.latent("f", basis, basis.weight_prior(sgp.Matern32(0.3)))
        >>> f(np.zeros((5, 1))).shape, f(np.zeros((5, 1)), index=np.array([0, 0, 2, 1, 2])).shape
        ((3, 5), (5,))
    """
    m = basis.num_features
    if not isinstance(prior, WeightPrior) or prior.batch_shape or prior.num_weights not in (None, m):
        shown = f"one of {prior.num_weights} weights" if isinstance(prior, WeightPrior) else type(prior).__name__
        raise ValueError(
            f"latent: `prior` must be a single prior of {m} weights, such as `basis.weight_prior(kernel)`; got {shown}."
            " Independent functions come from a numpyro.plate around `latent`."
        )
    if centred:
        return LatentGP(basis, jnp.asarray(numpyro.sample(f"{name}_weights", prior.sized(m).distribution())))
    z = jnp.asarray(numpyro.sample(f"{name}_whitened", dist.Normal(0.0, 1.0).expand([m]).to_event(1)))
    mean = jnp.zeros((), z.dtype) if prior.mean is None else prior.mean
    with full_precision():
        offset = prior.apply_root(z.reshape(-1, m).T).T.reshape(z.shape)
    weights = numpyro.deterministic(f"{name}_weights", jnp.broadcast_to(mean, z.shape) + offset)
    return LatentGP(basis, weights)
