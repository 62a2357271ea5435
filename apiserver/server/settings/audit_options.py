"""Audit settings of the flags."""

from dataclasses import dataclass, field
from typing import Final

from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.audit.batches import Batching
from kvstack.apiserver.policy.audit.log_file import Rotation
from kvstack.apiserver.policy.audit.sinks import FORMATS
from kvstack.apiserver.policy.audit.sinks import JSON as JSON_LINES
from kvstack.component.flags.flag_reader import FlagReader

AUDIT_MODES: Final = ("batch", "blocking", "blocking-strict")


@dataclass(frozen=True, slots=True)
class AuditSinkOptions:
    """Settings of one audit back end."""

    target: str = ""
    """A file: the log, or the webhook's kubeconfig. Empty: disabled."""
    mode: str = "blocking"
    batching: Batching = field(default_factory=Batching)
    truncates: bool = False
    event_max: int = 102_400
    batch_max: int = 10_485_760


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What is audited, and by which back ends."""

    policy_file: str = ""
    log: AuditSinkOptions = field(default_factory=AuditSinkOptions)
    format: str = JSON_LINES
    rotation: Rotation = field(default_factory=Rotation)
    webhook: AuditSinkOptions = field(default_factory=AuditSinkOptions)
    backoff_s: float = 10.0


def audit_options(reader: FlagReader) -> AuditOptions:
    """Return the settings of the flags; errors are added to the reader's faults."""
    format_ = reader.text("audit-log-format")
    if format_ not in FORMATS:
        formats = ",".join(FORMATS)
        reader.wrong.append(
            f"invalid audit log format {format_}, allowed formats are {quote(formats)}"
        )
    rotation = Rotation(
        reader.int("audit-log-maxsize"),
        reader.int("audit-log-maxbackup"),
        reader.int("audit-log-maxage"),
        reader.flag("audit-log-compress"),
    )
    for name, value in (
        ("maxage", rotation.days),
        ("maxbackup", rotation.backups),
        ("maxsize", rotation.megabytes),
    ):
        if value < 0:
            reader.wrong.append(f"--audit-log-{name} {value} can't be a negative number")
    return AuditOptions(
        reader.text("audit-policy-file"),
        _audit_sink(reader, "log", "audit-log-path"),
        format_,
        rotation,
        _audit_sink(reader, "webhook", "audit-webhook-config-file"),
        reader.seconds("audit-webhook-initial-backoff"),
    )


def _audit_sink(reader: FlagReader, kind: str, target: str) -> AuditSinkOptions:
    flag = f"audit-{kind}"
    batching = Batching(
        reader.int(f"{flag}-batch-buffer-size"),
        reader.int(f"{flag}-batch-max-size"),
        reader.seconds(f"{flag}-batch-max-wait"),
        reader.flag(f"{flag}-batch-throttle-enable"),
        reader.float(f"{flag}-batch-throttle-qps"),
        reader.int(f"{flag}-batch-throttle-burst"),
    )
    options = AuditSinkOptions(
        reader.text(target),
        reader.text(f"{flag}-mode"),
        batching,
        reader.flag(f"{flag}-truncate-enabled"),
        reader.int(f"{flag}-truncate-max-event-size"),
        reader.int(f"{flag}-truncate-max-batch-size"),
    )
    version = reader.text(f"{flag}-version")
    if version != "audit.k8s.io/v1":
        reader.wrong.append('invalid group version, allowed versions are ["audit.k8s.io/v1"]')
    if options.target:
        reader.wrong += _faults_of(kind, options)
    return options


def _faults_of(kind: str, sink: AuditSinkOptions) -> list[str]:
    wrong: list[str] = []
    if sink.mode not in AUDIT_MODES:
        modes = quote(",".join(AUDIT_MODES))
        wrong.append(f"invalid audit {kind} mode {sink.mode}, allowed modes are {modes}")
    if sink.mode == "batch":
        batching = sink.batching
        checked: list[tuple[str, float]] = [
            ("buffer size", batching.buffer),
            ("max batch size", batching.size),
        ]
        if batching.throttles:
            checked += [("throttle QPS", batching.qps), ("throttle burst", batching.burst)]
        wrong += [
            f"invalid audit batch {kind} {name} {value}, must be a positive number"
            for name, value in checked
            if value <= 0
        ]
    if sink.truncates and sink.event_max <= 0:
        wrong.append(
            f"invalid audit truncate {kind} max event size {sink.event_max}, must be a positive"
            " number"
        )
    if sink.truncates and sink.batch_max < sink.event_max:
        wrong.append(
            f"invalid audit truncate {kind} max batch size {sink.batch_max}, must be greater than"
            f" max event size ({sink.event_max})"
        )
    return wrong
