"""`python -m init_egress.webhook`."""

import os
import sys

from init_egress.webhook.server import main

if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # The threads of the server would be waited for.
    os._exit(code)
