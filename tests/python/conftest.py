"""The other folders' helpers beside the tests' own modules."""

import sys
from pathlib import Path

for folder in ("cli", "virtual"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))
