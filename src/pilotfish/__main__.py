"""`python -m pilotfish`: the command line, for launchers that start a module: `torchrun -m pilotfish train RECIPE`."""

import sys

from pilotfish.cli import main

sys.exit(main())
