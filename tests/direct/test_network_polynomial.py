"""Networks multiplied out: numbers of monomials, how they grow, and the misprints of appendix E."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from ppl_sgp.direct.network_polynomial import NetworkPolynomial, compositions

pytestmark = pytest.mark.float64_only  # on the host, whatever the lane


@pytest.mark.parametrize("units", [1, 2, 4])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_numbers_of_monomials(d, units):
    pairs = d * (d + 1) // 2
    assert len(NetworkPolynomial.of((d, units, 1)).coefficients) == units * pairs
    two = 2 * (units * math.comb(d + 3, 4) + math.comb(units, 2) * pairs**2)
    polynomial = NetworkPolynomial.of((d, units, 2, 1))
    assert len(polynomial.coefficients) == two == len(np.unique(polynomial.exponents, axis=0))
    assert len(np.unique(polynomial.input_powers, axis=0)) == math.comb(d + 3, 4)


def test_growth_is_doubly_exponential():
    # h = O((b/l)^(2l)) is printed; with N units a layer, b/l ~ N², h ~ N^(2^(l+1) − 1): above it from l = 3 on.
    def formal(units, layers):
        h = 1
        for layer in range(layers + 1):
            h *= units
            h = h * (h + 1) // 2 if layer < layers else h
        return h

    for layers in (1, 2, 3, 4):
        slope = math.log(formal(2**21, layers) / formal(2**20, layers)) / math.log(2)
        assert slope == pytest.approx(2 ** (layers + 1) - 1, abs=1e-3)
    assert 2 ** (3 + 1) - 1 > 2 * (2 * 3)
    with pytest.raises(ValueError, match=r"h = [\d,]+ monomials.*fewer"):
        NetworkPolynomial.of((8, 8, 8, 1))


def test_printed_forward_pass_does_not_fit_together():
    """Algorithm ``forward_pass`` and (E.6) as printed, on two inputs and two units."""
    x, w = np.array([0.7, -1.2]), np.array([[0.5, 2.0], [-0.3, 0.8]])
    truth = (w @ x) ** 2
    # One coefficient for each input's g; with 1 ⊗ X in the first layer there are four for two.
    assert len(np.kron(np.ones(2), x)) == 4 and len(w[0]) == 2

    # The activation inside the loop over units squares the coefficients of the first unit again for the second.
    def squared(c):
        j, p = np.tril_indices(len(c), -1)
        return np.concatenate([c**2, 2 * c[j] * c[p]])

    assert (len(squared(squared(x))), len(squared(x))) == (6, 3)
    # Once for the layer, with each unit's own products, it is right.
    for unit, value in zip(w, truth, strict=True):
        products = np.array([unit[0] ** 2, unit[1] ** 2, unit[0] * unit[1]])
        assert squared(x) @ products == pytest.approx(value)
    # The cross term without the product over k: any one of its factors, or their sum, is something else.
    g = np.array([[w[0, 0], 1.0], [1.0, w[0, 1]]])  # (j, k): the first unit's terms
    squares = np.sum(x**2 * np.prod(g**2, axis=1))
    cross = 2 * x[0] * x[1] * g[0] * g[1]
    assert squares + 2 * x[0] * x[1] * np.prod(g[0] * g[1]) == pytest.approx(truth[0])
    for wrong in (*cross, cross.sum()):
        assert abs(squares + wrong - truth[0]) > 0.1


def test_compositions():
    vectors, coefficients = compositions(4, 3)
    assert sorted(map(tuple, vectors.tolist())) == [p for p in itertools.product(range(5), repeat=3) if sum(p) == 4]
    assert coefficients.sum() == 3**4
    assert compositions(0, 2)[0].tolist() == [[0, 0]]
