"""Rows spread over devices: the same sums as the host's, on one, two and four devices and in two processes."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ppl_sgp as sgp
from tests.builders import IdentityBasis

ROOT = pathlib.Path(__file__).parents[2]
BASIS = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.5), 6, 2)
N = 44


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2)).astype(np.float32)  # exact in either lane
    return X, rng.normal(size=(N, 3)).astype(np.float32), rng.uniform(0.5, 2.0, size=N).astype(np.float32)


def over(count, spec="rows"):
    return NamedSharding(Mesh(np.array(jax.devices()[:count]), ("rows",)), PartitionSpec(spec))


def assert_same(left, right):
    for name, value in vars(right.moments.plain()).items():
        found = getattr(left.moments, name)
        assert isinstance(found, (np.ndarray, np.float64)) and found.dtype == np.float64, name
        np.testing.assert_allclose(found, value, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("chunk_size", [None, 3])
def test_any_number_of_devices_gives_the_sums_of_the_host(rows, count, chunk_size):
    X, y, w = rows
    X_global, y_global = jax.device_put(X, over(count)), jax.device_put(y, over(count))
    expected = sgp.sufficient_statistics(BASIS, X, y, row_weights=w)
    found = sgp.sufficient_statistics(BASIS, X_global, y_global, chunk_size, row_weights=w)
    assert_same(found, expected)
    assert_same(sgp.sufficient_statistics(BASIS, X_global, y[:, 0]), sgp.sufficient_statistics(BASIS, X, y[:, 0]))


def test_rows_that_every_device_has_and_rows_over_two_axes(rows):
    X, y, _ = rows
    expected = sgp.sufficient_statistics(BASIS, X, y)
    assert_same(sgp.sufficient_statistics(BASIS, jax.device_put(X, over(2, None)), y), expected)
    square = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))
    both = NamedSharding(square, PartitionSpec(("a", "b")))
    assert_same(sgp.sufficient_statistics(BASIS, jax.device_put(X, both), y), expected)


def test_left_over_rows_are_added_by_update(rows):
    X, y, _ = rows
    spread = sgp.sufficient_statistics(BASIS, jax.device_put(X[:40], over(4)), y[:40])
    assert_same(spread.update(X[40:], y[40:]), sgp.sufficient_statistics(BASIS, X, y))


def changed(array, index, value):
    array = array.copy()
    array[index] = value
    return array


def test_what_cannot_be_used_is_refused(rows):
    X, y, w = rows
    spread = jax.device_put(X, over(2))
    cases = [
        ((jax.device_put(changed(X, (3, 1), np.nan), over(2)), y), {}, "`X` has 1 entries that are not finite"),
        ((spread, changed(y, 3, np.inf)), {}, "`y` has 3 entries that are not finite"),
        ((spread, y), {"row_weights": changed(w, [3, 5], 0.0)}, "`row_weights` has 2 entries that are not positive"),
        ((spread, y[:-1]), {}, r"`y` must have 44 rows as well; got shape \(43, 3\)"),
        ((spread, y[:, 0] > 0), {}, "`y` must hold real numbers.*bool"),
        ((spread, y), {"method": "qr"}, "spread over devices do not go with `method`"),
        ((spread, y), {"float32_features": True, "checkpoint": "p"}, "with `checkpoint`, `float32_features`"),
        ((spread, y), {"chunk_size": 0}, "`chunk_size` must be"),
    ]
    for arguments, options, message in cases:
        with pytest.raises(ValueError, match=message):
            sgp.sufficient_statistics(BASIS, *arguments, **options)
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("rows", "columns"))
    columns = jax.device_put(X, NamedSharding(mesh, PartitionSpec("rows", "columns")))
    with pytest.raises(ValueError, match="its columns must not be"):
        sgp.sufficient_statistics(BASIS, columns, y)
    with pytest.raises(ValueError, match=r"`X` must have shape \(n, 3\)"):
        sgp.sufficient_statistics(IdentityBasis(3), spread, y)


def test_inputs_out_of_the_domain_are_found(rows):
    X, y, _ = rows
    basis = sgp.LaplaceBasis(4, centre=np.zeros(2), boundary=np.full(2, 1.0))
    with pytest.warns(UserWarning, match="outside"):
        sgp.sufficient_statistics(basis, jax.device_put(X, over(2)), y)


def test_arrays_on_one_device_are_read_by_the_host(rows):
    X, y, _ = rows
    expected = sgp.sufficient_statistics(BASIS, X, y, method="qr")
    assert_same(sgp.sufficient_statistics(BASIS, jnp.asarray(X), jnp.asarray(y), method="qr"), expected)


def test_kept_rows_are_those_of_the_host(rows):
    """Inputs, outputs and weights, each spread or not."""
    X, y, w = rows
    expected = sgp.rows(X, y, w)
    for count in (2, 4):
        spread = [jax.device_put(each, over(count)) for each in (X, y, w)]
        for given in (
            spread,
            [spread[0], y, w],
            [X, *spread[1:]],
            [jax.device_put(X, over(count, None)), y, spread[2]],
        ):
            found = sgp.rows(*given)
            for name in ("X", "y", "row_weights"):
                value = getattr(found, name)
                assert value.dtype == np.float64
                np.testing.assert_array_equal(value, getattr(expected, name))
    with pytest.raises(ValueError, match="`X` has 1 of 44 rows"):
        sgp.rows(jax.device_put(changed(X, (3, 1), np.nan), over(2)), y)


@pytest.mark.slow
@pytest.mark.float64_only
def test_kept_rows_of_devices_have_the_evidence_of_the_host(rows):
    X, y, _ = rows
    kernel, Z = sgp.Matern32(0.5), np.asarray(X[::6], dtype=float)
    spread, host = sgp.rows(jax.device_put(X, over(4)), jax.device_put(y, over(4))), sgp.rows(X, y)
    for method in ("vfe", "fitc"):
        found, expected = (sgp.inducing_evidence(each, kernel, Z, 0.3, method) for each in (spread, host))
        np.testing.assert_allclose(found, expected, rtol=1e-12)  # sums in another order
    chosen = [sgp.select_inducing_points(jax.random.key(0), each, kernel, 5).indices for each in (spread, host)]
    np.testing.assert_array_equal(*chosen)


@pytest.mark.end_to_end
@pytest.mark.float64_only  # processes of their own choose their precision
def test_two_processes_agree_with_one(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    script = tmp_path / "process.py"
    script.write_text(
        textwrap.dedent("""
            import sys, jax, numpy as np
            from jax.sharding import PartitionSpec
            jax.distributed.initialize(f"localhost:{sys.argv[1]}", num_processes=2, process_id=int(sys.argv[2]))
            import ppl_sgp as sgp
            basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.5), 6, 2)
            X = np.random.default_rng(0).normal(size=(44, 2)).astype(np.float32)
            mine = X[:22] if sys.argv[2] == "0" else X[22:]
            sharding = jax.NamedSharding(jax.make_mesh((jax.device_count(),), ("rows",)), PartitionSpec("rows"))
            spread = [jax.make_array_from_process_local_data(sharding, each) for each in (mine, np.sin(mine[:, 0]))]
            assert jax.device_count() == 4 and len(jax.local_devices()) == 2
            stats = sgp.sufficient_statistics(basis, *spread)
            stats.save(sys.argv[3])
            try:
                spread[1] = jax.make_array_from_process_local_data(sharding, np.log(np.abs(mine[:, 0]) - 0.01))
                sgp.sufficient_statistics(basis, *spread)
            except ValueError as error:
                assert "not finite" in str(error)  # in both, though one has the bad rows: none waits for the other
        """)
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    environment.pop("JAX_ENABLE_X64", None)
    commands = [[sys.executable, str(script), str(port), str(i), str(tmp_path / f"{i}.npz")] for i in range(2)]
    processes = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for command in commands]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    X = np.random.default_rng(0).normal(size=(N, 2)).astype(np.float32)
    expected = sgp.sufficient_statistics(BASIS, X, np.sin(X[:, 0]))
    for i in range(2):
        assert_same(sgp.SufficientStatistics.load(tmp_path / f"{i}.npz"), expected)
