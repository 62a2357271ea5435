from kvstore.batch import ErrandKind, ErrandResult, Outbox
from kvstore.node.offloaded import ERRANDS_MAX, ErrandDesk


def test_results_come_back_to_who_asked() -> None:
    desk, out = ErrandDesk(), Outbox()
    seen: list[tuple[str, bytes]] = []
    desk.ask(ErrandKind.GET_PEER, (b"1", b"/a", b""), lambda r, _: seen.append(("a", r.body)))
    desk.ask(ErrandKind.GET_PEER, (b"2", b"/b", b""), lambda r, _: seen.append(("b", r.body)))
    desk.take(out)
    first, second = out.errands
    assert (first.args, second.args) == ((b"1", b"/a", b""), (b"2", b"/b", b""))
    desk.deliver([ErrandResult(second.id, "", b"2"), ErrandResult(first.id, "", b"1")], out)
    desk.deliver([ErrandResult(first.id, "", b"again")], out)
    assert seen == [("b", b"2"), ("a", b"1")]
    again = Outbox()
    desk.take(again)
    assert again.errands == []


def test_an_errand_above_the_limit_is_answered_with_an_error() -> None:
    desk, out = ErrandDesk(), Outbox()
    errors: list[str] = []
    for _ in range(ERRANDS_MAX + 1):
        desk.ask(ErrandKind.GET_PEER, (), lambda result, _: errors.append(result.error))
    desk.take(out)
    assert len(out.errands) == ERRANDS_MAX
    desk.deliver([], out)
    assert errors == [f"{ERRANDS_MAX} errands are on their way already"]
