"""Alarms: cluster-wide flags that make some requests fail in the same way on every member.

An alarm is (member, type), kept in etcd's `alarm` table as an AlarmMember key with no value.
NOSPACE refuses what grows the store; CORRUPT refuses nearly everything that goes through the log.
"""

from kvstore.backend import Backend, Table, scan_all
from kvstore.wire.gen import rpc_pb2 as pb

Alarm = tuple[int, int]  # (member id, pb.AlarmType)


def _row_key(alarm: Alarm) -> bytes:
    return pb.AlarmMember(memberID=alarm[0], alarm=alarm[1]).SerializeToString()  # type: ignore[arg-type]


class Alarms:
    """The raised alarms, in the order of (type, member)."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._raised: set[Alarm] = set()
        self.no_space = False
        self.corrupt = False

    def restore(self) -> None:
        """Read the raised alarms from the backend, again if it was replaced."""
        self._raised = set()
        for key, _ in scan_all(self._backend, Table.ALARM):
            row = pb.AlarmMember.FromString(key)
            self._raised.add((row.memberID, row.alarm))
        self._refresh()

    def raised(self, kind: int = pb.AlarmType.NONE) -> list[Alarm]:
        """Return the raised alarms of one type, or all for NONE."""
        wanted = [alarm for alarm in self._raised if kind in (pb.AlarmType.NONE, alarm[1])]
        return sorted(wanted, key=lambda alarm: (alarm[1], alarm[0]))

    def is_raised(self, alarm: Alarm) -> bool:
        """Return whether one member's alarm of one type is raised."""
        return alarm in self._raised

    def activate(self, alarm: Alarm) -> None:
        """Raise an alarm; raising it again changes nothing."""
        if alarm not in self._raised:
            self._raised.add(alarm)
            self._backend.put(Table.ALARM, _row_key(alarm), b"")
            self._refresh()

    def deactivate(self, alarm: Alarm) -> bool:
        """Clear an alarm; return whether it was raised."""
        if alarm not in self._raised:
            return False
        self._raised.remove(alarm)
        self._backend.delete(Table.ALARM, _row_key(alarm))
        self._refresh()
        return True

    def _refresh(self) -> None:
        kinds = {kind for _, kind in self._raised}
        self.no_space = pb.AlarmType.NOSPACE in kinds
        self.corrupt = pb.AlarmType.CORRUPT in kinds
