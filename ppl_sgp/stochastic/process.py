"""SVGP within models of users: a Gaussian process whose variational posterior is part of the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.distributions import constraints
from numpyro.primitives import _PYRO_STACK

from .._internal import checks
from .._internal.batching import full_precision
from ..inference.compress_likelihood import likelihood_of
from ..kernels import Kernel
from ..likelihoods.from_distribution import FromDistribution
from ..likelihoods.likelihood import Likelihood
from .expectation import by_quadrature, expected_log_prob
from .gaussian import GaussianNoise
from .svgp_fit import VariationalPoints
from .whitened import Features, Whitened, for_likelihood, inverse_root, point_features

OWNER = "VariationalProcess"


@dataclasses.dataclass(frozen=True, eq=False)
class VariationalProcess:
    """A Gaussian process in a NumPyro model, by whitened inducing values whose posterior is integrated over exactly.

    Called with a kernel, outside of plates, it adds minus the divergence of ``q(v) = N(loc, root rootᵀ)`` from the
    prior to the model, as a factor; parameters are ``numpyro.param``, of names that begin with its own. What it returns
    observes rows, also in a plate that subsamples them. Any guide of NumPyro does for the other sites, such as
    ``AutoNormal(model)``, and the loss of ``SVI`` is minus the bound of SVGP (Hensman and others 2015), without noise
    from v. It is made for ``SVI``: for MCMC q would stay what it is; take :func:`~ppl_sgp.latent`.

    :param name: of the process, and of its parameters ``{name}_loc``, ``{name}_root`` and ``{name}_points``.
    :param points: inducing points, shape (m, d).
    :param num_functions: K, of likelihoods with K predictors a row.
    :param move_points: whether points are parameters too.
    :raises ValueError: for points that are not finite, or of another shape.

    .. doctest::

        >>> import jax, numpy as np, numpyro, numpyro.distributions as dist, ppl_sgp as sgp
        >>> from numpyro.infer import SVI, Trace_ELBO
        >>> from numpyro.infer.autoguide import AutoNormal
        >>> X = np.linspace(0, 1, 200)[:, None]
        >>> y = (np.sin(9 * X[:, 0]) > 0).astype(float)
        >>> gp = sgp.stochastic.VariationalProcess("f", np.linspace(0, 1, 12)[:, None])
        >>> def model(X, y):
        ...     f = gp(sgp.Matern52(numpyro.sample("lengthscale", dist.LogNormal(-1.0, 1.0)), 3.0))
        ...     with numpyro.plate("rows", len(X), subsample_size=50):
        ...         batch = numpyro.subsample(X, event_dim=1), numpyro.subsample(y, event_dim=0)
        ...         f.observe("y", *batch, sgp.likelihoods.Bernoulli())
        >>> svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.02), Trace_ELBO())
        >>> found = svi.run(jax.random.key(0), 300, X, y, progress_bar=False)
        >>> fitted = gp.posterior(found.params, sgp.Matern52(0.3, 3.0), sgp.likelihoods.Bernoulli())
        >>> (fitted.predict([[0.15], [0.5]]).mean > 0.5).tolist()
        [True, False]
    """

    name: str
    points: Any
    num_functions: int = 1
    move_points: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no set of points."""
        points = checks.finite_inputs(self.points, None, OWNER, "points")
        object.__setattr__(self, "points", points)
        checks.whole_number("num_functions", self.num_functions, 1, OWNER)

    def __call__(self, kernel: Kernel) -> ProcessFunctions:
        """Within a model: the functions, for a kernel whose hyperparameters may be sites of the model.

        :raises ValueError: for what is no kernel, or within a plate.
        """
        if not isinstance(kernel, Kernel):
            raise ValueError(
                f"{OWNER}: `kernel` must be a kernel such as sgp.Matern52(0.5); got {type(kernel).__name__}."
            )
        plates = [handler.name for handler in _PYRO_STACK if hasattr(handler, "subsample_size")]
        if plates:
            raise ValueError(
                f"{OWNER}: {self.name!r} is called within the plate {plates[-1]!r}, which would count its divergence "
                "once for each row. Call it outside, and its `observe` inside."
            )
        q = Whitened.prior(self.num_functions, len(self.points))
        loc = numpyro.param(f"{self.name}_loc", q.loc)
        root = numpyro.param(f"{self.name}_root", q.root, constraint=constraints.lower_cholesky)
        Z = jnp.asarray(self.points)
        if self.move_points:
            Z = numpyro.param(f"{self.name}_points", Z)
        found = Whitened(loc, root)
        numpyro.factor(f"{self.name}_divergence", -found.divergence())
        return ProcessFunctions(kernel, Z, found)

    def posterior(
        self,
        params: dict[str, Any],
        kernel: Kernel | Sequence[Kernel],
        likelihood: Any = None,
        *,
        parameters: Any = None,
        noise_scale: Any = None,
        level: Any = 0.0,
    ) -> VariationalPoints:
        """What predicts, after ``SVI``: see :class:`~ppl_sgp.stochastic.VariationalPoints`.

        :param params: those that ``SVI`` found.
        :param kernel: the kernel, or those of some draws of the guide: predictions are a mixture over them.
        :param likelihood: as in the model; default Gaussian noise.
        :param parameters: of the likelihood on the real line, shape (p,), or (S, p) with S kernels.
        :param noise_scale: of Gaussian noise: a number, or one a draw, shape (S,).
        :param level: what predictors have beside f.
        :raises ValueError: for parameters of another process.
        """
        missing = [name for name in (f"{self.name}_loc", f"{self.name}_root") if name not in params]
        if missing:
            raise ValueError(f"{OWNER}: `params` must have {missing}; got {sorted(params)}. Pass `svi_result.params`.")
        kernels = [kernel] if isinstance(kernel, Kernel) else list(kernel)
        if likelihood is None:
            if noise_scale is None:
                raise ValueError(
                    f"{OWNER}: pass the `noise_scale` of Gaussian noise, or the `likelihood` of the model."
                )
            checks.positive("noise_scale", noise_scale, OWNER)
            parameters = np.log(np.broadcast_to(np.asarray(noise_scale, np.float64), (len(kernels),)))[:, None]
        known = GaussianNoise() if likelihood is None else likelihood_of(likelihood, OWNER)
        p = len(known.parameter_names)
        own = np.zeros(0) if parameters is None else np.asarray(parameters, np.float64)
        if own.shape not in ((p,), (len(kernels), p)):
            raise ValueError(
                f"{OWNER}: `parameters` must have shape ({p},) or ({len(kernels)}, {p}), of {known.parameter_names}; "
                f"got {own.shape}."
            )
        Z = jnp.asarray(params.get(f"{self.name}_points", self.points))
        dtype = jnp.result_type(float)
        kernels = [jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), each) for each in kernels]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves).astype(np.float64), *kernels)
        inverses = np.stack([np.asarray(_inverse(each, Z), np.float64) for each in kernels])
        named = known.constrained(np.broadcast_to(own, (len(kernels), p)))
        loc, root = (np.asarray(params[f"{self.name}_{part}"], np.float64) for part in ("loc", "root"))
        return VariationalPoints(
            stacked,
            np.asarray(Z, np.float64),
            inverses,
            loc,
            root,
            np.broadcast_to(np.asarray(level, np.float64), (self.num_functions,)),
            known,
            np.broadcast_to(own, (len(kernels), p)),
            tuple(np.asarray(value, np.float64) for value in named.values()),
            np.zeros(0),
            np.zeros((0, 2)),
            tuple(named),
        )


