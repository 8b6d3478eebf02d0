"""A basis made of another one, which keeps what is known of it."""

from __future__ import annotations

from ..tables.recipe import Recipe
from .basis import Basis


class WrappedBasis(Basis):
    """A basis whose features are made of those of one other, its field ``basis``."""

    basis: Basis

    @property
    def bounded(self) -> bool:
        """Whether the features of the basis mean nothing outside a box."""
        return self.basis.bounded

    @property
    def recipe(self) -> Recipe | None:
        """That of the basis."""
        return self.basis.recipe

    @property
    def approximates_kernel(self) -> bool:
        """Whether the features of the basis stand for a kernel."""
        return self.basis.approximates_kernel

    @property
    def has_float32_features(self) -> bool:
        """Whether the basis has a way in float32."""
        return self.basis.has_float32_features
