"""Config files, variables and arguments that nobody means: settings or a clear refusal, at once."""

import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstack.component.errors import ConfigError
from kvstore.config.flags import FLAGS
from kvstore.config.model import Config
from kvstore.config.parse import configure
from kvstore.config.sources import FILE_BYTES_MAX, SourceSettings, read_command_line

ERROR_CHARS_MAX = 12_000
NAMES = [flag.name for flag in FLAGS]
ODD = st.sampled_from(
    ["", " ", "0", "-1", "1e9", "∞", "\x00", "\ud800", "true", "yes", "NaN", "5s", "-5s",
     "9" * 5000, "http://127.0.0.1:1", "http://a:99999", "http://[::1]:1", "unix://", "a=b", "a=http://b:1,",
     ",", "{", "[]", "%s%n", "../../x", "TLS1.4", "jwt,sign-method=none", "LeaseCheckpoint=maybe"]
)  # fmt: skip
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | ODD
    | st.dates() | st.binary(max_size=4)
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3)
    ),
    max_leaves=5,
)
KEYS = (
    st.sampled_from([*NAMES, "client-transport-security", "peer-transport-security"])
    | st.sampled_from(["socket-options", "discovery-config", "cert-file", "client"])
    | st.text(max_size=6)
)


def outcome(content: bytes) -> str:
    """Configure from a file; return what is wrong with it, or nothing."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(content)
        return configured(SourceSettings({"config-file": file.name}), {})


def configured(given: SourceSettings, environment: dict[str, str]) -> str:
    try:
        config = configure(given, environment)
    except ConfigError as error:
        said = str(error)
    else:
        assert isinstance(config, Config)
        return ""
    assert 0 < len(said) < ERROR_CHARS_MAX
    return said


@settings(max_examples=300)
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_values_of_any_kind(tree: dict[str, object]) -> None:
    try:
        content = yaml.dump(tree).encode("utf-8", "surrogatepass")
    except yaml.YAMLError:
        return
    outcome(content)


@settings(max_examples=150)
@given(st.binary(max_size=60) | st.text("-:{}[]&*!|>'\"#%,? \nab0", max_size=60).map(str.encode))
def test_bytes_of_any_kind(content: bytes) -> None:
    outcome(content)


BOMB = b"a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 9)
)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"[" * 2000, "nested too deep"),
        (b"a: " + b"{a: " * 2000, "nested too deep"),
        (b"snapshot-count: " + b"9" * 5000, "is not YAML"),
        (b"name: 2001-99-99", "is not YAML"),
        (b"name: !!python/object:os.system ls", "is not YAML"),
        (b"name: \xff\xfe", "is not YAML"),
        (BOMB + b"snapshot-count: *a8\n", "must be a whole number"),
        (BOMB + b"cors: *a8\n", "must be a text"),
        (BOMB + b"cipher-suites: *a8\n", "must be a text"),
        (b"a: &a [*a]\nsnapshot-count: *a\n", "must be a whole number"),
        (b"name: a\n---\nname: b\n", "is not YAML"),
        (b'name: "\\ud800"', "--name '\\ud800' is not UTF-8"),
        (b"x" * (FILE_BYTES_MAX + 1), "is larger than"),
        (b"client-transport-security: []", "must be a mapping"),
    ],
    ids=range(14),
)
def test_what_would_never_end(content: bytes, why: str) -> None:
    assert why in outcome(content)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(NAMES), ODD | st.text(max_size=10)), max_size=4))
def test_arguments_and_variables(pairs: list[tuple[str, str]]) -> None:
    try:
        given_flags = read_command_line([f"--{name}={text}" for name, text in pairs[::2]])
    except ConfigError:
        given_flags = SourceSettings()
    given_flags.values.pop("config-file", None)
    names = (name for name, _ in pairs[1::2] if name != "config-file")
    variables = {f"ETCD_{name.upper().replace('-', '_')}": text
                 for name, (_, text) in zip(names, pairs[1::2], strict=False)}  # fmt: skip
    configured(given_flags, variables)
