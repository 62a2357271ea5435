"""What `kvstack token create --print-join-command` reads of a cluster that has just started."""

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from kvstack.agents.standalone.joining import token_command
from kvstack.apimachinery.objects.status import generic
from kvstack.component.errors import ConfigError

if TYPE_CHECKING:
    from kvstack.agents.client.api import Api

INFO = {"data": {"kubeconfig": ""}}


class Server:
    """Has cluster-info from a request on."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.requests = 0

    async def get(self, *_: object) -> dict[str, Any]:
        self.requests += 1
        if self.requests < self.first:
            raise generic(404)
        return INFO


def test_cluster_info_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_command, "_LOOK_S", 0.0)
    server = Server(3)
    assert asyncio.run(token_command.cluster_info(cast("Api", server))) == INFO
    assert server.requests == 3


def test_a_cluster_without_joining_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_command, "_ANNOUNCED_S", 0.0)
    with pytest.raises(ConfigError, match="--without joining"):
        asyncio.run(token_command.cluster_info(cast("Api", Server(1 << 30))))
