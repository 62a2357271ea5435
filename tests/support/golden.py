"""Data-driven tests: a text file of commands, each followed by the output it must print.

A file is a list of blocks. A block is an optional run of `#` comments, one command line, a line
of four dashes, and the expected output, ended by a blank line:

    # Two voters must both have it.
    commit 7 voters=1,2
    ----
    5

A command's words are its arguments; those with a `=` are named. Run pytest with `--rewrite` to put
today's output in place, then read the diff before committing it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

RULE = "----"


@dataclass(slots=True)
class Block:
    """One command of a golden file, with the comments above it and the output below."""

    comments: list[str]
    line: str
    expected: str

    @property
    def command(self) -> str:
        return self.line.split(maxsplit=1)[0]

    @property
    def words(self) -> list[str]:
        return [word for word in self.line.split()[1:] if "=" not in word]

    @property
    def named(self) -> dict[str, str]:
        pairs = (word.split("=", 1) for word in self.line.split()[1:] if "=" in word)
        return dict(pairs)


def parse(text: str) -> list[Block]:
    """Read a golden file's blocks."""
    blocks: list[Block] = []
    lines = iter(text.splitlines())
    comments: list[str] = []
    for line in lines:
        if not line.strip():
            continue
        if line.startswith("#"):
            comments.append(line)
            continue
        assert next(lines, None) == RULE, f"expected {RULE} after: {line}"
        output: list[str] = []
        for following in lines:
            if not following.strip():
                break
            output.append(following)
        blocks.append(Block(comments, line, "\n".join(output)))
        comments = []
    assert not comments, "comments must stand above a command"
    return blocks


def render(blocks: list[Block]) -> str:
    """Write blocks back as a golden file."""
    parts = ("\n".join([*b.comments, b.line, RULE, b.expected]).rstrip("\n") for b in blocks)
    return "\n\n".join(parts) + "\n"


def run(path: Path, handle: Callable[[Block], str], *, rewrite: bool) -> None:
    """Run every block of a file through handle, comparing or rewriting its output."""
    blocks = parse(path.read_text())
    for block in blocks:
        actual = "\n".join(line.rstrip() for line in handle(block).splitlines() if line.strip())
        if rewrite:
            block.expected = actual
        else:
            assert actual == block.expected, f"{path.name}: {block.line}"
    if rewrite:
        path.write_text(render(blocks))
