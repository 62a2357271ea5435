from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EntryType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EntryNormal: _ClassVar[EntryType]
    EntryConfChange: _ClassVar[EntryType]
    EntryConfChangeV2: _ClassVar[EntryType]

class MessageType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MsgHup: _ClassVar[MessageType]
    MsgBeat: _ClassVar[MessageType]
    MsgProp: _ClassVar[MessageType]
    MsgApp: _ClassVar[MessageType]
    MsgAppResp: _ClassVar[MessageType]
    MsgVote: _ClassVar[MessageType]
    MsgVoteResp: _ClassVar[MessageType]
    MsgSnap: _ClassVar[MessageType]
    MsgHeartbeat: _ClassVar[MessageType]
    MsgHeartbeatResp: _ClassVar[MessageType]
    MsgUnreachable: _ClassVar[MessageType]
    MsgSnapStatus: _ClassVar[MessageType]
    MsgCheckQuorum: _ClassVar[MessageType]
    MsgTransferLeader: _ClassVar[MessageType]
    MsgTimeoutNow: _ClassVar[MessageType]
    MsgReadIndex: _ClassVar[MessageType]
    MsgReadIndexResp: _ClassVar[MessageType]
    MsgPreVote: _ClassVar[MessageType]
    MsgPreVoteResp: _ClassVar[MessageType]
    MsgStorageAppend: _ClassVar[MessageType]
    MsgStorageAppendResp: _ClassVar[MessageType]
    MsgStorageApply: _ClassVar[MessageType]
    MsgStorageApplyResp: _ClassVar[MessageType]
    MsgForgetLeader: _ClassVar[MessageType]

class ConfChangeTransition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ConfChangeTransitionAuto: _ClassVar[ConfChangeTransition]
    ConfChangeTransitionJointImplicit: _ClassVar[ConfChangeTransition]
    ConfChangeTransitionJointExplicit: _ClassVar[ConfChangeTransition]

class ConfChangeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ConfChangeAddNode: _ClassVar[ConfChangeType]
    ConfChangeRemoveNode: _ClassVar[ConfChangeType]
    ConfChangeUpdateNode: _ClassVar[ConfChangeType]
    ConfChangeAddLearnerNode: _ClassVar[ConfChangeType]
EntryNormal: EntryType
EntryConfChange: EntryType
EntryConfChangeV2: EntryType
MsgHup: MessageType
MsgBeat: MessageType
MsgProp: MessageType
MsgApp: MessageType
MsgAppResp: MessageType
MsgVote: MessageType
MsgVoteResp: MessageType
MsgSnap: MessageType
MsgHeartbeat: MessageType
MsgHeartbeatResp: MessageType
MsgUnreachable: MessageType
MsgSnapStatus: MessageType
MsgCheckQuorum: MessageType
MsgTransferLeader: MessageType
MsgTimeoutNow: MessageType
MsgReadIndex: MessageType
MsgReadIndexResp: MessageType
MsgPreVote: MessageType
MsgPreVoteResp: MessageType
MsgStorageAppend: MessageType
MsgStorageAppendResp: MessageType
MsgStorageApply: MessageType
MsgStorageApplyResp: MessageType
MsgForgetLeader: MessageType
ConfChangeTransitionAuto: ConfChangeTransition
ConfChangeTransitionJointImplicit: ConfChangeTransition
ConfChangeTransitionJointExplicit: ConfChangeTransition
ConfChangeAddNode: ConfChangeType
ConfChangeRemoveNode: ConfChangeType
ConfChangeUpdateNode: ConfChangeType
ConfChangeAddLearnerNode: ConfChangeType

class Entry(_message.Message):
    __slots__ = ("Type", "Term", "Index", "Data")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    Type: EntryType
    Term: int
    Index: int
    Data: bytes
    def __init__(self, Type: _Optional[_Union[EntryType, str]] = ..., Term: _Optional[int] = ..., Index: _Optional[int] = ..., Data: _Optional[bytes] = ...) -> None: ...

