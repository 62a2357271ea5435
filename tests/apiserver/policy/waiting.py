"""Plain values and awaitables alike."""

import asyncio
import inspect
from collections.abc import Awaitable
from typing import TypeVar, overload

T = TypeVar("T")


@overload
def result(found: Awaitable[T]) -> T: ...
@overload
def result(found: T) -> T: ...
def result(found: T | Awaitable[T]) -> T:
    """Return a value, waited for if it has to be."""
    if not inspect.isawaitable(found):
        return found

    async def wait() -> T:
        return await found

    return asyncio.run(wait())
