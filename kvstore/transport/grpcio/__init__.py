"""The portable transport, over grpcio: the server of the client port, and dialling other servers.

`grpc` is imported from here, because the verbosity of its C core is read from the environment when
it is loaded.
"""

import os
from typing import Final

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its C core writes plain text to stderr

import grpc as grpc
import grpc.aio as _aio  # noqa: F401 - grpc.aio is an attribute of grpc from here on

INT32_MAX: Final = 2**31 - 1  # the largest number grpcio takes as an option
