"""Work under a lease: until told to stop, or the lease is lost."""

import asyncio
from typing import Any

import pytest

from kvstack.agents.process.leading import LeaseLostError, lead_until


class Election:
    """Leads at once, and loses the lease when told."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.is_released = False

    async def run(self, lead: object) -> None:
        leading = asyncio.ensure_future(lead())  # type: ignore[operator]
        losing = asyncio.ensure_future(self.lost.wait())
        try:
            await asyncio.wait((leading, losing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leading.cancel()
            losing.cancel()
            await asyncio.wait((leading, losing))
            self.is_released = not self.lost.is_set()
        if leading.done() and not leading.cancelled():
            leading.result()


async def forever() -> None:
    await asyncio.Event().wait()


async def failing() -> None:
    raise ValueError("broken")


def test_the_order_to_stop_ends_the_work_and_gives_the_lease_back() -> None:
    async def body() -> None:
        stop, election = asyncio.Event(), Election()
        asyncio.get_running_loop().call_later(0.01, stop.set)
        await lead_until(stop, forever, election)  # type: ignore[arg-type]
        assert election.is_released

    asyncio.run(body())


def test_who_loses_the_lease_must_end() -> None:
    async def body() -> None:
        election = Election()
        asyncio.get_running_loop().call_later(0.01, election.lost.set)
        with pytest.raises(LeaseLostError):
            await lead_until(asyncio.Event(), forever, election)  # type: ignore[arg-type]

    asyncio.run(body())


@pytest.mark.parametrize("make", [Election, lambda: None], ids=["elected", "alone"])
def test_what_the_work_raises_is_raised(make: Any) -> None:
    async def body() -> None:
        election = make()
        with pytest.raises(ValueError, match="broken"):
            await lead_until(asyncio.Event(), failing, election)

    asyncio.run(body())


def test_work_without_a_lease_ends_when_stopped() -> None:
    async def body() -> None:
        stop = asyncio.Event()

        async def until_stopped() -> None:
            await stop.wait()

        asyncio.get_running_loop().call_later(0.01, stop.set)
        await lead_until(stop, until_stopped, None)

    asyncio.run(body())
