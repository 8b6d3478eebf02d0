"""SufficientStatistics: everything the evidence needs of the data, of a size independent of n."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import numpy as np

from .._internal import checks
from .._internal.pytree import equal_tree, hash_tree, rebuild
from .._internal.shown import Shown
from ..bases.basis import Basis
from ..bases.rotated import RotatedBasis
from ..priors import WeightPrior
from ..tables.recipe import rows_of_table
from .accumulate import moments_of_arrays
from .alike import require_addable, require_one_group
from .compressed import Compressed, compress, compressed_of, uses_dual_form
from .consistency import require_consistent
from .downdate import downdated
from .moments import Moments
from .root_moments import RootMoments, kind_beside
from .rotation import of_factor, of_products, of_root, reference_root
from .storage import read, write

#: Norms, relative to the largest, down to which rotated features are made orthonormal: to 1e-8, in float64.
ORTHONORMAL_RANGE = 1e-4


#: Classes of statistics by the part that only their files have.
KINDS: dict[str, Any] = {}


@jax.tree_util.register_pytree_with_keys_class
class SufficientStatistics(Shown):
    """n rows seen through a frozen basis, compressed without loss (Evans 2022, section 5.2).

    Make one with :func:`~ppl_sgp.sufficient_statistics`. Everything is float64 NumPy on the host;
    models evaluate it in the user's dtype. It is a pytree: pass it to models as an argument. The
    compressed form is computed on first use, in O(m³). Nothing can be assigned: statistics do not change.

    :param basis: the basis the rows were seen through.
    :param moments: sums over rows, :class:`~ppl_sgp.statistics.moments.Moments`.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), 10, 1)
        >>> stats = sgp.sufficient_statistics(basis, X, np.sin(5 * X[:, 0]))
        >>> stats.num_rows, stats.num_features, stats.rank
        (50, 10, 10)
        >>> (stats + stats).num_rows
        100
    """

    basis: Basis
    moments: Moments

    def __init__(self, basis: Basis, moments: Moments) -> None:
        self.__dict__.update(basis=basis, moments=moments)

    __eq__, __hash__ = equal_tree, hash_tree

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"SufficientStatistics do not change, so that what was computed from them stays right; `{name}` cannot be "
            "assigned. Make others: `SufficientStatistics(basis, moments)`, `with_projection`, `update`, `+`."
        )

    @cached_property
    def compressed(self) -> Compressed:
        """The rows as m̃ pseudo-rows and a residual sum of squares."""
        return compress(self.moments)

    # A pytree of three children; unflattening restores the compressed form instead of computing it.
    def tree_flatten_with_keys(self):
        names = ("basis", "moments", "compressed")
        return [(jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in names], None

    @classmethod
    def tree_unflatten(cls, _, children):
        return rebuild(cls, dict(zip(("basis", "moments", "compressed"), children, strict=True)))

    @property
    def num_rows(self) -> Any:
        """The number of rows n (an int; a traced number under ``jit``, an array for a batch of groups)."""
        n = self.moments.num_rows
        return int(n) if checks.is_concrete(n) and np.ndim(n) == 0 else n

    @property
    def num_weights(self) -> int:
        """The number of weights: m, or K·m for likelihoods with K predictors a row."""
        return self.moments.gram.shape[-1]

    @property
    def num_features(self) -> int:
        """The number of features m."""
        return self.num_weights

    @property
    def num_outputs(self) -> int:
        """The number of output columns q; 1 also for a one-dimensional y."""
        return self.moments.sum_squares.shape[-1] if np.ndim(self.moments.sum_squares) else 1

    @property
    def projection(self) -> Any:
        """The compressed data: c and rss joined, shape (k + 1,), or (q, k + 1). The value of the evidence site.

        k is the rank, or a little more, so that near ranks have one shape; entries of c beyond the rank are zero.
        """
        return self.compressed.projection

    @property
    def is_diagonal(self) -> bool:
        """Whether features are orthogonal over the rows, so that evidence costs O(m)."""
        return self.compressed.factor.ndim == 1

    @property
    def evidence_cost(self) -> str:
        """The cost of one evidence with all its gradients, for a diagonal prior."""
        if self.is_diagonal:
            return "O(m)"
        return "O(m·rank²)" if uses_dual_form(*self.compressed.factor.shape[-2:]) else "O(m³)"

    @property
    def num_orthonormal(self) -> int:
        """How many features, the first ones, have norm one over the rows after ``rotate(orthonormal=True)``; else 0."""
        return self.basis.num_orthonormal if self.is_diagonal else 0

    def noise_scale_of(self, owner: str, noise_scale: Any) -> Any:
        """The noise that models of these statistics have: the one given.

        :param owner: who asks, for messages.
        :raises ValueError: for none.
        """
        if noise_scale is None:
            raise ValueError(f"{owner}: `noise_scale` is missing, the standard deviation of the noise.")
        return noise_scale

    @property
    def has_noise(self) -> bool:
        """Whether models of these statistics have a noise scale; else a likelihood takes its place."""
        return True

    def prior_of_weights(self, prior: WeightPrior) -> WeightPrior:
        """The prior of all weights: itself; for likelihoods with K predictors a row, that of each."""
        return prior

    @property
    def total_weight(self) -> Any:
        """What the weights of all rows sum to, as units of features count them: the number of rows."""
        return self.moments.num_rows

    @property
    def output_scale(self) -> Any:
        """Root mean square of y about zero, over all outputs: the natural unit of amplitudes and noise."""
        return (self.moments.sum_squares.mean() / self.moments.num_rows) ** 0.5

    @property
    def output_scales(self) -> Any:
        """Root mean square of y about zero, each output's own: shape (q,), or () for a one-dimensional y."""
        return (self.moments.sum_squares / self.moments.num_rows) ** 0.5

    @property
    def input_scale(self) -> Any:
        """Standard deviation of each input, shape (d,); zero for one that never varies."""
        moments = self.moments
        scale = (moments.x_square / moments.num_rows) ** 0.5
        # Rounding gives a constant column a tiny spread, from which lengthscales must not be taken.
        return (moments.x_max > moments.x_min).astype(scale.dtype) * scale

    @property
    def rank(self) -> Any:
        """The numerical rank m̃ of the features over the rows (an int; a traced number under ``jit``)."""
        rank = self.compressed.rank
        return int(rank) if checks.is_concrete(rank) and np.ndim(rank) == 0 else rank

    def facts(self) -> dict[str, Any]:
        """The sizes of the statistics, and the order of what an evidence costs."""
        sizes = ("num_rows", "num_features", "rank", "num_outputs")
        return {**{name: getattr(self, name) for name in sizes}, "evidence": self.evidence_cost}

    def __add__(self, other: Any) -> SufficientStatistics:
        """Statistics of the rows of both, for one and the same basis. O(m²)."""
        if not isinstance(other, SufficientStatistics):
            return NotImplemented
        if not other.has_noise:
            return other + self
        require_addable(self.basis, self.moments, other.basis, other.moments)
        return SufficientStatistics(self.basis, self.moments + other.moments)

    def __radd__(self, other: Any) -> SufficientStatistics:
        """So that ``sum`` of statistics works."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def require_one_group(self, owner: str) -> None:
        """Refuse a batch of groups, which is there to be mapped over. Within ``jax.vmap`` there is one."""
        require_one_group(self.moments, owner)

    def _require_host(self, owner: str) -> None:
        """Refuse what is computed on the host for traced statistics, or for a batch of groups."""
        if not checks.is_concrete(self.moments, vars(self).get("compressed")):
            raise ValueError(
                f"{owner} runs on the host, in float64, where numbers cannot be read under `jit`, `vmap` or `grad`. "
                "Call it before, and pass the result as an argument."
            )
        self.require_one_group(owner)

    def update(self, X: Any, y: Any = None, row_weights: Any = None) -> SufficientStatistics:
        """Statistics with further rows appended. O(n_new m²).

        :param X: new inputs, shape (n_new, d); or a table, if the basis has a recipe for it.
        :param y: new outputs, shape (n_new,) or (n_new, q) as before; of a table left out.
        :param row_weights: known relative noise precisions, shape (n_new,).
        :raises ValueError: as :func:`~ppl_sgp.sufficient_statistics`; the statistics stay as they were.
        """
        self._require_host("update")
        X, y, row_weights = rows_of_table(self.basis.recipe, X, y, row_weights)
        moments = moments_of_arrays(self.basis, X, y, row_weights, kind=kind_beside(self.moments))
        require_addable(self.basis, self.moments, self.basis, moments)
        return SufficientStatistics(self.basis, self.moments + moments)

    def forget(self, X: Any, y: Any = None, row_weights: Any = None) -> SufficientStatistics:
        """Statistics without rows that are in them: for windows that move on. O(n_old m² + m³).

        Sums are subtracted, so that rounding of what was there stays: compute them anew now and then. To fade old rows
        out instead, give new ones larger ``row_weights``. The range of the inputs stays as it was.

        :param X: inputs of the rows to forget, shape (n_old, d); or a table, if the basis has a recipe for it.
        :param y: their outputs; of a table left out.
        :param row_weights: their relative noise precisions, as they were given.
        :raises ValueError: if the rows cannot all have been there, or if so little is left that it has no digits.

        .. doctest::

            >>> import jax, numpy as np, ppl_sgp as sgp
            >>> X = np.linspace(0, 1, 50)[:, None]
            >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), 6, 1)
            >>> y = np.sin(9 * X[:, 0])
            >>> window = sgp.sufficient_statistics(basis, X[:40], y[:40]).update(X[40:], y[40:]).forget(X[:10], y[:10])
            >>> anew = sgp.sufficient_statistics(basis, X[10:], y[10:])
            >>> window.num_rows, bool(np.abs(window.moments.gram - anew.moments.gram).max() < 1e-12)
            (40, True)
        """
        self._require_host("forget")
        if isinstance(self.moments, RootMoments) and self.moments.required:
            raise ValueError(
                'forget: subtracting loses the digits that `method="qr"` keeps. Compute the statistics of the rows '
                "that are left anew, or keep those of each period apart and add up what the window needs."
            )
        X, y, row_weights = rows_of_table(self.basis.recipe, X, y, row_weights)
        part = moments_of_arrays(self.basis, X, y, row_weights, kind=Moments)
        moments = self.moments.plain()
        require_addable(self.basis, moments, self.basis, part)
        return SufficientStatistics(self.basis, downdated(moments, part))

    def rotate(self, prior: WeightPrior | None = None, *, orthonormal: bool = False) -> SufficientStatistics:
        """The same data in an orthogonal basis, where evidence with a diagonal prior costs O(m).

        Without ``prior``, features become ``Vᵀφ`` with V the eigenvectors of ΦᵀΦ, and a
        :class:`~ppl_sgp.DiagonalPrior` on their weights is a model of its own (eq 5.8 of Evans
        2022 with U = I). With ``prior`` of precision S₀, the generalised eigenvectors of (A, S₀)
        are used and the rotated weights have the prior N(0, I): then ``DiagonalPrior(amplitude)``
        is *exactly* the given prior with its standard deviations multiplied by ``amplitude``, for
        any amplitude and noise.

        With ``orthonormal``, the first :attr:`num_orthonormal` features are divided by their norms over the
        rows, as in eqs 5.6-5.8 (where φ̃ᵢ is printed with φᵢ for φⱼ), so that a reflected prior
        (:class:`~ppl_sgp.HouseholderPrior`) stays cheap. Directions whose norm is below 1e-4 of the largest
        stay orthogonal only: from the Gram matrix they are known too poorly to be normalised.

        All m functions are kept, those the data do not touch as well: they matter for predictions
        (the thesis drops them, which is exact only for S ∝ I; see its section 5.2.2). O(m³), once.

        :param prior: a zero-mean prior, of any structure, to diagonalise together with the data.
        :param orthonormal: orthonormal instead of orthogonal features; not together with ``prior``.
        :raises ValueError: for a prior that is batched, traced, of the wrong size or not of mean zero.

        .. doctest::

            >>> import jax, numpy as np, ppl_sgp as sgp
            >>> X = np.linspace(0, 1, 50)[:, None]
            >>> basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), 10, 1)
            >>> prior = basis.weight_prior(sgp.Matern32(0.4))
            >>> stats = sgp.sufficient_statistics(basis, X, np.sin(5 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0]))
            >>> exact = sgp.log_evidence(stats, prior, 0.1)
            >>> fast = sgp.log_evidence(stats.rotate(prior), sgp.DiagonalPrior(1.0), 0.1)
            >>> bool(abs(exact - fast) < 1e-3)
            True
        """
        self._require_host("rotate")
        m = self.num_weights
        if prior is not None and orthonormal:
            raise ValueError(
                "rotate: pass either `prior` or `orthonormal=True`: the units of the weights are the prior's."
            )
        root = np.eye(m) if prior is None else reference_root(prior, m)
        # Without a prior any direction may come to matter, however little the rows say of it.
        found = None if prior is None else of_products(self.moments, root) or of_root(self.moments, root)
        if found is None:
            found = of_factor(*self._pseudo_rows(), root)
        singular, rank = found.norms, len(found.norms)
        normalised = int(np.sum(singular > ORTHONORMAL_RANGE * singular.max(initial=0))) if orthonormal else 0
        units = np.where(np.arange(rank) < normalised, singular, 1.0)
        norms, rotation = np.zeros(m), found.rotation
        norms[:rank], rotation[:, :rank] = singular / units, rotation[:, :rank] / units
        c, rss = found.projection[..., :-1], found.projection[..., -1:]
        projection = np.concatenate([c, np.zeros((*c.shape[:-1], m - rank)), rss], axis=-1)
        moments = self.moments.plain(gram=norms**2, feature_output=(projection[..., :-1] * norms).T)
        # Not compressed again, which would take rss from sums.
        compressed = compressed_of(moments, norms, projection, int(np.count_nonzero(norms)), None, None)
        return self._with(RotatedBasis(self.basis, rotation, normalised), moments, compressed)

    def _pseudo_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """R (m̃, m), with c and rss."""
        factor, rank = self.compressed.factor, self.rank
        c, rss = self.projection[..., :-1], self.projection[..., -1:]
        rows, c = (np.diag(factor)[factor > 0], c[..., factor > 0]) if self.is_diagonal else (factor, c)
        return rows[:rank], np.concatenate([c[..., :rank], rss], axis=-1)

    def with_projection(self, projection: Any) -> SufficientStatistics:
        """Statistics of other data at the same inputs, such as a draw of the evidence site: for simulation studies.

        :param projection: compressed data, the shape of :attr:`projection`.
        :raises ValueError: if the shape differs.
        """
        if np.shape(projection) != np.shape(self.projection):
            raise ValueError(
                f"`projection` must have shape {np.shape(self.projection)}; got {np.shape(projection)}. "
                "Draw it from SparseGP(stats, prior, noise_scale).sample(key)."
            )
        simulated = self._with_outputs(np.asarray(projection, dtype=np.float64))
        c, rss = simulated.projection[..., :-1], simulated.projection[..., -1]
        # Of residuals of several outputs only the squares are known; products have mean zero.
        products = c @ c.T + (np.diag(rss) if c.ndim > 1 else rss)
        moments = simulated.moments.plain(output_products=products, y_mean=np.full_like(self.moments.y_mean, np.nan))
        return self._with(self.basis, moments, simulated.compressed)

    def _with_outputs(self, projection: Any) -> SufficientStatistics:
        """As :meth:`with_projection`, also traced, but the scale of y and its mean remain, as default priors ask."""
        c, factor = projection[..., :-1], self.compressed.factor
        feature_output = (c * factor if self.is_diagonal else c @ factor).T
        # The factor is that of the same inputs; only the values change.
        exact = {"projection": projection}
        if self.compressed.gram_defect is not None:
            exact |= {name: 0 * getattr(self.compressed, name) for name in ("gram_defect", "output_defect")}
        moments = self.moments.plain(feature_output=feature_output)
        return self._with(self.basis, moments, rebuild(Compressed, {**vars(self.compressed), **exact}))

    def _with(self, basis: Basis, moments: Moments, compressed: Compressed) -> SufficientStatistics:
        """The same with other sums, and whatever else a subclass keeps."""
        return rebuild(type(self), {**vars(self), "basis": basis, "moments": moments, "compressed": compressed})

    def save(self, path: Any) -> None:
        """Write to one file, atomically, without pickle. The basis is saved with the sums.

        :param path: the file; an existing one is replaced only once the new one is complete, and keeps its permissions.
            Its folder must exist.
        :raises ValueError: if the basis holds a function, or if ``path`` is no plain file.
        """
        self._require_host("save")
        write(path, self.parts)

    @property
    def parts(self) -> dict[str, Any]:
        """What files hold of it, by name."""
        parts = {"basis": self.basis, "moments": self.moments}
        # Rotated sums have lost the digits of a small rss.
        return parts | ({"compressed": self.compressed} if self.is_diagonal else {})

    @classmethod
    def load(cls, path: Any) -> SufficientStatistics:
        """Read what :meth:`save` wrote.

        :param path: the file.
        :raises ValueError: if the file is damaged, foreign, or of a newer format.
        """
        parts = read(path)
        kind = next((KINDS[name] for name in parts if name in KINDS), cls)
        return kind.of_parts(parts, path)

    @classmethod
    def of_parts(cls, parts: dict[str, Any], path: Any) -> SufficientStatistics:
        """From the :attr:`parts` of a file.

        :raises ValueError: if they are no statistics, or do not fit together.
        """
        if not (isinstance(parts.get("basis"), Basis) and isinstance(parts.get("moments"), Moments)):
            raise ValueError(f"{path} holds {sorted(parts)}, not sufficient statistics as their `save` writes them.")
        require_consistent(parts["basis"], parts["moments"], path)
        return rebuild(cls, {name: parts[name] for name in ("basis", "moments", "compressed") if name in parts})


def with_compressed(basis: Basis, moments: Moments, compressed: Compressed) -> SufficientStatistics:
    """Statistics whose compressed form is known."""
    return rebuild(SufficientStatistics, {"basis": basis, "moments": moments, "compressed": compressed})
