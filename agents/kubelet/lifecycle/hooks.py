"""Hooks of containers: postStart right after the start, preStop before the end.

    text = await run_hook(runtime, handler, container, found, host)     empty: it went well

A request succeeds by any answer; a command by its exit code; sleep always.
"""

import asyncio
from typing import Final

from kvstack.agents.kubelet.lifecycle import actions
from kvstack.agents.kubelet.runtime.runtime import Container, Runtime
from kvstack.apimachinery.objects.json_object import Object

_REQUEST_S: Final = 3600.0
_ANSWERED: Final = "HTTP probe failed with statuscode"


async def run_hook(
    runtime: Runtime, handler: Object, container: Object, found: Container, host: str
) -> str:
    """Run a hook to its end; return its error; host: the address of the pod."""
    if "exec" in handler:
        command = handler["exec"].get("command") or []
        outcome = await actions.run_command(runtime, found, command, None)
    elif "httpGet" in handler:
        get = handler["httpGet"]
        outcome = await actions.request(container, get, host, _REQUEST_S, actions.HOOK_AGENT)
        if outcome.text.startswith(_ANSWERED):
            return ""
    else:
        await asyncio.sleep((handler.get("sleep") or {}).get("seconds", 0))
        return ""
    return "" if outcome.is_good else outcome.text or "failed"
