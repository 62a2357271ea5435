"""What may be written after each command.

    words = command_words("fork")
    words.flags, words.actions, words.names

The flags are those of the commands' own tables; those without an effect are not offered.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from kvstack.agents.dns.flags import TABLE as DNS
from kvstack.agents.kubelet import command as kubelet
from kvstack.agents.kubelet.cni.command import TABLE as CNI
from kvstack.agents.kubelet.hollow.flags import TABLE as HOLLOW_NODES
from kvstack.agents.kubelet.routes.plan import MODES
from kvstack.agents.manager.flags import TABLE as CONTROLLER_MANAGER
from kvstack.agents.metrics.flags import TABLE as METRICS
from kvstack.agents.proxy.flags import TABLE as PROXY
from kvstack.agents.scheduler.live.flags import TABLE as SCHEDULER
from kvstack.agents.standalone import envtest, stack_settings
from kvstack.agents.standalone.bindings_command import TABLE as BINDINGS
from kvstack.agents.standalone.in_memory.cluster_time import CLOCKS
from kvstack.agents.standalone.joining import join_command
from kvstack.agents.standalone.joining.token_command import ACTIONS as TOKEN_ACTIONS
from kvstack.agents.standalone.joining.token_command import TABLE as TOKEN
from kvstack.agents.standalone.parts import PARTS
from kvstack.apiserver.server.certs.certs_command import TABLE as CERTS
from kvstack.apiserver.server.settings.flags import TABLE as API_SERVER
from kvstack.cli import COMMANDS
from kvstack.clusters.commands.clock_command import ACTIONS as CLOCK_ACTIONS
from kvstack.clusters.commands.clock_command import TABLE as CLOCK
from kvstack.clusters.commands.delete_command import TABLE as DELETE
from kvstack.clusters.commands.diff_command import TABLE as DIFF
from kvstack.clusters.commands.farm_command import TABLE as FARM
from kvstack.clusters.commands.fork_command import TABLE as FORK
from kvstack.clusters.commands.get_command import TABLE as GET
from kvstack.clusters.commands.open_command import TABLE as OPEN
from kvstack.clusters.commands.pack_command import TABLE as PACK
from kvstack.clusters.commands.plan_command import TABLE as PLAN
from kvstack.clusters.commands.wait_command import TABLE as WAIT
from kvstack.component.flags.flag_table import Effect, FlagTable, Kind
from kvstack.component.line_log.line_logger import LEVELS

SHELLS: Final = ("bash", "zsh", "fish")


class Names(Enum):
    """What stands after a command besides flags and the action."""

    NOTHING = auto()
    FILES = auto()
    FORKS = auto()
    SOURCES = auto()  # forks, contexts and files


class FlagWord(NamedTuple):
    """A flag as shells offer it."""

    name: str
    about: str
    letter: str = ""
    takes_value: bool = True
    values: tuple[str, ...] = ()
    """Those that are known; none: files are offered."""
    is_list: bool = False
    """Whether values may be joined by commas, and the flag be given again."""


class CommandWords(NamedTuple):
    """What may be written after a command."""

    name: str
    about: str
    flags: tuple[FlagWord, ...]
    actions: tuple[str, ...] = ()
    """One of them is the first word, if there are any."""
    names: Names = Names.NOTHING


def command_words(name: str) -> CommandWords:
    """Return what may be written after a command of `COMMANDS`."""
    flags = tuple(_FLAGS[name]())
    if all(flag.name != "help" for flag in flags):
        flags = (*flags, FlagWord("help", "show the flags", "h", takes_value=False))
    actions = _ACTIONS.get(name, ())
    return CommandWords(name, COMMANDS[name].about, flags, actions, _NAMES.get(name, Names.NOTHING))


def all_words() -> list[CommandWords]:
    """Return those of all commands."""
    return [command_words(name) for name in COMMANDS]


_VALUES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("up", "log-level"): tuple(LEVELS),
    ("up", "network"): tuple(MODES),
    ("up", "without"): PARTS,
    ("doctor", "output"): ("text", "json"),
    ("kubelet", "log-level"): tuple(LEVELS),
    ("kubelet", "network"): tuple(MODES),
    ("fork", "without"): PARTS,
    ("open", "without"): PARTS,
    ("fork", "clock"): CLOCKS,
    ("open", "clock"): CLOCKS,
    ("wait", "output"): ("text", "json"),
    ("clock", "output"): ("text", "json"),
    ("get", "output"): ("table", "json"),
    ("plan", "output"): ("table", "json", "yaml", "markdown"),
    ("plan", "fail-on"): ("stuck", "unforeseen", "delete"),
    ("plan", "without"): PARTS,
}
"""What is known of values, by command and flag."""
_ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "token": TOKEN_ACTIONS,
    "cni": ("install",),
    "get": ("forks",),
    "delete": ("fork",),
    "clock": CLOCK_ACTIONS,
    "completion": SHELLS,
}
_NAMES: Final[Mapping[str, Names]] = {
    "envtest": Names.FILES,
    "fork": Names.SOURCES,
    "open": Names.SOURCES,
    "pack": Names.SOURCES,
    "plan": Names.SOURCES,
    "diff": Names.SOURCES,
    "delete": Names.FORKS,
}
_LISTS: Final = (Kind.LIST, Kind.ARRAY, Kind.MAP)
_ALONE: Final = (Kind.BOOL, Kind.VERSION)


def _of_table(command: str, table: FlagTable) -> Callable[[], Iterable[FlagWord]]:
    letters = {name: letter for letter, name in table.short.items()}

    def words() -> Iterable[FlagWord]:
        for flag in table.flags:
            if flag.effect is Effect.LIVE:
                yield FlagWord(
                    flag.name,
                    flag.help,
                    letters.get(flag.name, ""),
                    flag.kind not in _ALONE,
                    _VALUES.get((command, flag.name), ()),
                    flag.kind in _LISTS,
                )

    return words


def _of_meanings(command: str, meanings: Mapping[str, str]) -> Iterable[FlagWord]:
    for name, meaning in meanings.items():
        values = _VALUES.get((command, name), ())
        yield FlagWord(name, meaning, values=values, is_list=bool(values) and values is PARTS)


def _up() -> Iterable[FlagWord]:
    """Yield the flags of `up`, then those of the API server and the store that it passes on."""
    own = stack_settings.own_flags()
    yield from _of_meanings("up", own)
    yield from (word for word in _of_table("up", API_SERVER)() if word.name not in own)
    for flag in stack_settings.store_flags():
        yield FlagWord(flag.name, flag.about, "", not flag.is_bool, flag.choices)


def _doctor() -> Iterable[FlagWord]:
    yield FlagWord("output", "text or json", "o", values=_VALUES["doctor", "output"])
    yield from _up()


_FLAGS: Final[Mapping[str, Callable[[], Iterable[FlagWord]]]] = {
    "up": _up,
    "apiserver": _of_table("apiserver", API_SERVER),
    "controller-manager": _of_table("controller-manager", CONTROLLER_MANAGER),
    "scheduler": _of_table("scheduler", SCHEDULER),
    "kubelet": lambda: _of_meanings("kubelet", kubelet.flag_meanings()),
    "join": lambda: _of_meanings("kubelet", join_command.flag_meanings()),
    "token": _of_table("token", TOKEN),
    "dns": _of_table("dns", DNS),
    "proxy": _of_table("proxy", PROXY),
    "cni": _of_table("cni", CNI),
    "hollow-nodes": _of_table("hollow-nodes", HOLLOW_NODES),
    "metrics": _of_table("metrics", METRICS),
    "certs": _of_table("certs", CERTS),
    "doctor": _doctor,
    "bindings": _of_table("bindings", BINDINGS),
    "fork": _of_table("fork", FORK),
    "open": _of_table("open", OPEN),
    "get": _of_table("get", GET),
    "delete": _of_table("delete", DELETE),
    "diff": _of_table("diff", DIFF),
    "plan": _of_table("plan", PLAN),
    "farm": _of_table("farm", FARM),
    "pack": _of_table("pack", PACK),
    "wait": _of_table("wait", WAIT),
    "clock": _of_table("clock", CLOCK),
    "completion": tuple,
    "envtest": lambda: _of_meanings("envtest", envtest.FLAGS),
}
