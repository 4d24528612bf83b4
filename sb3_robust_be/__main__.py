"""``python -m sb3_robust_be`` is ``sb3-robust-be``."""

import sys

from sb3_robust_be.cli import main

sys.exit(main())
