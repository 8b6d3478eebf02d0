"""Importance-weighted random Fourier features.

References
    1. Evans, T. W. (2022), PhD thesis, section 5.3.1: eqs 5.11-5.13 and theorem 5.1. The precision
       below eq 5.12 is printed as ``m/(2σ₀) I``; it is ``m/(2σ₀²) I`` (checked against the kernel).
    2. Rahimi, A. & Recht, B. (2007), Random features for large-scale kernel machines.
    3. Yu, F. X. et al. (2016), Orthogonal random features.
    4. Veach, E. & Guibas, L. (1995), Optimally combining sampling techniques: the balance heuristic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.pytree import pytree_dataclass
from .._internal.random import host_generator
from ..kernels import Kernel, SquaredExponential
from ..kernels.spectra import with_spectrum
from ..priors import DiagonalPrior
from ..priors.prior import effective_number
from .basis import Basis
from .proposals import check_request, checked_centre, drawn_kernels, hyperprior_kernels, variance_shares
from .spectral_points import base_points
from .turns import cosine_and_sine

#: Draws that keep fewer effective features than this share of m approximate their kernel poorly.
FEW_FEATURES = 0.1
#: Bytes of phases at a time.
BLOCK_BYTES = 2**18


@pytree_dataclass
class FourierBasis(Basis):
    """Features ``[cos 2πξⱼᵀ(x−c), sin 2πξⱼᵀ(x−c)]`` at m/2 frozen spectral points ξⱼ drawn from a proposal q.

    Any kernel whose spectrum lies within the support of q is reached by re-weighting: the prior
    variance of both weights of ξⱼ is ``γⱼ = (2/m) S(ξⱼ)/q(ξⱼ)`` with S the spectral density of the
    kernel (theorem 5.1 of [1]; the expectation of ``φᵀS⁻¹φ`` over ξ is the kernel). Weights have
    finite variance only where q covers S: for squared exponentials ``ℓ_q² < 2ℓ²``. So draw from the
    *shortest* plausible lengthscale, or better from a mixture over the hyper-prior
    (:meth:`from_data`, or a list of kernels in :meth:`sample`).

    Make one with :meth:`from_data`, :meth:`from_draws` or :meth:`sample`.

    :param frequencies: spectral points ξ in cycles per unit of x, shape (m/2, d).
    :param log_proposal: log density of the proposal at those points, shape (m/2,).
    :param centre: the point subtracted from inputs, shape (d,). It changes no kernel value; it keeps
        arguments of sine and cosine small, hence accurate.
    :param proposal: the kernels whose spectra were mixed with equal shares.
    """

    approximates_kernel = True

    frequencies: Any
    log_proposal: Any
    centre: Any
    proposal: tuple[Kernel, ...]

    @property
    def num_features(self) -> int:
        """The number of features m: twice the number of spectral points."""
        return 2 * self.frequencies.shape[-2]

    @property
    def input_dim(self) -> int:
        """The number of input columns d."""
        return self.frequencies.shape[-1]

    @classmethod
    def sample(
        cls,
        key: jax.Array,
        kernel_or_kernels: Kernel | Iterable[Kernel],
        num_features: int,
        input_dim: int,
        method: str = "orthogonal",
        centre: Any = None,
    ) -> FourierBasis:
        """Draw spectral points once, from one kernel or from a mixture of kernels.

        With several kernels (draws from the hyper-prior), q is their average (the balance
        heuristic [4]), so importance weights are bounded by the number of kernels.

        :param key: a JAX random key. Equal keys give equal bases, in any precision.
        :param kernel_or_kernels: a stationary kernel, or several; amplitudes do not matter.
        :param num_features: m, even; m/2 spectral points are drawn.
        :param input_dim: the number of input columns d.
        :param method: ``"iid"``; ``"orthogonal"``, blocks of d orthogonal directions [3] (equal to
            iid when d = 1); or ``"quasi_random"``, a scrambled Sobol sequence (best for small d).
        :param centre: shape (d,); the middle of the data, if known. Default zero.
        :raises ValueError: for an odd or non-positive ``num_features``, an unknown method or a bad key.

        .. doctest::

            >>> import jax, ppl_sgp as sgp
            >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(0.5), 100, input_dim=2)
            >>> basis.num_features, basis.input_dim, basis([[0.0, 1.0]]).shape
            (100, 2, (1, 100))
        """
        kernels = (kernel_or_kernels,) if isinstance(kernel_or_kernels, Kernel) else tuple(kernel_or_kernels)
        check_request(kernels, num_features, input_dim, method)
        rng = host_generator(key, "FourierBasis")
        components = [
            (share / len(kernels), part)
            for kernel in kernels
            for share, part in variance_shares(with_spectrum(kernel, "FourierBasis.sample"))
        ]
        shares = np.array([share for share, _ in components])
        shapes = [component.spectral_shape for _, component in components]
        blocks, uniforms_needed = (max(column) for column in zip(*shapes, strict=True))
        normals, uniforms, which = base_points(
            rng, method, num_features // 2, blocks, uniforms_needed, input_dim, shares
        )
        frequencies = np.empty((num_features // 2, input_dim))
        for index, ((_, component), (b, e)) in enumerate(zip(components, shapes, strict=True)):
            rows = which == index
            frequencies[rows] = component.frequencies_from(normals[rows, :b], uniforms[rows, :e])
        with jax.enable_x64(True):  # here alone, so that equal keys give equal bases in any precision
            log_terms = [
                np.log(share) + np.asarray(part.log_spectral_density(frequencies) - jnp.log(part.variance))
                for share, (_, part) in zip(shares, components, strict=True)
            ]
        centre = np.zeros(input_dim) if centre is None else checked_centre(centre, input_dim)
        return cls(frequencies, np.logaddexp.reduce(np.array(log_terms, dtype=np.float64)), centre, kernels)

    @classmethod
    def from_data(
        cls,
        key: jax.Array,
        X: Any,
        num_features: int,
        kernel: Callable[..., Kernel] = SquaredExponential,
        method: str | None = None,
        num_kernels: int = 64,
        **shape: float,
    ) -> FourierBasis:
        """Draw a basis that covers the default lengthscale prior for these inputs.

        The proposal mixes ``num_kernels`` kernels whose lengthscales are a stratified sample of
        :func:`~ppl_sgp.kernels.hyperprior_scales.lengthscale_prior`, the default of ``models.fourier_gp``; inputs
        are centred. Only the mean and standard deviation of each column of ``X`` are used.

        :param key: a JAX random key.
        :param X: training inputs, shape (n, d), or a representative part of them.
        :param num_features: m, even.
        :param kernel: the class of kernel; with more than one input, one lengthscale an input.
        :param method: as in :meth:`sample`; default quasi-random up to 3 inputs, else orthogonal.
        :param num_kernels: size of the mixture.
        :param shape: further parameters of the kernel, such as ``alpha``.
        :raises ValueError: if ``X`` is not a finite (n, d) array.

        .. doctest::

            >>> import jax, numpy as np, ppl_sgp as sgp
            >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), np.linspace(1990, 2020, 400)[:, None], 60)
            >>> basis.num_features, float(basis.centre[0])
            (60, 2005.0)
        """
        X = checks.finite_inputs(X, None, "FourierBasis.from_data")
        rng = host_generator(key, "FourierBasis.from_data", 1)
        checks.whole_number("num_kernels", num_kernels, 1, "FourierBasis.from_data")
        kernels = hyperprior_kernels(rng, X, kernel, num_kernels, X.shape[1] > 1, shape)
        return cls.sample(key, kernels, num_features, X.shape[1], method or _method(X), centre=X.mean(axis=0))

    @classmethod
    def from_draws(
        cls,
        key: jax.Array,
        X: Any,
        draws: Mapping[str, Any],
        num_features: int,
        kernel: Callable[..., Kernel] = SquaredExponential,
        method: str | None = None,
        num_kernels: int = 64,
        defensive: float = 0.2,
    ) -> FourierBasis:
        """Draw a basis that carries the posterior of an earlier run, for a run that follows.

        The proposal mixes kernels at some of its draws (the balance heuristic [4]) with a defensive share of kernels
        from the default hyper-prior, so that importance weights stay bounded (by ``1/defensive``, on average) at
        lengthscales the earlier run did not see: Hesterberg (1995), Weighted average importance sampling and defensive
        mixture distributions. :func:`~ppl_sgp.adapt_features` does such rounds. A run whose basis was too poor ends at
        lengthscales that are too long, and a basis drawn from it stays there: compare with an exact GP on some rows,
        as :func:`~ppl_sgp.report` does, before you draw from it.

        :param key: a JAX random key.
        :param X: training inputs, shape (n, d), or a representative part of them.
        :param draws: draws by site name, as ``mcmc.get_samples()``: ``lengthscale``, shape (S,) or (S, d), and further
            parameters of the kernel; amplitudes do not matter, and other names are left out.
        :param num_features: m, even.
        :param kernel: the class of kernel.
        :param method: as in :meth:`from_data`.
        :param num_kernels: size of the mixture, at least 2; fewer if there are fewer draws.
        :param defensive: share of the hyper-prior, in [0, 1); 0 for none.
        :raises ValueError: for draws of other shapes, or without a lengthscale.

        .. doctest::

            >>> import jax, numpy as np, ppl_sgp as sgp
            >>> X = np.random.default_rng(0).uniform(0, 1, (50, 6))
            >>> draws = {"lengthscale": np.full((40, 6), 0.4)}  # as `mcmc.get_samples()`
            >>> near = sgp.FourierBasis.from_draws(jax.random.key(0), X, draws, 400)
            >>> far = sgp.FourierBasis.from_data(jax.random.key(0), X, 400)
            >>> kernel = sgp.SquaredExponential(np.full(6, 0.4))
            >>> bool(near.effective_features(kernel) > 4 * far.effective_features(kernel))
            True
        """
        owner = "FourierBasis.from_draws"
        X = checks.finite_inputs(X, None, owner)
        checks.whole_number("num_kernels", num_kernels, 2, owner)
        if isinstance(defensive, bool) or not isinstance(defensive, (int, float)) or not 0 <= defensive < 1:
            raise ValueError(f"{owner}: `defensive` must be a share of at least 0, less than 1; got {defensive!r}.")
        num_drawn = max(1, num_kernels - round(defensive * num_kernels))
        kernels, shape = drawn_kernels(kernel, draws, X.shape[1], num_drawn)
        count = max(defensive > 0, round(len(kernels) * defensive / (1 - defensive)))
        if count:
            rng, ard = host_generator(key, owner, 1), np.ndim(kernels[0].lengthscale) == 1  # type: ignore[attr-defined]
            kernels += hyperprior_kernels(rng, X, kernel, count, ard, shape)
        return cls.sample(key, kernels, num_features, X.shape[1], method or _method(X), centre=X.mean(axis=0))

    def features(self, X: Any, xp: ModuleType) -> Any:
        if xp is np:  # as the pass over the data has them, to the last bit: far from the centre it matters
            out = np.empty((len(X), self.num_features))
            self.fill_features(X, out)
            return out
        turns = (X - jnp.asarray(self.centre, X.dtype)[None, :]) @ jnp.asarray(self.frequencies, X.dtype).T
        phase = 2 * math.pi * (turns - jnp.round(turns))
        return jnp.concatenate([jnp.cos(phase), jnp.sin(phase)], axis=-1)

    @property
    def has_float32_features(self) -> bool:
        """True: cosines and sines of phases within one turn."""
        return True

    def fill_features(self, X: np.ndarray, out: np.ndarray, single: bool = False) -> None:
        """Features in memory that is there, a block of rows at a time, so that what is in work stays in the cache.

        :param single: cosines and sines in float32, of phases within one turn that are exact to float32: off by 1e-7.
        """
        half = self.num_features // 2
        frequencies = np.asarray(self.frequencies, dtype=np.float64).T
        size = max(1, BLOCK_BYTES // (8 * half))
        for start in range(0, len(X), size):
            rows = slice(start, start + size)
            turns = (X[rows] - np.asarray(self.centre, dtype=np.float64)) @ frequencies
            if single:
                turns -= np.rint(turns)
                phase = (2 * math.pi * turns).astype(np.float32)
                np.cos(phase, out=out[rows, :half])
                np.sin(phase, out=out[rows, half:])
            else:
                cosine_and_sine(turns, out[rows, :half], out[rows, half:])

    def weight_prior(self, kernel: Kernel) -> DiagonalPrior:
        """Prior variances ``γⱼ = (2/m) S(ξⱼ)/q(ξⱼ)``, each for a cosine and a sine (theorem 5.1 of [1]). O(m d).

        :param kernel: any stationary kernel with a spectral density; its hyperparameters may be traced.
        :return: a :class:`~ppl_sgp.DiagonalPrior` of shape (m,), in the log domain.
        :raises ValueError: if ``kernel`` is not a kernel with a spectral density.
        """
        if not isinstance(kernel, Kernel):
            raise ValueError(
                f"weight_prior needs a kernel such as sgp.SquaredExponential(0.5); got {type(kernel).__name__}."
            )
        spectral = with_spectrum(kernel, "FourierBasis.weight_prior")
        return DiagonalPrior.from_log_scale(_log_scale(spectral, self.frequencies, self.log_proposal))

    @property
    def spectral_points(self) -> np.ndarray:
        """The frequencies of the features, shape (m/2, d): a cosine and a sine each."""
        return np.asarray(self.frequencies)

    def effective_share(self, log_variance: jax.Array) -> jax.Array:
        """``(Σγ)²/Σγ²`` of the prior variances γ over m, the least of a batch: a scalar."""
        log_variance = jnp.broadcast_to(log_variance, (*log_variance.shape[:-1], self.num_features))
        return jnp.min(effective_number(log_variance)) / self.num_features

    def effective_features(self, kernel: Kernel) -> jax.Array:
        """How many of the m features matter for ``kernel``: ``(Σγ)²/Σγ²``, between 1 and m.

        :param kernel: the target kernel; its hyperparameters may be traced.
        """
        return self.weight_prior(kernel).effective_features


def _method(X: np.ndarray) -> str:
    """Quasi-random points for few inputs."""
    return "quasi_random" if X.shape[1] <= 3 else "orthogonal"


# One program also where a model is evaluated eagerly.
@jax.jit
def _log_scale(kernel: Any, frequencies: Any, log_proposal: Any) -> jax.Array:
    dtype = checks.common_dtype(*jax.tree.leaves(kernel))
    log_density = kernel.log_spectral_density(jnp.asarray(frequencies, dtype))
    log_variance = log_density - jnp.asarray(log_proposal, dtype) - math.log(len(frequencies))
    return jnp.tile(log_variance / 2, 2)
