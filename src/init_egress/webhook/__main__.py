"""`python -m init_egress.webhook`."""

import os
import sys

from init_egress.webhook.server import main

if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # sys.exit would wait for the server's threads.
    os._exit(code)
