"""Whether statistics go together: of one basis, of as many outputs, single ones, computed in the same way."""

from __future__ import annotations

import numpy as np

from .._internal import checks
from .._internal.pytree import same_tree
from ..bases.basis import Basis
from .moments import Moments
from .root_moments import RootMoments


def require_addable(basis: Basis, moments: Moments, other_basis: Basis, other: Moments) -> None:
    """Refuse to add sums of another basis, of another number of outputs, or that would lose digits asked for."""
    require_alike(basis, moments, other_basis, other)
    for one, beside in ((moments, other), (other, moments)):
        if isinstance(one, RootMoments) and one.required and not isinstance(beside, RootMoments):
            raise ValueError(
                "Statistics can be added only if they were computed in the same way; one of these comes from "
                '`method="qr"`, whose digits the other lacks. Compute both alike.'
            )


def require_alike(basis: Basis, moments: Moments, other_basis: Basis, other: Moments) -> None:
    """Refuse statistics of another basis or of another number of outputs."""
    if not checks.is_concrete(moments, other):
        raise ValueError(
            "Statistics are added on the host, in float64: their numbers cannot be read under `jit`, `vmap` or "
            "`grad`. Add them before, and pass the sum as an argument."
        )
    for each in (moments, other):
        require_one_group(each, "Adding statistics")
    if not same_tree(basis, other_basis):
        raise ValueError(
            "Statistics can be added only if they were computed with the same basis; these bases differ. "
            "Keep one basis (save it with the statistics) and compute both from it."
        )
    if np.shape(moments.sum_squares) != np.shape(other.sum_squares):
        raise ValueError(
            f"Statistics to be added must have the same outputs; got y of shape (n, …) with trailing shapes "
            f"{np.shape(moments.sum_squares)} and {np.shape(other.sum_squares)}."
        )


def require_one_group(moments: Moments, owner: str) -> None:
    """Refuse a batch of groups."""
    groups = np.shape(moments.num_rows)
    if groups:
        raise ValueError(
            f"{owner}: these are statistics of {groups[0]} groups, from `sgp.stack_statistics`, where those of one "
            "are needed. Map over the groups, as in `jax.vmap(lambda stats: sgp.log_evidence(stats, prior, "
            "noise_scale))(batch)`, or use the statistics of each before they were stacked."
        )
