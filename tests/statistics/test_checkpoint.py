"""Passes that are interrupted go on and end with the same bits; files that do not belong are refused."""

import signal
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest

import ppl_sgp as sgp
from ppl_sgp.statistics import running
from ppl_sgp.statistics.checkpoint import Checkpoint
from tests.builders import smooth_rows

pytestmark = pytest.mark.float64_only  # on the host, whatever the lane
BASIS = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), 10, 1)


def chunked(X, y, size=7):
    return ((X[i : i + size], y[i : i + size]) for i in range(0, len(X), size))


def arrays(X, y, path=None, method="auto"):
    return sgp.sufficient_statistics(BASIS, X, y, chunk_size=7, checkpoint=path, method=method)


def chunks(X, y, path=None, method="auto"):
    return sgp.sufficient_statistics(BASIS, chunked(X, y), checkpoint=path, method=method)


def same_bits(one, other):
    for left, right in zip(jax.tree.leaves(one.moments), jax.tree.leaves(other.moments), strict=True):
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes()


@pytest.mark.parametrize(("method", "kind"), [("auto", running.RunningRoot), ("gram", running.RunningProducts)])
@pytest.mark.parametrize("run", [arrays, chunks])
def test_twenty_interruptions_leave_the_same_bits(run, method, kind, tmp_path, monkeypatch, rng):
    X, y = smooth_rows(rng, 200)
    truth, path = run(X, y, method=method), tmp_path / "pass.npz"
    original, calls = kind.add, {"left": 0, "summed": 0}

    def add(*args, **kwargs):
        if calls["left"] == 0:
            raise KeyboardInterrupt
        calls["left"] -= 1
        calls["summed"] += 1
        return original(*args, **kwargs)

    monkeypatch.setattr(kind, "add", add)
    for _ in range(20):
        calls["left"] = int(rng.integers(0, 3))
        try:
            run(X, y, path, method)
        except KeyboardInterrupt:
            continue
    calls["left"] = 1000
    same_bits(run(X, y, path, method), truth)
    assert calls["summed"] == 29  # no chunk twice
    same_bits(run(X, y, path, method), truth)  # complete: nothing is left to sum
    assert calls["summed"] == 29


@pytest.mark.slow
def test_a_killed_process_loses_one_chunk_at_most(tmp_path):
    script = tmp_path / "slow.py"
    script.write_text(
        textwrap.dedent("""
            import sys, time, jax, numpy as np, ppl_sgp as sgp
            basis = sgp.FourierBasis.sample(jax.random.key(0), sgp.Matern32(0.3), 10, 1)
            X = np.linspace(0, 1, 500)[:, None]
            def chunks():
                for i in range(0, 500, 10):
                    print(i, flush=True)
                    time.sleep(0.05)
                    yield X[i : i + 10], np.sin(X[i : i + 10, 0])
            sgp.sufficient_statistics(basis, chunks(), checkpoint=sys.argv[1])
        """)
    )
    path = tmp_path / "pass.npz"
    with subprocess.Popen([sys.executable, str(script), str(path)], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if int(line) == 200:
                process.send_signal(signal.SIGKILL)
                break
    X = np.linspace(0, 1, 500)[:, None]
    y = np.sin(X[:, 0])
    with Checkpoint(path, BASIS) as kept:
        assert kept.moments.num_rows == 200
    resumed = sgp.sufficient_statistics(BASIS, chunked(X, y, 10), checkpoint=path)
    same_bits(resumed, sgp.sufficient_statistics(BASIS, chunked(X, y, 10)))


def test_a_refused_chunk_keeps_the_others(tmp_path, rng):
    X, y = smooth_rows(rng, 30)
    bad = y.copy()
    bad[16] = np.nan
    path = tmp_path / "pass.npz"
    with pytest.raises(sgp.ChunkError, match="chunk 2"):
        chunks(X, bad, path)
    same_bits(chunks(X, y, path), chunks(X, y))


def test_more_rows_may_follow(tmp_path, rng):
    X, y = smooth_rows(rng, 35)
    path = tmp_path / "pass.npz"
    arrays(X[:21], y[:21], path)
    same_bits(arrays(X, y, path), arrays(X, y))


@pytest.mark.parametrize(
    "match, spoil",
    [
        ("chunk 0 differs", lambda X, y, path: arrays(X + 1e-12, y, path)),
        ("chunk 2 differs", lambda X, y, path: arrays(X, np.where(np.arange(len(y)) == 20, 0.0, y), path)),
        ("chunk 0 differs", lambda X, y, path: sgp.sufficient_statistics(BASIS, X, y, chunk_size=6, checkpoint=path)),
        (
            "another basis",
            lambda X, y, path: sgp.sufficient_statistics(
                sgp.FourierBasis.sample(jax.random.key(1), sgp.Matern32(0.3), 10, 1), X, y, checkpoint=path
            ),
        ),
        ("chunk 0 differs", lambda X, y, path: chunks(X + 1e-12, y, path)),
        (
            "made with float32_features=False",
            lambda X, y, path: sgp.sufficient_statistics(
                BASIS, X, y, chunk_size=7, checkpoint=path, float32_features=True
            ),
        ),
        ("has summed 5 chunks, but these data have 3", lambda X, y, path: arrays(X[:21], y[:21], path)),
        ("has summed 5 chunks, but these data have 3", lambda X, y, path: chunks(X[:21], y[:21], path)),
        ("another basis", lambda X, y, path: sgp.sufficient_statistics(sgp.LinearBasis(1), X, y, checkpoint=path)),
    ],
)
def test_other_passes_are_refused_and_the_file_is_kept(match, spoil, tmp_path, rng):
    X, y = smooth_rows(rng, 30)
    path = tmp_path / "pass.npz"
    arrays(X, y, path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=match) as error:
        spoil(X, y, path)
    assert not isinstance(error.value, sgp.ChunkError)  # no chunk was refused: there is nothing to go on from
    assert path.read_bytes() == before


def test_damaged_and_foreign_files_are_refused(tmp_path, rng):
    X, y = smooth_rows(rng, 30)
    path = tmp_path / "pass.npz"
    arrays(X, y).save(path)
    with pytest.raises(ValueError, match="not a checkpoint of a pass"):
        arrays(X, y, path)
    with pytest.raises(ValueError, match="is a folder, a device or a pipe, not a file"):
        arrays(X, y, tmp_path)
    good = tmp_path / "good.npz"
    arrays(X, y, good)
    path.write_bytes(good.read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged, truncated or foreign"):
        arrays(X, y, path)


@pytest.mark.skipif(sys.platform == "win32", reason="no file locks of this kind there")
def test_two_passes_cannot_share_a_file(tmp_path, rng):
    X, y = smooth_rows(rng, 30)
    path = tmp_path / "pass.npz"
    with Checkpoint(path, BASIS), pytest.raises(ValueError, match="in use by another pass"):
        arrays(X, y, path)
    arrays(X, y, path)  # free again
