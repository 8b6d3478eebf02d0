"""A basis of the rows of tables: columns by name, through a frozen recipe."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax
import numpy as np

from .._internal.pytree import pytree_dataclass
from ..kernels import Kernel
from ..priors import WeightPrior
from ..tables.recipe import Recipe
from .basis import Basis
from .residual import Residual
from .wrapped import WrappedBasis


@pytree_dataclass
class TableBasis(WrappedBasis):
    """A basis with the recipe that makes its inputs of the rows of tables.

    With it tables go where arrays do: ``sufficient_statistics(basis, table)`` takes X and y of it by name, as do
    ``stats.update(table)`` and predictions, which need no y. The recipe is saved with the statistics. Arrays that the
    recipe has made, ``basis.recipe(table)``, go there too.

    :param basis: the basis φ, of as many inputs as the recipe makes.
    :param table_recipe: a :class:`~ppl_sgp.Recipe`.
    :raises ValueError: if the basis takes another number of inputs.

    .. doctest::

        >>> import pandas as pd, ppl_sgp as sgp
        >>> table = pd.DataFrame({"km": [1.0, 2.0, 4.0, 5.0], "minutes": [3.0, 5.1, 9.0, 10.9]})
        >>> recipe = sgp.recipe(table, output="minutes")
        >>> stats = sgp.sufficient_statistics(sgp.TableBasis(sgp.LinearBasis(1), recipe), table)
        >>> model = sgp.models.additive(noise_scale=0.1)
        >>> posterior = sgp.posterior(model, sgp.fit_evidence(model, stats), stats)
        >>> bool(abs(posterior.predict(pd.DataFrame({"km": [3.0]})).mean[0] - 7) < 0.1)
        True
    """

    basis: Basis
    table_recipe: Recipe

    def __post_init__(self) -> None:
        for name, kind in (("basis", Basis), ("table_recipe", Recipe)):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(
                    f"TableBasis: `{name}` must be a {kind.__name__}; got {type(getattr(self, name)).__name__}."
                )
        if self.basis.input_dim != self.recipe.input_dim:
            raise ValueError(
                f"TableBasis: the basis takes {self.basis.input_dim} inputs, and the recipe makes "
                f"{self.recipe.input_dim}: {list(self.recipe.columns)}. Wrap a basis of some of them in "
                "`SelectedColumns`: `sgp.InputColumns(recipe.columns).select(basis, name)`."
            )

    @property
    def recipe(self) -> Recipe:
        """The recipe."""
        return self.table_recipe

    @property
    def num_features(self) -> int:
        """The number of features m."""
        return self.basis.num_features

    @property
    def input_dim(self) -> int:
        """The number of columns of X that the recipe makes, d."""
        return self.basis.input_dim

    @property
    def parts(self) -> tuple[Basis, ...]:
        """The parts of the basis."""
        return self.basis.parts

    @property
    def part_names(self) -> tuple[str, ...]:
        """Names of the parts."""
        return self.basis.part_names

    @property
    def feature_coords(self) -> dict[str, Any]:
        """Names of the features, after the columns of the table."""
        names = self.feature_names(self.recipe.columns)
        return {} if names is None else {"feature": names}

    def feature_names(self, inputs: Sequence[str]) -> list[str] | None:
        """Those of the basis."""
        return self.basis.feature_names(inputs)

    @property
    def constant_features(self) -> np.ndarray:
        """Whether each feature is a constant, shape (m,), Boolean."""
        return self.basis.constant_features

    @property
    def spectral_points(self) -> np.ndarray:
        """Those of the basis."""
        return self.basis.spectral_points

    @property
    def centre_kernel(self) -> Kernel | None:
        """That of the basis."""
        return self.basis.centre_kernel

    def weight_prior(self, kernel: Any) -> Any:
        """The prior of the basis.

        :param kernel: as the basis takes it.
        """
        return self.basis.weight_prior(kernel)

    def effective_share(self, log_variance: jax.Array) -> jax.Array:
        """That of the basis: a scalar."""
        return self.basis.effective_share(log_variance)

    def residual_variance(self, X: Any) -> np.ndarray:
        """That of the basis, shape (p, n)."""
        return self.basis.residual_variance(X)

    def residual(self, X: Any) -> Residual:
        """That of the basis."""
        return self.basis.residual(X)

    def residual_amplitude(self, prior: WeightPrior) -> jax.Array:
        """That of the basis, shape ``batch + (p,)``."""
        return self.basis.residual_amplitude(prior)

    def admissible(self, X: np.ndarray) -> np.ndarray:
        """Those of the basis."""
        return self.basis.admissible(X)

    def check_domain(self, X: Any) -> None:
        self.basis.check_domain(X)

    def features(self, X: Any, xp: ModuleType) -> Any:
        return self.basis.features(X, xp)

    def fill_features(self, X: np.ndarray, out: np.ndarray, single: bool = False) -> None:
        """Features as the basis fills them itself."""
        self.basis.fill_features(X, out, single)

    def name_of(self, feature: int) -> str:
        return self.basis.name_of(feature)

    def not_finite_at(self, x: np.ndarray) -> str | None:
        return self.basis.not_finite_at(x)
