"""Names for the plain numbers that are used in every package.

Revision ≠ version ≠ index: a *revision* counts changes of the store (main, and sub within one
change), a *version* counts changes of one key since its creation, an *index* is a position in the
raft log. A *member* is one process of the cluster; its id is an unsigned 64-bit number.
"""

from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from kvstack.component.version import ETCD_VERSION

if TYPE_CHECKING:
    from typing_extensions import override as override
else:
    _Method = TypeVar("_Method")

    def override(method: _Method) -> _Method:
        """Mark a method that overrides another: typing.override of Python 3.12.

        Only type checkers look at it. Loading typing_extensions for it costs a process 7 ms.
        """
        return method


MemberId: TypeAlias = int
ClusterId: TypeAlias = int
LeaseId: TypeAlias = int
MainRevision: TypeAlias = int

SERVER_VERSION: Final = ETCD_VERSION  # that this server implements
CLUSTER_VERSION: Final = "3.7.0"  # major.minor.0, as the log and the database file carry it
MIN_CLUSTER_VERSION: Final = "3.0.0"

NO_LEASE: Final[LeaseId] = 0
