"""What every frozen feature map offers: features in JAX, and in float64 on the host."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._internal import checks
from .._internal.batching import full_precision
from ..kernels import Kernel
from ..priors import WeightPrior
from ..tables.recipe import Recipe
from .residual import Residual


class Basis(abc.ABC):
    """A frozen feature map ``φ: R^d → R^m``.

    Subclasses are pytree dataclasses (:func:`~ppl_sgp.pytree_dataclass`): arrays are leaves, integers are static, and
    whatever was computed from training inputs is stored, never recomputed from new ones. They implement
    :attr:`num_features`, :attr:`input_dim` and :meth:`features`; all else has a default.

    .. doctest::

        >>> import ppl_sgp as sgp
        >>> @sgp.pytree_dataclass
        ... class Square(sgp.Basis):
        ...     num_features, input_dim = 1, 1
        ...
        ...     def features(self, X, xp):
        ...         return X**2
        >>> Square().host_features([[3.0]]).tolist()
        [[9.0]]
    """

    @property
    @abc.abstractmethod
    def num_features(self) -> int:
        """The number of features m."""

    @property
    @abc.abstractmethod
    def input_dim(self) -> int:
        """The number of input columns d."""

    @property
    def feature_coords(self) -> dict[str, Any]:
        """Names of the features, as coordinates of xarray for results with a dimension ``feature``; empty if none."""
        names = self.feature_names([f"input {j}" for j in range(self.input_dim)])
        return {} if names is None else {"feature": names}

    def feature_names(self, inputs: Sequence[str]) -> list[str] | None:
        """A name of each of the m features, made of names of the d inputs; ``None`` if they have none."""
        return None

    @property
    def constant_features(self) -> np.ndarray:
        """Whether each feature is known to be the same number at all inputs, shape (m,), Boolean."""
        return np.zeros(self.num_features, dtype=bool)

    @property
    def parts(self) -> tuple[Basis, ...]:
        """The bases of which the features are made side by side, in their order; empty if there are none."""
        return ()

    @property
    def part_names(self) -> tuple[str, ...]:
        """Names of the :attr:`parts`: those given to :func:`~ppl_sgp.stack`, else ``part 0``, ``part 1``, …"""
        return tuple(f"part {number}" for number in range(len(self.parts)))

    @property
    def recipe(self) -> Recipe | None:
        """What makes inputs of the rows of tables; ``None`` for a basis of arrays alone."""
        return None

    def admissible(self, X: np.ndarray) -> np.ndarray:
        """Inputs (n, d) near these at which f means something: codes of a category are whole numbers, for one."""
        return X

    @property
    def unrotated(self) -> Basis:
        """The basis before any rotation of its features."""
        return self

    @property
    def weights_of(self) -> Basis:
        """The basis whose weights the features are of: itself, but for derivatives and integrals of another's f."""
        return self

    @property
    def num_orthonormal(self) -> int:
        """How many features, the first ones, have norm one over the rows of the statistics."""
        return 0

    @property
    def approximates_kernel(self) -> bool:
        """Whether features stand for a kernel that more of them would represent better, unlike those of a line."""
        return False

    @property
    def bounded(self) -> bool:
        """Whether the features mean nothing outside a box, where no other feature can mend them."""
        return any(part.bounded for part in self.parts)

    @property
    def spectral_points(self) -> np.ndarray:
        """Frequencies of which the first features are cosines, shape (k, d), in cycles per unit of x; k = 0 if none."""
        return np.zeros((0, self.input_dim))

    @property
    def centre_kernel(self) -> Kernel | None:
        """The kernel that the features are at centres; ``None`` if they are something else."""
        return None

    @abc.abstractmethod
    def features(self, X: Any, xp: ModuleType) -> Any:
        """Features of valid inputs: what subclasses implement, once for both array namespaces.

        :param X: inputs, shape (n, d), of a floating dtype.
        :param xp: ``numpy`` (in float64, on the host) or ``jax.numpy`` (in the dtype of ``X``, perhaps traced).
        :return: features, shape (n, m). Row i depends on row i of ``X`` alone.
        """

    def some_features(self, X: jax.Array, indices: jax.Array) -> jax.Array:
        """Chosen features of valid inputs in JAX, for methods that see few of many features at a time.

        Here all are computed; bases that can compute some of them alone, in O(n k), say so by overriding this.

        :param X: inputs, shape (n, d).
        :param indices: which features, shape (k,), perhaps traced; of ones beyond the last feature nothing is used.
        :return: shape (n, k), in the dtype of ``X``.
        """
        return jnp.take(self.features(X, jnp), indices, axis=1, mode="clip")

    def some_log_variances(self, kernel: Kernel, indices: jax.Array) -> jax.Array:
        """Logarithms of the variances that :meth:`weight_prior` gives chosen weights, independent ones, shape (k,).

        :param kernel: the target kernel; its hyperparameters may be traced.
        :param indices: which weights, shape (k,), as :meth:`some_features` takes them.
        """
        log_variance = jnp.broadcast_to(self.weight_prior(kernel).log_variance, (self.num_features,))
        return jnp.take(log_variance, indices, mode="clip")

    def check_domain(self, X: Any) -> None:  # noqa: B027 - most bases are good for all inputs
        """Warn of valid inputs (n, d) outside the domain of the features, or refuse them, where they can be read."""

    def weight_prior(self, kernel: Kernel) -> WeightPrior:
        """The prior over weights for which ``f(x) = φ(x)ᵀw`` has (approximately) the covariance ``kernel``.

        :param kernel: the target kernel.
        :raises ValueError: if the basis has no such prior.
        """
        raise ValueError(
            f"{type(self).__name__} has no weight prior for a kernel. Pass `DiagonalPrior(scale)` with the "
            "prior standard deviation of each weight, or use a basis that knows its kernels, such as FourierBasis."
        )

    def effective_share(self, log_variance: jax.Array) -> jax.Array:
        """The least share of random features that carry prior variance: ``(Σγ)²/Σγ²`` over their number.

        :param log_variance: of the prior variances γ, shape ``batch + (m,)``; (1,) if all weights share one.
        :return: a scalar; 1 without random features.
        """
        return jnp.ones((), jnp.result_type(log_variance))

    def unsuited(self, kernel: Any, x_min: np.ndarray, x_max: np.ndarray) -> tuple[str, str] | None:
        """Why these features cannot have a kernel over the range of the data, and what to do; ``None`` if they can, or
        nothing is known of it.

        :param kernel: the kernel, with hyperparameters that can be read.
        :param x_min: least value of each input, shape (d,).
        :param x_max: largest value, shape (d,).
        """
        return None

    def residual_variance(self, X: Any) -> np.ndarray:
        """Prior variance that a finite basis lost: ``k(x, x) − φ(x)ᵀφ(x)`` for each kernel that it is frozen for.

        Thesis of Evans (2022), eq 2.36; the correction that turns DTC into FITC (Quiñonero-Candela & Rasmussen 2005).

        :param X: inputs, shape (n, d).
        :return: shape (p, n), float64, at least 0, in units of the squared amplitude: a row for each of the p parts
            that have an amplitude of their own. p = 0 if nothing is known.
        """
        return np.zeros((0, len(X)))

    def residual(self, X: Any) -> Residual:
        """The same as functions that rows may share; default, of each row alone.

        :param X: inputs, shape (n, d).
        """
        return Residual.of_rows(self.residual_variance(X))

    def residual_amplitude(self, prior: WeightPrior) -> jax.Array:
        """Squared amplitudes a² of the parts of :meth:`residual_variance` under a prior of the weights.

        The variance at x that f lacks is ``residual_amplitude(prior) @ residual_variance(x)``.

        :param prior: a prior, or a batch of them; its numbers may be traced.
        :return: shape ``batch + (p,)``. Zero where the weights of a part do not share one variance: then nothing is
            known.
        """
        return jnp.zeros((*prior.batch_shape, 0), prior.log_variance.dtype)

    def __call__(self, X: Any) -> jax.Array:
        """Features in JAX, in the floating dtype of ``X``.

        :param X: inputs, shape (n, d).
        :return: features, shape (n, m). Row i depends on row i of ``X`` alone.
        :raises ValueError: if ``X`` has the wrong shape or is not of real numbers, or (where they can be read) if
            features are not finite.
        """
        X = jnp.asarray(checks.inputs_matrix(X, self.input_dim, type(self).__name__))
        self.check_domain(X)
        with full_precision():
            Phi = self.features(X.astype(checks.common_dtype(X)), jnp)
        if checks.is_concrete(Phi, X):
            self.require_finite(np.asarray(Phi), np.asarray(X))
        return Phi

    @property
    def has_float32_features(self) -> bool:
        """Whether :meth:`fill_features` has a way in float32, which is faster."""
        return False

    def fill_features(self, X: np.ndarray, out: np.ndarray, single: bool = False) -> None:
        """Write features of valid inputs into memory that is there, float64, shape (n, m), finite or not.

        :param single: evaluate them in float32, if :attr:`has_float32_features`.
        """
        self.check_domain(X)
        out[...] = self.features(X, np)

    def host_features(self, X: Any) -> np.ndarray:
        """Features in float64 NumPy, whatever JAX's precision: what the pass over the data uses.

        :param X: inputs, shape (n, d).
        :return: features, shape (n, m).
        :raises ValueError: if ``X`` has the wrong shape or is not of real numbers, or if features are not finite.
        """
        X = self._host_inputs(X)
        self.check_domain(X)
        Phi = self.features(X, np)
        self.require_finite(Phi, X)
        return Phi

    def host_features_of(self, X: Any, kept: np.ndarray) -> np.ndarray:
        """:meth:`host_features` with some features at zero, before any rotation of them.

        :param X: inputs, shape (n, d).
        :param kept: which features of :attr:`unrotated` are kept, shape (m,), Boolean.
        :return: features, shape (n, m).
        """
        return self.host_features(X) * kept

    def _host_inputs(self, X: Any) -> np.ndarray:
        owner = type(self).__name__
        X = checks.on_host("X", checks.inputs_matrix(X, self.input_dim, owner), owner, " In JAX call the basis itself.")
        return X.astype(np.float64, copy=False)

    def require_finite(self, Phi: np.ndarray, X: np.ndarray, first_row: int = 0, owner: str | None = None) -> None:
        """Refuse features (n, m) that are not finite, with the row and the basis.

        :param X: their inputs, shape (n, d).
        :param first_row: the number of the first of these rows among all.
        :param owner: who asks, for messages; default the class of the basis.
        """
        for start in range(0, len(Phi), checks.BLOCK):
            bad = ~np.isfinite(Phi[start : start + checks.BLOCK])
            if bad.any():
                row, feature = np.argwhere(bad)[0]
                row += start
                x = np.asarray(X[row])
                why = self.not_finite_at(x) or "Leave such rows out, or make features that are finite there."
                raise ValueError(
                    f"{owner or type(self).__name__}: {self.name_of(int(feature))} is {Phi[row, feature]} at row "
                    f"{first_row + row} of `X`, {x.tolist()}. {why}"
                )

    def not_finite_at(self, x: np.ndarray) -> str | None:
        """Why features are not finite at one input (d,), and what to do, for messages; ``None`` if it is not known."""
        return None

    def name_of(self, feature: int) -> str:
        """A feature in messages: its number, and the basis that makes it."""
        return f"feature {feature} of {type(self).__name__}"


def common_variance(prior: WeightPrior) -> jax.Array:
    """The prior variance of independent weights that share one, shape ``batch``; zero if they do not."""
    if not prior.independent.all():
        return jnp.zeros(prior.batch_shape, prior.log_variance.dtype)
    variance = jnp.exp(prior.log_variance)
    mean = jnp.mean(variance, axis=-1)
    tolerance = max(1e-6, 1e3 * float(jnp.finfo(variance.dtype).eps))
    equal = jnp.max(jnp.abs(variance - mean[..., None]), axis=-1) <= tolerance * mean
    return jnp.broadcast_to(jnp.where(equal, mean, 0), prior.batch_shape)
