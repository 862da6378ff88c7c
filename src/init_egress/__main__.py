"""`python -m init_egress`: see `init_egress.cli`."""

import sys

from init_egress.cli import main

sys.exit(main(sys.argv[1:]))
