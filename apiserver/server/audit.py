"""Auditing as the flags configure it: policy, back ends, and the buffers in front of them.

audit = Audit(options.audit, clock, logger)
audit.auditing          records requests; None: no policy was given
await audit.stop()      once all requests were answered
"""

import os
import sys
from collections.abc import Awaitable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apiserver.http.auditing import Auditing
from kvstack.apiserver.policy.audit.batches import Buffered
from kvstack.apiserver.policy.audit.log_file import LogFile
from kvstack.apiserver.policy.audit.policy import read_policy
from kvstack.apiserver.policy.audit.sinks import Errors, LineSink, Several, Sink, Truncating
from kvstack.apiserver.policy.audit.webhook import Webhook
from kvstack.apiserver.policy.remote.kubeconfig import read_kubeconfig
from kvstack.apiserver.server.settings.audit_options import AuditOptions, AuditSinkOptions
from kvstack.apiserver.server.settings.options import file_bytes
from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger

STANDARD_OUTPUT: Final = "-"
_CHANGES: Final = b"""\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
omitManagedFields: true
rules:
- {level: None, verbs: [get, list, watch]}
- {level: None, resources: [{group: coordination.k8s.io, resources: [leases]}]}
- {level: None, resources: [{group: "", resources: [events]}]}
- {level: None, resources: [{group: events.k8s.io, resources: [events]}]}
- {level: None, nonResourceURLs: ["*"]}
- {level: RequestResponse}
"""


class Lenient:
    """Passes events on and ignores lost ones: they are already counted."""

    def __init__(self, to: Sink) -> None:
        self._to: Final = to

    def process(self, events: Sequence[Object]) -> bool | Awaitable[bool]:
        """Pass events on."""
        found = self._to.process(events)
        return True if isinstance(found, bool) else self._wait(found)

    async def stop(self) -> None:
        """Stop the sink."""
        await self._to.stop()

    async def _wait(self, found: Awaitable[bool]) -> bool:
        await found
        return True


class Audit:
    """Auditing: policy and back ends."""

    def __init__(
        self, options: AuditOptions, clock: Clock, logger: Logger, changes: Sink | None = None
    ) -> None:
        """Read files and open the log; raises ConfigError.

        changes: sink of all requests that change something, in place of the configured audit.
        """
        self._errors: Final = Errors(logger)
        self._sink: Sink | None = None
        self.auditing: Auditing | None = None
        if changes is not None:
            self._sink = changes
            self.auditing = Auditing(read_policy(_CHANGES), changes, self._errors, clock)
            return
        targets = (options.log.target, options.webhook.target)
        if not options.policy_file:
            if any(targets):
                logger.warning("no audit policy: events are not recorded")
            return
        try:
            policy = read_policy(file_bytes(options.policy_file))
            sinks = self._sinks(options, clock)
        except DocumentError as error:
            raise ConfigError(f"auditing cannot start: {error}") from None
        if sinks:
            self._sink = sinks[0] if len(sinks) == 1 else Several(sinks)
        self.auditing = Auditing(policy, self._sink, self._errors, clock)

    async def stop(self) -> None:
        """Send what is buffered, and close everything."""
        if self._sink is not None:
            await self._sink.stop()

    def _sinks(self, options: AuditOptions, clock: Clock) -> list[Sink]:
        sinks: list[Sink] = []
        if options.log.target:
            sinks.append(self._in_front_of(self._log(options, clock), options.log))
        if options.webhook.target:
            path = Path(options.webhook.target)
            target = read_kubeconfig(file_bytes(str(path)), path.parent)
            webhook = Webhook(target, self._errors, options.backoff_s)
            sinks.append(self._in_front_of(webhook, options.webhook, is_parallel=True))
        return sinks

    def _log(self, options: AuditOptions, clock: Clock) -> LineSink:
        path = options.log.target
        if path == STANDARD_OUTPUT:
            write = partial(_write_all, sys.stdout.fileno())
            return LineSink(write, self._errors, options.format)
        try:
            file = LogFile(Path(path), options.rotation, clock.unix_ms)
        except OSError as error:
            raise ConfigError(f"--audit-log-path {path}: {error.strerror}") from None
        return LineSink(file.write, self._errors, options.format, file.close)

    def _in_front_of(
        self, sink: Sink, options: AuditSinkOptions, *, is_parallel: bool = False
    ) -> Sink:
        if options.truncates:
            sink = Truncating(sink, self._errors, options.event_max, options.batch_max)
        if options.mode == "batch":
            return Buffered(sink, self._errors, options.batching, is_parallel=is_parallel)
        return Lenient(sink) if options.mode == "blocking" else sink


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
