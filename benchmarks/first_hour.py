"""What a new user waits for: README's first block, run in a fresh process without a cache of programs.

CPU seconds (all threads) to the first posterior and of the whole block, statement by statement, with the number of
programs that XLA compiles in each. The targets are 12 CPU seconds to the first posterior and 25 in all. BLAS has the
threads that it takes by default; ``--blas-threads 1`` shows what is left when it has one.

PYTHONPATH=. python benchmarks/first_hour.py [--smoke] [--names] [--blas-threads N]
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from common import print_conclusion, print_header, print_table

ROOT = Path(__file__).resolve().parent.parent
FIRST, ALL = 12.0, 25.0
#: The event of JAX that ends a compilation.
COMPILED = "/jax/core/compile/backend_compile_duration"
#: Set by those who have run JAX before: a new user has none of them.
SETTINGS = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_X64", "XLA_FLAGS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def first_block() -> str:
    """The code of README's first block of Python."""
    match = re.search(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert match is not None
    return match.group(1)


def run_statements(source: str) -> list[dict[str, object]]:
    """Each statement by itself, with the CPU seconds of this process and the programs compiled; called in the child."""
    programs: list[list[object]] = []
    rows, variables = [], {"__name__": "__main__"}
    listening = False
    for statement in ast.parse(source).body:
        spent, known = sum(os.times()[:2]), len(programs)
        exec(compile(ast.Module([statement], []), "README.md", "exec"), variables)
        if "jax" in variables:
            if not listening:
                variables["jax"].monitoring.register_event_duration_secs_listener(
                    lambda event, seconds, **of: (
                        programs.append([str(of.get("fun_name")), seconds]) if event == COMPILED else None
                    )
                )
                listening = True
            variables["jax"].effects_barrier()
            if "mcmc" in variables:  # what was started belongs to the statement that has started it
                variables["jax"].block_until_ready(variables["mcmc"].last_state)
        rows.append(
            {
                "statement": ast.unparse(statement).splitlines()[0][:60],
                "cpu": sum(os.times()[:2]) - spent,
                "programs": programs[known:],
            }
        )
    return rows


def in_fresh_process(source: str, blas_threads: int | None) -> tuple[list[dict[str, object]], float]:
    """The statements, and the CPU seconds of the whole process with Python's own start."""
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    if blas_threads:
        environment["OPENBLAS_NUM_THREADS"] = str(blas_threads)
    before = os.times()
    command = [sys.executable, __file__, "--child"]
    done = subprocess.run(command, input=source, env=environment, capture_output=True, text=True, check=False)
    after = os.times()
    if done.returncode:
        raise SystemExit(done.stderr)
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return json.loads(done.stdout.splitlines()[-1]), spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="fewer rows and draws; finishes sooner")
    parser.add_argument(
        "--names", action="store_true", help="name the programs of each statement, with the milliseconds of compilation"
    )
    parser.add_argument("--blas-threads", type=int, help="threads of BLAS; default: as many as it takes")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print("\n" + json.dumps(run_statements(sys.stdin.read())))
        return
    source = first_block()
    if options.smoke:
        source = source.replace("5_000", "200").replace(
            "num_warmup=300, num_samples=500", "num_warmup=5, num_samples=5"
        )
    print_header("The first hour", {"blas_threads": options.blas_threads or "default", "smoke": options.smoke})
    rows, total = in_fresh_process(source, options.blas_threads)
    table, so_far = [], 0.0
    for row in rows:
        so_far += row["cpu"]
        table.append([row["statement"], row["cpu"], so_far, len(row["programs"])])
        if row["statement"].startswith("posterior ="):
            first = so_far
    print_table(["statement", "CPU s", "so far", "programs"], table)
    if options.names:
        for row in rows:
            names = " ".join(f"{name[4:-1]}:{1000 * seconds:.0f}" for name, seconds in row["programs"])
            print(f"{row['statement']}: {names}")
    programs = sum(len(row["programs"]) for row in rows)
    print(f"\nfirst posterior {first:.1f} CPU s, all {total:.1f} CPU s, {programs} programs compiled")
    outcomes = {f"first posterior under {FIRST:.0f} CPU s": first < FIRST, f"all under {ALL:.0f} CPU s": total < ALL}
    print_conclusion(outcomes, options.smoke)


if __name__ == "__main__":
    main()
