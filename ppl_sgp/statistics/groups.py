"""Statistics of several groups of rows as one batch, to be mapped over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from .._internal.pytree import rebuild
from .alike import require_alike
from .compressed import Compressed, with_null_rows
from .root_moments import RootMoments
from .statistics import SufficientStatistics, with_compressed


def stack_statistics(groups: Iterable[SufficientStatistics]) -> SufficientStatistics:
    """Statistics of groups of rows, such as subjects or sensors, as one batch for ``jax.vmap``.

    The groups may have different numbers of rows and ranks. All arrays have a leading axis for the groups; within
    ``jax.vmap`` the result is the statistics of one group. One compilation serves all.

    :param groups: statistics with the same basis and the same number of outputs.
    :return: a batch of statistics, shape (number of groups,).
    :raises ValueError: for no groups, or groups that differ in basis or outputs.

    .. doctest::

        >>> import jax, numpy as np, ppl_sgp as sgp
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> basis = sgp.FourierBasis.from_data(jax.random.key(0), X, 10)
        >>> y = np.cos(6 * X[:, 0]) + 0.1 * np.cos(77 * X[:, 0])
        >>> groups = [sgp.sufficient_statistics(basis, X[rows], y[rows]) for rows in (slice(4), slice(4, 30))]
        >>> batch = sgp.stack_statistics(groups)
        >>> prior = basis.weight_prior(sgp.SquaredExponential(0.3))
        >>> jax.vmap(lambda stats: sgp.log_evidence(stats, prior, 0.1))(batch).shape
        (2,)
    """
    groups = list(groups)
    if not groups or not all(isinstance(group, SufficientStatistics) for group in groups):
        raise ValueError("stack_statistics: pass a list of statistics, one a group, from sgp.sufficient_statistics.")
    first = groups[0]
    for group in groups:
        require_alike(first.basis, first.moments, group.basis, group.moments)
        if type(group) is not type(first):
            raise ValueError("stack_statistics: some groups are compressed likelihoods, others of Gaussian noise.")
    alike = _as_plain(groups) if len({type(group.moments) for group in groups}) > 1 else groups
    rows = max(group.compressed.factor.shape[0] for group in alike)
    suffices = all(group.compressed.float32_suffices for group in alike)
    same = [_of_shape(group, first, rows, suffices) for group in alike]
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *same)


def _as_plain(groups: list[SufficientStatistics]) -> list[SufficientStatistics]:
    """Where some keep roots and others do not: plain sums, and what the roots know better has no defect."""

    def plain(group: SufficientStatistics) -> SufficientStatistics:
        c, compressed = group.projection[..., :-1], group.compressed
        defects = {"gram_defect": np.zeros_like(group.moments.gram), "output_defect": 0 * (c @ compressed.factor)}
        given = {name: value for name, value in vars(compressed).items() if value is not None}
        return with_compressed(group.basis, group.moments.plain(), rebuild(Compressed, {**defects, **given}))

    return [plain(group) for group in groups]


def _of_shape(
    group: SufficientStatistics, first: SufficientStatistics, rows: int, suffices: bool
) -> SufficientStatistics:
    """The same with so many rows of R, and what is static as in all groups."""
    compressed, moments = group.compressed, group.moments
    changes: dict[str, Any] = {"float32_suffices": suffices}
    if not group.is_diagonal:
        c, rss = compressed.projection[..., :-1], compressed.projection[..., -1:]
        changes["factor"] = with_null_rows(compressed.factor, rows)
        changes["projection"] = np.concatenate([with_null_rows(c.T, rows).T, rss], axis=-1)
    if isinstance(moments, RootMoments):
        moments = rebuild(RootMoments, {**vars(moments), "required": True})
    return group._with(first.basis, moments, rebuild(Compressed, {**vars(compressed), **changes}))
