"""A network of quadratic activations as a polynomial in its weights, and moments of that polynomial.

A unit of layer ℓ is ``s = Σᵢ wᵢ uᵢ``, and passes ``u = s²`` on. Multiplied out from the output down,

    f(x, w) = Σ_t c_t x^{αₜ} w^{eₜ},

where power P of a unit's sum splits over its inputs in all ways, with multinomial coefficients, and the inputs' own
sums then have twice the powers that all units give them. Each monomial appears once; its powers of the first layer's
weights fix those of the inputs. So f is linear in the monomials of x of degree 2^L (L hidden layers), with coefficients
that are polynomials in w: all that data and rows enter is what linear regression on these monomials needs.

Evans (2022), appendix E, with these corrections. In algorithm ``forward_pass`` the first layer's ``C̃`` is X itself (d
rows, not d²) and the activation applies to C̃ once a layer, not once a unit; the cross term of (E.6) is a Kronecker
product too. There h is the number of monomials of w; of the matrices of h rows the distinct ones are kept here.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from functools import cached_property

import numpy as np

#: Most hidden layers: the degree in the inputs is then 32, and moments up to power 64 of weights are needed.
MAX_LAYERS = 5
#: Most monomials in the weights.
MAX_MONOMIALS = 5000
#: Most pairs of monomials that share a weight: some 300 bytes each while they are made.
MAX_PAIRS = 4_000_000
#: Products evaluated together.
CHUNK = 2**16


@dataclasses.dataclass(frozen=True)
class Products:
    """Products of entries of a flat table of moments: column t multiplies the entries ``factors[:, t]``.

    Entry 0 is the moment of power zero, one, with which short products are filled up.
    """

    factors: np.ndarray

    def __call__(self, moments: np.ndarray) -> np.ndarray:
        """The products."""
        return np.concatenate([np.prod(moments[part], axis=0) for part in self._chunks()])

    def pullback(self, moments: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The gradient, in the moments, of the sum of the products times ``weights``."""
        gradient = np.zeros_like(moments)
        for part, weight in zip(self._chunks(), np.split(weights, range(CHUNK, len(weights), CHUNK)), strict=True):
            values = moments[part]
            # Products of all others, without division: moments of odd powers vanish for symmetric distributions.
            others = np.ones_like(values)
            np.cumprod(values[:-1], axis=0, out=others[1:])
            others[:-1] *= np.cumprod(values[:0:-1], axis=0)[::-1]
            gradient += np.bincount(part.ravel(), (others * weight).ravel(), len(moments))
        return gradient

    def _chunks(self) -> list[np.ndarray]:
        return [self.factors[:, start : start + CHUNK] for start in range(0, self.factors.shape[1], CHUNK)]


