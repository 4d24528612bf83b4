"""Run functions for the tests of the runner, importable by its workers, and what the tests wait with."""

import json
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from sb3_robust_be.runner import RunWriter, run_directory


def spec(function, seed=0, **more):
    return {"function": f"runner_functions:{function}", "seed": seed, **more}


def units(function, count, **more):
    return [[spec(function, seed, **more)] for seed in range(count)]


def started(writer):
    return json.loads((writer.directory / "started.json").read_text())


def wait_until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def has_started(out, one):
    return (run_directory(out, one) / "started.json").exists()


def pid_of(out, one):
    return started(RunWriter(out, one))["pid"]


def square(specs, writers, report_progress):
    for one, writer in zip(specs, writers, strict=True):
        writer.write_arrays("curve", returns=np.arange(4.0) * one["seed"])
        writer.finish({"square": one["seed"] ** 2})


def count_calls(specs, writers, report_progress):
    """Leaves a file per execution."""
    for one, writer in zip(specs, writers, strict=True):
        (Path(one["log"]) / f"{one['seed']}-{time.time_ns()}").touch()
        writer.finish({"members": len(specs)})


def mixed(specs, writers, report_progress):
    """Members end by what they are told, and the function then raises."""
    for one, writer in zip(specs, writers, strict=True):
        if one["ends"] == "finish":
            writer.finish({"nan": float("nan")})
        elif one["ends"] == "fail":
            writer.fail("the member's own reason")
    if specs[0].get("raises"):
        raise ValueError("first line\nlast line")


def leave(specs, writers, report_progress):
    raise SystemExit(3)


def kill_itself(specs, writers, report_progress):
    """Those with ``"tries"`` die in their first so many attempts, by a signal or with an exit ``"code"``."""
    for one, writer in zip(specs, writers, strict=True):
        attempt = started(writer)["attempt"]
        if attempt <= one.get("tries", 0):
            if "code" in one:
                os._exit(one["code"])
            os.kill(os.getpid(), signal.SIGKILL)
        writer.finish({"attempt": attempt, "members": len(specs)})


def wait_for_gate(specs, writers, report_progress):
    """Works until the file ``"gate"`` exists."""
    while not Path(specs[0]["gate"]).exists():
        report_progress(0.25)
        time.sleep(0.02)
    for writer in writers:
        writer.finish({"attempt": started(writer)["attempt"]})


def write_megabytes(specs, writers, report_progress):
    for one, writer in zip(specs, writers, strict=True):
        noise = np.random.default_rng(one["seed"]).random((one["megabytes"], 1 << 17))
        writer.write_arrays("curve", noise=noise)
        writer.finish({"megabytes": one["megabytes"]})


def write_own_file(specs, writers, report_progress):
    for one, writer in zip(specs, writers, strict=True):
        (writer.directory / "monitor.csv").write_bytes(b"x" * (one["megabytes"] << 20))
        writer.finish({})


COMPANY = []


def count_company(specs, writers, report_progress):
    """How many others run in this process at the time."""
    others = len(COMPANY)
    COMPANY.append(writers)
    time.sleep(0.02)
    COMPANY.remove(writers)
    writers[0].finish({"company": others})


def torch_threads(specs, writers, report_progress):
    import torch

    for writer in writers:
        variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        writer.finish({"threads": torch.get_num_threads(), **{name: os.environ.get(name) for name in variables}})


def thread_pool():
    return ThreadPoolExecutor(2)


def shared_pool():
    return ProcessPoolExecutor(2, mp_context=get_context("forkserver"))


not_callable = 7
