"""What requests share: nothing passes before admission is there."""

import pytest

from tests.apiserver.support.sites import site
from tests.apiserver.support.virtual_time import run


def test_nothing_is_written_before_admission_is_set() -> None:
    """A write fails, and stores nothing; it does not go past the plugins."""
    path = "/api/v1/namespaces/a/configmaps"

    async def main() -> None:
        async with site() as api:
            admission = api.env.admission
            del api.env.admission
            with pytest.raises(AttributeError):
                await api.ask("POST", path, {"metadata": {"name": "x"}})
            api.env.admission = admission
            assert (await api.ask("GET", f"{path}/x")).status == 404

    run(main())
