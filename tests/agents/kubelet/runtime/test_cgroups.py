"""Control groups of both versions, in trees that are made up."""

from pathlib import Path

import pytest

from kvstack.agents.kubelet.runtime.cgroups import Cgroups
from kvstack.agents.kubelet.runtime.runtime import Counts, Limits

GROUP = "kubepods/burstable/podu/c-0"
LIMITS = Limits(512, 50_000, 64 << 20, processes=100, kills_all=True)


def tree_2(root: Path, controllers: str = "cpuset cpu io memory pids") -> Cgroups:
    """Make what the kernel has of version 2 before anybody uses it."""
    for place in (root, root / "kubepods"):
        place.mkdir(exist_ok=True)
        (place / "cgroup.controllers").write_text(f"{controllers}\n")
    return Cgroups(root)


def tree_1(root: Path) -> Cgroups:
    for name in ("cpu", "cpuacct", "memory", "pids"):
        (root / name / "kubepods").mkdir(parents=True)
        (root / name / "kubepods" / "cgroup.procs").touch()
    return Cgroups(root)


def contents(root: Path, *names: str) -> list[str]:
    return [(root / name).read_text() for name in names]


def test_version_2(tmp_path: Path) -> None:
    groups = tree_2(tmp_path)
    assert groups.version == 2
    groups.probe("kubepods")
    assert groups.is_usable
    assert groups.make(GROUP, LIMITS) == [str(tmp_path / GROUP / "cgroup.procs")]
    for above in (".", "kubepods", "kubepods/burstable", "kubepods/burstable/podu"):
        control = tmp_path / above / "cgroup.subtree_control"
        assert control.read_text() == "+io"  # written last, and for itself
    # A group with processes gives nothing on to groups below it.
    assert not (tmp_path / GROUP / "cgroup.subtree_control").exists()
    names = ("cpu.weight", "cpu.max", "memory.max", "memory.oom.group", "pids.max")
    found = contents(tmp_path / GROUP, *names)
    assert found == ["20", "50000 100000", str(64 << 20), "1", "100"]


def test_version_2_without_limits(tmp_path: Path) -> None:
    groups = tree_2(tmp_path)
    groups.make(GROUP, Limits())
    names = ("cpu.weight", "cpu.max", "memory.max", "pids.max")
    assert contents(tmp_path / GROUP, *names) == ["1", "max 100000", "max", "max"]


def test_version_2_that_lacks_a_controller(tmp_path: Path) -> None:
    groups = tree_2(tmp_path, "cpu memory")
    groups.probe("kubepods")
    assert not groups.is_usable


def test_what_a_group_of_version_2_uses(tmp_path: Path) -> None:
    groups = tree_2(tmp_path)
    groups.make(GROUP, Limits())
    place = tmp_path / GROUP
    (place / "cpu.stat").write_text("usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n")
    (place / "memory.current").write_text("4096\n")
    stat = "anon 1024\nfile 3072\ninactive_file 2048\npgfault 7\npgmajfault 1\n"
    (place / "memory.stat").write_text(stat)
    (place / "cgroup.procs").write_text("11\n12\n")
    unknown = Counts(cache_bytes=3072)
    assert groups.usage(GROUP) == (1_500_000, 4096, 2048, 1024, 7, 1, 2, unknown)
    cpu = "usage_usec 1500\nnr_periods 9\nnr_throttled 4\nthrottled_usec 250\n"
    for name, text in (
        ("cpu.stat", cpu),
        ("memory.peak", "8192\n"),
        ("memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 0\n"),
        ("memory.swap.current", "512\n"),
        ("io.stat", "8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=1 wbytes=2 rios=1\n"),
    ):
        (place / name).write_text(text)
    used = groups.usage(GROUP)
    assert used is not None
    assert used.counts == Counts(9, 4, 250_000, 8192, 3072, 3, 0, 512, 11, 22)
    assert groups.usage("kubepods/other") is None
    assert not groups.out_of_memory(GROUP)
    (place / "memory.events").write_text("low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n")
    assert groups.out_of_memory(GROUP)


def test_version_1(tmp_path: Path) -> None:
    groups = tree_1(tmp_path)
    assert groups.version == 1
    groups.probe("kubepods")
    assert groups.is_usable
    files = groups.make(GROUP, LIMITS)
    names = ("memory", "cpu", "cpuacct", "pids")
    assert files == [str(tmp_path / name / GROUP / "cgroup.procs") for name in names]
    cpu, memory = tmp_path / "cpu" / GROUP, tmp_path / "memory" / GROUP
    assert contents(cpu, "cpu.shares", "cpu.cfs_quota_us") == ["512", "50000"]
    assert contents(memory, "memory.limit_in_bytes") == [str(64 << 20)]
    assert contents(tmp_path / "pids" / GROUP, "pids.max") == ["100"]


