"""The modules of the conformance tests and of virtual time beside these."""

import sys
from pathlib import Path

for folder in ("conformance", "virtual"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))
