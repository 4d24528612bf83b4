"""The helpers of the other algorithms' tests serve here as well."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "qrc"))