def test_what_a_group_of_version_1_uses(tmp_path: Path) -> None:
    groups = tree_1(tmp_path)
    groups.make(GROUP, Limits())
    for name, text in (
        ("cpuacct/cpuacct.usage", "1500\n"),
        ("memory/memory.usage_in_bytes", "4096\n"),
        (
            "memory/memory.stat",
            "total_cache 3072\ntotal_rss 1024\ntotal_swap 512\n"
            "total_inactive_file 2048\ntotal_pgfault 7\ntotal_pgmajfault 1\n",
        ),
        ("cpu/cgroup.procs", ""),
        ("memory/cgroup.procs", "11\n12\n"),
    ):
        controller, _, file = name.partition("/")
        (tmp_path / controller / GROUP / file).write_text(text)
    unknown = Counts(cache_bytes=3072, swap_bytes=512)
    assert groups.usage(GROUP) == (1500, 4096, 2048, 1024, 7, 1, 2, unknown)
    (tmp_path / "blkio" / GROUP).mkdir(parents=True)
    io = "8:0 Read 10\n8:0 Write 20\n8:0 Sync 30\n8:16 Read 1\n8:16 Write 2\nTotal 33\n"
    for name, text in (
        ("cpu/cpu.stat", "nr_periods 9\nnr_throttled 4\nthrottled_time 250\n"),
        ("memory/memory.max_usage_in_bytes", "8192\n"),
        ("memory/memory.failcnt", "3\n"),
        ("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        ("blkio/blkio.throttle.io_service_bytes", io),
    ):
        controller, _, file = name.partition("/")
        (tmp_path / controller / GROUP / file).write_text(text)
    used = groups.usage(GROUP)
    assert used is not None
    assert used.counts == Counts(9, 4, 250, 8192, 3072, 3, 2, 512, 11, 22)


@pytest.mark.parametrize("make", [tree_1, tree_2])
def test_groups_that_are_removed(make: type[Cgroups], tmp_path: Path) -> None:
    groups = make(tmp_path)
    groups.probe("kubepods")
    for name in ("burstable/podu/c-0", "burstable/podu/c-1"):
        for directory in groups._directories(f"kubepods/{name}"):
            directory.mkdir(parents=True)
    groups.remove("kubepods/burstable/podu")
    assert not list(tmp_path.glob("**/podu"))


def test_only_containers_end_as_a_whole(tmp_path: Path) -> None:
    groups = tree_2(tmp_path)
    groups.make("kubepods/burstable/podu", Limits(memory_bytes=64 << 20))
    assert not (tmp_path / "kubepods/burstable/podu/memory.oom.group").exists()


@pytest.mark.parametrize(
    ("make", "path", "value"),
    [
        (tree_2, f"{GROUP}/memory.swap.max", "0"),
        (tree_1, f"memory/{GROUP}/memory.memsw.limit_in_bytes", str(64 << 20)),
    ],
)
def test_nothing_is_swapped(make: type[Cgroups], path: str, value: str, tmp_path: Path) -> None:
    groups = make(tmp_path)
    groups.make(GROUP, LIMITS)
    assert not (tmp_path / path).exists()  # a kernel that does not count it has no such file
    (tmp_path / path).touch()
    groups.make(GROUP, LIMITS)
    assert (tmp_path / path).read_text() == value


@pytest.mark.parametrize(
    ("make", "path", "least", "sum_of_both"),
    [(tree_2, "{}/cpu.weight", "1", "58"), (tree_1, "cpu/{}/cpu.shares", "2", "1536")],
)
def test_classes_have_the_parts_of_their_pods(
    make: type[Cgroups], path: str, least: str, sum_of_both: str, tmp_path: Path
) -> None:
    groups = make(tmp_path)
    groups.probe("kubepods")
    groups.weigh_classes("kubepods")  # there is none yet
    for uid, shares in (("u", 512), ("v", 1024)):
        groups.make(f"kubepods/burstable/pod{uid}", Limits(shares))
    groups.make("kubepods/besteffort/podw", Limits())
    groups.weigh_classes("kubepods")
    burstable = tmp_path / path.format("kubepods/burstable")
    assert burstable.read_text() == sum_of_both
    assert (tmp_path / path.format("kubepods/besteffort")).read_text() == least
    for each in groups._directories("kubepods/burstable/podv"):
        for file in each.iterdir():
            file.unlink()
    groups.remove("kubepods/burstable/podv")
    groups.weigh_classes("kubepods")
    assert int(burstable.read_text()) < int(sum_of_both)


@pytest.mark.parametrize(
    ("make", "path"),
    [(tree_2, "kubepods/memory.max"), (tree_1, "memory/kubepods/memory.limit_in_bytes")],
)
def test_all_pods_together_are_limited(make: type[Cgroups], path: str, tmp_path: Path) -> None:
    groups = make(tmp_path)
    groups.probe("kubepods")
    groups.limit("kubepods", Limits(2048, memory_bytes=1 << 30))
    assert (tmp_path / path).read_text() == str(1 << 30)
