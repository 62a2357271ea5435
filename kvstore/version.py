"""The version of kvstack: the only place where it is written. The build reads it from here."""

from typing import Final

VERSION: Final = "0.2.0"
