"""An applier on a store of its own, and a view of all it did."""

from kvstore.apply.alarms import Alarms
from kvstore.apply.applier import Applier
from kvstore.apply.membership import Membership
from kvstore.apply.quota import Quota
from kvstore.auth.store import AuthStore
from kvstore.auth.tokens import NoTokens
from kvstore.backend import Table
from kvstore.lease.lessor import Lessor
from kvstore.mvcc.store import Store
from kvstore.storage.memory_backend import MemoryBackend
from kvstore.wire.splice import HeaderMaker

SECOND_NS = 10**9
LEASE = 7


class ApplierParts:
    """An applier on a store of its own."""

    def __init__(self, quota_bytes: int) -> None:
        self.backend = MemoryBackend()
        store = Store(self.backend)
        self.lessor = Lessor(self.backend, 1, SECOND_NS)
        self.lessor.restore(store.restore())
        self.alarms = alarms = Alarms(self.backend)
        auth = AuthStore(self.backend, NoTokens())
        auth.restore()
        self.applier = Applier(
            backend=self.backend,
            store=store,
            lessor=self.lessor,
            alarms=alarms,
            membership=Membership(self.backend, learners_max=1),
            quota=Quota(quota_bytes),
            headers=HeaderMaker(1, 2),
            auth=auth,
        )
        self.store = store
        self.applier.begin_batch(3)
        assert isinstance(self.lessor.grant(LEASE, 100, 0), int)

    def view(self) -> object:
        self.store.flush()
        rows = [self.backend.scan(table, b"", None, 1000) for table in Table]
        applier = self.applier
        counts = (applier.txns.range_count, applier.txns.txn_count, applier.over_quota)
        return rows, applier.take_events(), self.lessor.keys(LEASE), counts
