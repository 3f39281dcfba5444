"""`python -m pacer_controller`."""

import sys

from pacer_controller.cli import main

sys.exit(main())
