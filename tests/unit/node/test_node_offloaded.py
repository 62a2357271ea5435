from kvstore.batch import Outbox, TaskKind, TaskResult
from kvstore.node.offloaded import TASKS_MAX, OffloadedTasks


def test_results_are_given_to_their_callbacks() -> None:
    offloaded, out = OffloadedTasks(), Outbox()
    seen: list[tuple[str, bytes]] = []
    offloaded.ask(TaskKind.GET_PEER, (b"1", b"/a", b""), lambda r, _: seen.append(("a", r.body)))
    offloaded.ask(TaskKind.GET_PEER, (b"2", b"/b", b""), lambda r, _: seen.append(("b", r.body)))
    offloaded.take(out)
    first, second = out.tasks
    assert (first.args, second.args) == ((b"1", b"/a", b""), (b"2", b"/b", b""))
    offloaded.deliver([TaskResult(second.id, "", b"2"), TaskResult(first.id, "", b"1")], out)
    offloaded.deliver([TaskResult(first.id, "", b"again")], out)
    assert seen == [("b", b"2"), ("a", b"1")]
    again = Outbox()
    offloaded.take(again)
    assert again.tasks == []


def test_a_task_above_the_limit_is_answered_with_an_error() -> None:
    offloaded, out = OffloadedTasks(), Outbox()
    errors: list[str] = []
    for _ in range(TASKS_MAX + 1):
        offloaded.ask(TaskKind.GET_PEER, (), lambda result, _: errors.append(result.error))
    offloaded.take(out)
    assert len(out.tasks) == TASKS_MAX
    offloaded.deliver([], out)
    assert errors == [f"too many tasks are under way, limit {TASKS_MAX}"]