@jax.jit
def _inverse(kernel: Kernel, Z: jax.Array) -> jax.Array:
    with full_precision():
        return inverse_root(kernel, Z)


@dataclasses.dataclass(frozen=True)
class ProcessFunctions:
    """The functions of a process in one run of a model."""

    kernel: Kernel
    points: jax.Array
    q: Whitened

    def moments(self, X: Any) -> tuple[jax.Array, jax.Array]:
        """Means and variances of f at rows (b, d) under q, shape (b,), or (K, b)."""
        with full_precision():
            mean, variance = self.q.moments(self._features(X))
        return (mean[0], variance[0]) if len(mean) == 1 else (mean, variance)

    def observe(
        self,
        name: str,
        X: Any,
        y: Any,
        likelihood: Likelihood | Callable[..., Any],
        *,
        parameters: Any = (),
        offset: Any = 0.0,
    ) -> None:
        """Add ``E log p(y | f)`` of rows to the model, as a factor: within a plate over rows, which may subsample them.

        :param name: of the site.
        :param X: inputs, shape (b, d), those that the plate chose.
        :param y: outcomes, shape (b,), or the columns that the likelihood wants.
        :param likelihood: one of ``ppl_sgp.likelihoods``, or a function from predictors to a NumPyro distribution; for
            Gaussian noise ``lambda eta: dist.Normal(eta, noise_scale)``.
        :param parameters: of the likelihood on the real line, shape (p,), in the order of ``parameter_names``.
        :param offset: what predictors have beside f, a number, or shape (b,).
        :raises ValueError: for outcomes outside the support, where they can be read, and shapes that do not fit.
        """
        likelihood = likelihood_of(likelihood, "observe")
        of_user = isinstance(likelihood, FromDistribution)
        if checks.is_concrete(y, X):
            if of_user:  # its support may depend on sites of the model
                y = checks.host_numbers("y", y, "observe")
                checks.require_finite("y", y, "observe")
            else:
                y = likelihood.check(y, 0, "observe")
        X = jnp.asarray(X)
        if np.shape(y)[:1] != X.shape[:1]:
            raise ValueError(f"observe: `X` has {len(X)} rows but `y` has shape {np.shape(y)}; they must match.")
        if likelihood.num_latents != len(self.q.loc):
            raise ValueError(
                f"observe: {type(likelihood).__name__} has {likelihood.num_latents} predictors a row, and the process "
                f"{len(self.q.loc)}: pass `num_functions={likelihood.num_latents}`."
            )
        with full_precision():
            mean, variance = for_likelihood(likelihood, *self.q.moments(self._features(X)))
        mean = mean + jnp.asarray(offset, mean.dtype)
        y, parameters = jnp.asarray(y, mean.dtype), jnp.asarray(parameters, mean.dtype)
        # A function of a user may refer to sites of the model, in which derivatives are wanted too.
        expected = by_quadrature if of_user else expected_log_prob
        numpyro.factor(name, expected(likelihood, mean, variance, y, parameters))

    def _features(self, X: Any) -> Features:
        return point_features(self.kernel, self.points, jnp.asarray(X, self.points.dtype))
