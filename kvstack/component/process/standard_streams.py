"""Standard streams whose reader has gone away, such as a closed pipe."""

import os
from typing import TextIO


def discard_output(stream: TextIO) -> None:
    """Redirect a stream to /dev/null, so that the interpreter can flush it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
