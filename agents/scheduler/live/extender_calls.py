"""Calls extenders, over HTTP.

    said = await calls.about(pod, cluster, names)     which nodes they take, and how good these are

An extender whose failures do not count is skipped when it fails; all others end the attempt with
an ExtenderError.
"""

import asyncio
import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kvstack.agents.client.over_http import Credentials, OverHttp
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.scheduler import extenders
from kvstack.agents.scheduler.arguments import ConfigurationError
from kvstack.agents.scheduler.extenders import Extender, ExtenderError
from kvstack.agents.scheduler.handle import Candidate
from kvstack.agents.scheduler.scheduling import ExtenderResults
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.component.logger import Logger

_JSON: Final = (("Content-Type", "application/json"),)
_OK: Final = 200


class ExtenderCalls:
    """The extenders of one scheduler."""

    def __init__(self, extenders: Sequence[Extender], logger: Logger) -> None:
        """Connects on the first call; raises ConfigurationError for files that cannot be read."""
        self._transports: Final = [(each, _transport(each)) for each in extenders]
        self._logger = logger

    def decide_about(self, pod: PodInfo) -> bool:
        """Whether an extender filters or scores nodes for a pod."""
        return any(
            each.is_interested(pod) and (each.filter_verb or each.prioritize_verb)
            for each, _ in self._transports
        )

    def preempt_for(self, pod: PodInfo) -> bool:
        """Whether an extender takes part in preemption for a pod."""
        return any(each.preempt_verb and each.is_interested(pod) for each, _ in self._transports)

    def binds(self, pod: PodInfo) -> bool:
        """Whether an extender binds a pod."""
        return any(each.bind_verb and each.is_interested(pod) for each, _ in self._transports)

    async def about(self, pod: PodInfo, cluster: Cluster, names: list[str]) -> ExtenderResults:
        """Call the extenders' filters one after the other, then their scores."""
        results = ExtenderResults(names)
        for each, transport in self._transports:
            if not results.names or not each.filter_verb or not each.is_interested(pod):
                continue
            asked = [name for name in results.names if name in cluster.slots]
            try:
                body = extenders.about_nodes(each, pod, cluster, asked)
                answer = await self._ask(each, transport, each.filter_verb, body)
                filtered = extenders.read_filtered(each, answer, asked)
            except ExtenderError as error:
                self._skip(each, error)
                continue
            results.names = filtered.names
            results.refused |= filtered.refused
        if len(results.names) > 1:
            scores = [
                self._scores(each, transport, pod, cluster, results.names)
                for each, transport in self._transports
                if each.prioritize_verb and each.is_interested(pod)
            ]
            for one in await asyncio.gather(*scores):
                for name, score in one.items():
                    results.scores[name] = results.scores.get(name, 0) + score
        return results

    async def spare(
        self, pod: PodInfo, cluster: Cluster, candidates: list[Candidate]
    ) -> list[Candidate]:
        """Call extenders about victims; return the remaining candidates."""
        for each, transport in self._transports:
            if not candidates or not each.preempt_verb or not each.is_interested(pod):
                continue
            try:
                body = extenders.about_victims(each, pod, cluster, candidates)
                answer = await self._ask(each, transport, each.preempt_verb, body)
                candidates = extenders.read_victims(each, answer, cluster)
            except ExtenderError as error:
                self._skip(each, error)
        return candidates

    async def bind(self, pod: PodInfo, node: str) -> None:
        """Bind a pod by its extender; raises ExtenderError."""
        for each, transport in self._transports:
            if each.bind_verb and each.is_interested(pod):
                body = extenders.about_binding(pod, node)
                answer = await self._ask(each, transport, each.bind_verb, body)
                extenders.check_bound(each, answer)
                return

    async def close(self) -> None:
        """Give up all connections."""
        for _, transport in self._transports:
            await transport.close()

    async def _scores(
        self,
        extender: Extender,
        transport: OverHttp,
        pod: PodInfo,
        cluster: Cluster,
        names: list[str],
    ) -> dict[str, int]:
        """Return what is added to sums; nothing if the extender fails, as upstream has it."""
        asked = [name for name in names if name in cluster.slots]
        try:
            body = extenders.about_nodes(extender, pod, cluster, asked)
            answer = await self._ask(extender, transport, extender.prioritize_verb, body)
            return extenders.read_scores(extender, answer)
        except ExtenderError as error:
            self._logger.warning("an extender's scores are ignored", error=str(error))
            return {}

    def _skip(self, extender: Extender, error: ExtenderError) -> None:
        """Go on without an extender whose failures do not count; raises the error of others."""
        if not extender.is_ignorable:
            raise error
        self._logger.warning("an extender is skipped", url=extender.url, error=str(error))

    async def _ask(
        self, extender: Extender, transport: OverHttp, verb: str, body: dict[str, Any]
    ) -> object:
        url = f"{extender.url.rstrip('/')}/{verb}"
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        try:
            async with asyncio.timeout(extender.timeout_s):
                response = await transport.request(
                    "POST", f"/{verb}", _JSON, content, extender.timeout_s
                )
                try:
                    answer = await response.read()
                finally:
                    response.close()
        except (UnreachableError, TimeoutError) as error:
            reason = "context deadline exceeded" if isinstance(error, TimeoutError) else error
            raise ExtenderError(f'Post "{url}": {reason}') from error
        if response.status != _OK:
            raise ExtenderError(f"failed {verb} with extender at URL {url}, code {response.status}")
        try:
            found: object = json.loads(answer)
        except ValueError as error:
            raise ExtenderError(f"extender at URL {url}: {error}") from error
        return found


def _transport(extender: Extender) -> OverHttp:
    tls = extender.tls
    ca = _file(extender, "ca")
    return OverHttp(
        extender.url,
        Credentials(certificate=_file(extender, "cert"), key=_file(extender, "key")),
        ca=ca,
        # Go's client does not verify certificates without a CA here.
        insecure=bool(tls.get("insecure")) or (extender.is_https and not ca),
        server_name=tls.get("serverName") or "",
    )


def _file(extender: Extender, what: str) -> bytes:
    """Return caData or the content of caFile, and so on; empty if neither is given."""
    if inline := extender.tls.get(f"{what}Data"):
        return base64.b64decode(inline)
    path = extender.tls.get(f"{what}File")
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"extender {extender.url}: tlsConfig.{what}File: {error}"
        ) from error