@dataclasses.dataclass(frozen=True)
class NetworkPolynomial:
    """The output of a network, multiplied out. Weights count by layer from the input, then by unit, then by its input.

    :param widths: inputs d, units of each hidden layer, 1.
    :param exponents: powers of the weights in each monomial, shape (h, b).
    :param input_powers: powers of the inputs in each, shape (h, d).
    :param coefficients: shape (h,).
    """

    widths: tuple[int, ...]
    exponents: np.ndarray
    input_powers: np.ndarray
    coefficients: np.ndarray

    @classmethod
    def of(cls, widths: tuple[int, ...]) -> NetworkPolynomial:
        """Multiply out, from the output down.

        :raises ValueError: if layers or monomials are too many, before the monomials are made.
        """
        if len(widths) - 2 > MAX_LAYERS:
            raise ValueError(f"fit_network: at most {MAX_LAYERS} hidden layers are taken; got {len(widths) - 2}.")
        exponents, powers, coefficients = np.zeros((1, 0), int), np.ones((1, 1), int), np.ones(1)
        blocks: list[int] = []
        for inputs, units in reversed(list(itertools.pairwise(widths))):
            ways = np.array([float(math.comb(p + inputs - 1, p)) for p in range(powers.max() + 1)])
            _require_few(widths, int(np.sum(np.prod(ways[powers], axis=1))))
            start = exponents.shape[1]
            for unit in range(units):
                split = [_split(powers[:, unit] == p, p, inputs) for p in np.unique(powers[:, unit])]
                rows, parts, factor = (np.concatenate(each) for each in zip(*split, strict=True))
                exponents, powers = np.hstack([exponents[rows], parts]), powers[rows]
                coefficients = coefficients[rows] * factor
            powers = 2 * exponents[:, start:].reshape(-1, units, inputs).sum(axis=1)
            blocks.append(exponents.shape[1])
        by_layer = np.split(exponents, blocks[:-1], axis=1)[::-1]
        return cls(widths, np.hstack(by_layer), powers // 2, coefficients)

    @property
    def num_weights(self) -> int:
        """b."""
        return self.exponents.shape[1]

    @property
    def degree(self) -> int:
        """The degree in the inputs, 2^L."""
        return int(2 ** (len(self.widths) - 2))

    @property
    def num_powers(self) -> int:
        """How many powers of a weight, from zero, the square of the output needs."""
        return 2 * int(self.exponents.max()) + 1

    def table(self, levels: np.ndarray) -> np.ndarray:
        """Powers of levels (b, m̄) that the square of the output needs, shape (b, m̄, num_powers)."""
        return levels[..., None] ** np.arange(self.num_powers)

    def moments(self, levels: np.ndarray, probs: np.ndarray) -> np.ndarray:
        """``E[wⱼʳ]`` for levels with probabilities, both (b, m̄): a table (b, num_powers), flat."""
        return np.einsum("bl,blr->br", probs, self.table(levels)).ravel()

    def positions(self, features: np.ndarray) -> np.ndarray:
        """Where each monomial's powers of the inputs are among those of features (m, d), shape (h,)."""
        place = {tuple(powers): i for i, powers in enumerate(features.tolist())}
        return np.array([place[tuple(powers)] for powers in self.input_powers.tolist()])

    def output_moments(self, moments: np.ndarray, positions: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean (m,) and covariance (m, m) of the coefficients of m features, given moments of the weights."""
        (first, second), (products, which) = self.pairs, self.squares
        single = self.singles(moments)
        shared = products(moments)[which] - single[first] * single[second]
        shared *= self.coefficients[first] * self.coefficients[second] * np.where(first == second, 0.5, 1.0)
        half = np.bincount(positions[first] * size + positions[second], shared, size**2).reshape(size, size)
        return np.bincount(positions, self.coefficients * single, size), half + half.T

    @cached_property
    def singles(self) -> Products:
        """The monomials as products of moments, of a table (b, num_powers)."""
        return Products(self._factors(self.exponents, self._most_factors))

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions (t, u), t ≥ u, of monomials that share a weight: all others are independent under q.

        :raises ValueError: if they are too many, before they are made.
        """
        active = (self.exponents > 0).astype(np.float32)
        shared = active @ active.T > 0
        count = (int(np.count_nonzero(shared)) + len(shared)) // 2
        if count > MAX_PAIRS:
            raise ValueError(
                f"fit_network: the {len(shared):,} monomials of the network {_shown(self.widths)} have {count:,} pairs "
                f"with a weight in common; at most {MAX_PAIRS:,} are taken. Use fewer inputs, units or layers."
            )
        first, second = np.nonzero(np.tril(shared))
        return first, second

    @cached_property
    def squares(self) -> tuple[Products, np.ndarray]:
        """The distinct products of these pairs, and for each pair which of them it has."""
        first, second = self.pairs
        width, size = 2 * self._most_factors - 1, max(1, 2**24 // self.num_weights)
        parts = [
            self._factors(
                self.exponents[first[start : start + size]] + self.exponents[second[start : start + size]], width
            )
            for start in range(0, len(first), size)
        ]
        factors = np.concatenate(parts, axis=1)
        order = np.lexsort(factors)
        new = np.concatenate([[True], np.any(np.diff(factors[:, order], axis=1) != 0, axis=0)])
        which = np.empty(len(order), int)
        which[order] = np.cumsum(new) - 1
        return Products(factors[:, order[new]]), which

    @property
    def _most_factors(self) -> int:
        return int(np.count_nonzero(self.exponents, axis=1).max())

    def _factors(self, exponents: np.ndarray, width: int) -> np.ndarray:
        """Positions (width, count) in the table of moments of each row's powers."""
        rows, weights = np.nonzero(exponents)
        place = np.arange(len(rows)) - np.searchsorted(rows, rows)
        factors = np.zeros((width, len(exponents)), np.int32)
        factors[place, rows] = weights * self.num_powers + exponents[rows, weights]
        return factors


def compositions(total: int, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """All vectors of so many integers ≥ 0 with this sum, (count, parts), and their multinomial coefficients."""
    chosen = np.array(list(itertools.combinations_with_replacement(range(parts), total)), int)
    vectors = np.zeros((len(chosen), parts), int)
    for column in chosen.T:
        vectors[np.arange(len(chosen)), column] += 1
    factorial = np.array([float(math.factorial(k)) for k in range(total + 1)])
    return vectors, factorial[total] / np.prod(factorial[vectors], axis=1)


def _split(mask: np.ndarray, power: int, inputs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in the mask, each as often as the power splits; the powers of the inputs; their coefficients."""
    rows = np.flatnonzero(mask)
    vectors, factor = compositions(power, inputs)
    return np.repeat(rows, len(vectors)), np.tile(vectors, (len(rows), 1)), np.tile(factor, len(rows))


def _require_few(widths: tuple[int, ...], count: int) -> None:
    if count > MAX_MONOMIALS:
        raise ValueError(
            f"fit_network: the network {_shown(widths)} has at least h = {count:,} monomials in its weights; at most "
            f"{MAX_MONOMIALS:,} are taken. They grow as N**(2**(l + 1) - 1) with l hidden layers of N units: use fewer "
            "hidden layers, units or inputs."
        )


def _shown(widths: tuple[int, ...]) -> str:
    return "-".join(map(str, widths))