class SnapshotMetadata(_message.Message):
    __slots__ = ("conf_state", "index", "term")
    CONF_STATE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    conf_state: ConfState
    index: int
    term: int
    def __init__(self, conf_state: _Optional[_Union[ConfState, _Mapping]] = ..., index: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("data", "metadata")
    DATA_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    metadata: SnapshotMetadata
    def __init__(self, data: _Optional[bytes] = ..., metadata: _Optional[_Union[SnapshotMetadata, _Mapping]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("type", "to", "term", "logTerm", "index", "entries", "commit", "snapshot", "reject", "rejectHint", "context", "vote", "responses")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LOGTERM_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    REJECT_FIELD_NUMBER: _ClassVar[int]
    REJECTHINT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    VOTE_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    type: MessageType
    to: int
    term: int
    logTerm: int
    index: int
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    commit: int
    snapshot: Snapshot
    reject: bool
    rejectHint: int
    context: bytes
    vote: int
    responses: _containers.RepeatedCompositeFieldContainer[Message]
    def __init__(self, type: _Optional[_Union[MessageType, str]] = ..., to: _Optional[int] = ..., term: _Optional[int] = ..., logTerm: _Optional[int] = ..., index: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., commit: _Optional[int] = ..., snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., reject: _Optional[bool] = ..., rejectHint: _Optional[int] = ..., context: _Optional[bytes] = ..., vote: _Optional[int] = ..., responses: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., **kwargs) -> None: ...

class HardState(_message.Message):
    __slots__ = ("term", "vote", "commit")
    TERM_FIELD_NUMBER: _ClassVar[int]
    VOTE_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    term: int
    vote: int
    commit: int
    def __init__(self, term: _Optional[int] = ..., vote: _Optional[int] = ..., commit: _Optional[int] = ...) -> None: ...

class ConfState(_message.Message):
    __slots__ = ("voters", "learners", "voters_outgoing", "learners_next", "auto_leave")
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    LEARNERS_FIELD_NUMBER: _ClassVar[int]
    VOTERS_OUTGOING_FIELD_NUMBER: _ClassVar[int]
    LEARNERS_NEXT_FIELD_NUMBER: _ClassVar[int]
    AUTO_LEAVE_FIELD_NUMBER: _ClassVar[int]
    voters: _containers.RepeatedScalarFieldContainer[int]
    learners: _containers.RepeatedScalarFieldContainer[int]
    voters_outgoing: _containers.RepeatedScalarFieldContainer[int]
    learners_next: _containers.RepeatedScalarFieldContainer[int]
    auto_leave: bool
    def __init__(self, voters: _Optional[_Iterable[int]] = ..., learners: _Optional[_Iterable[int]] = ..., voters_outgoing: _Optional[_Iterable[int]] = ..., learners_next: _Optional[_Iterable[int]] = ..., auto_leave: _Optional[bool] = ...) -> None: ...

class ConfChange(_message.Message):
    __slots__ = ("id", "type", "node_id", "context")
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    id: int
    type: ConfChangeType
    node_id: int
    context: bytes
    def __init__(self, id: _Optional[int] = ..., type: _Optional[_Union[ConfChangeType, str]] = ..., node_id: _Optional[int] = ..., context: _Optional[bytes] = ...) -> None: ...

class ConfChangeSingle(_message.Message):
    __slots__ = ("type", "node_id")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    type: ConfChangeType
    node_id: int
    def __init__(self, type: _Optional[_Union[ConfChangeType, str]] = ..., node_id: _Optional[int] = ...) -> None: ...

class ConfChangeV2(_message.Message):
    __slots__ = ("transition", "changes", "context")
    TRANSITION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    transition: ConfChangeTransition
    changes: _containers.RepeatedCompositeFieldContainer[ConfChangeSingle]
    context: bytes
    def __init__(self, transition: _Optional[_Union[ConfChangeTransition, str]] = ..., changes: _Optional[_Iterable[_Union[ConfChangeSingle, _Mapping]]] = ..., context: _Optional[bytes] = ...) -> None: ...
