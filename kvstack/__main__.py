"""`python -m kvstack` is the `kvstack` command."""

import sys

from kvstack.cli import main

sys.exit(main())
