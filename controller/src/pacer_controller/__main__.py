"""`python -m pacer_controller`."""

import sys

from pacer_controller.server import main

sys.exit(main())
