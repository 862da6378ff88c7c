"""`python -m init_egress.exporter`."""

import sys

from init_egress.exporter.server import main

if __name__ == "__main__":
    sys.exit(main())
