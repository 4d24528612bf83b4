"""One thread per process, for the tests and for the processes they start: workers share the machine's cores."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

torch.set_num_threads(1)
