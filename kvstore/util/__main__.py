"""`python -m kvstore.util`: the command kvstore-util."""

import sys

from kvstore.util.process import run

if __name__ == "__main__":
    sys.exit(run())
