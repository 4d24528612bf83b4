"""One thread per process, for the tests and for the processes they start: workers share the machine's cores."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import signal

import torch

torch.set_num_threads(1)

# A shell that starts the tests in the background has Ctrl-C ignored, and processes inherit that: what is interrupted in
# a test must be interruptible wherever the tests run.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """The long ones first, so that no process is left alone with one at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
