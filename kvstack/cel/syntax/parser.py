"""The grammar of expressions.

    parse("a.b > 1", macros)  → Call("_>_", [Select(Ident a, "b"), Literal 1])

Each method is a rule of the grammar. Where a text does not follow it, the error and how parsing
goes on is as a parser generated of the grammar does it: a token too many is dropped, a missing one
made up, and else tokens are skipped until one that may follow the rule.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from kvstack.cel.errors import CompileError, Issue, format_issues
from kvstack.cel.syntax.literals import unquoted_bytes, unquoted_text
from kvstack.cel.syntax.nodes import (
    Call,
    Entry,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    Struct,
    depth,
)
from kvstack.cel.syntax.tokens import (
    BYTES,
    EOF,
    ESC_IDENTIFIER,
    IDENTIFIER,
    NUM_FLOAT,
    NUM_INT,
    NUM_UINT,
    STRING,
    Token,
    tokenize,
)
from kvstack.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint

Macro: TypeAlias = Callable[[int, Node | None, list[Node]], Node | None]
"""(offset, target, arguments) → the expansion of a call, None: itself; raises MacroError."""
Macros: TypeAlias = Mapping[tuple[str, int, bool], Macro]
"""Macros by name, number of arguments, and whether there is a target."""

DEPTH_MAX: Final = 250
SIZE_MAX: Final = 100_000

_RESERVED: Final = frozenset(
    (
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let"),
        *("loop", "package", "namespace", "return", "var", "void", "while"),
    )
)
_LITERALS: Final = ("true", "false", "null")
_NUMBERS: Final = (NUM_FLOAT, NUM_INT, NUM_UINT)
_PRIMARY: Final = ("[", "{", "(", ".", "-", *_LITERALS, *_NUMBERS, STRING, BYTES, IDENTIFIER)
_OPERAND: Final = (*_PRIMARY[:5], "!", *_PRIMARY[5:])
_PRECEDENCE: Final = {
    "<": 1, "<=": 1, ">=": 1, ">": 1, "==": 1, "!=": 1, "in": 1,
    "+": 2, "-": 2, "*": 3, "/": 3, "%": 3,
}  # fmt: skip
_FUNCTIONS: Final = {each: f"_{each}_" for each in _PRECEDENCE} | {"in": "@in"}
_AFTER_OPERAND: Final = frozenset((*_PRECEDENCE, "&&", "||", "?"))
_AFTER_PRIMARY: Final = _AFTER_OPERAND | {".", "["}
_NAMES: Final = frozenset((IDENTIFIER, ESC_IDENTIFIER))


class MacroError(ValueError):
    """A macro whose arguments do not fit."""

    def __init__(self, offset: int, message: str) -> None:
        """Note what is wrong where."""
        super().__init__(message)
        self.offset = offset


class _Broken(Node):
    """The node where the source has no expression."""

    __slots__ = ()


class _MismatchError(Exception):
    """A rule cannot continue; the error was reported."""


def parse(source: str, macros: Macros) -> Node:
    """Return the tree of an expression; raises CompileError."""
    if len(source) > SIZE_MAX:
        text = f"expression code point size exceeds limit: size: {len(source)}, limit {SIZE_MAX}"
        raise CompileError(format_issues(source, [Issue(-1, text)]))
    parser = _Parser(source, macros)
    too_deep = Issue(-1, "max recursion depth exceeded")
    try:
        node = parser.start()
    except RecursionError:
        raise CompileError(format_issues(source, [too_deep])) from None
    if not parser.issues and depth(node) > DEPTH_MAX:
        parser.issues.append(too_deep)
    if parser.issues:
        raise CompileError(format_issues(source, parser.issues))
    return node


class _Parser:
    """The state of parsing one expression."""

    def __init__(self, source: str, macros: Macros) -> None:
        self.issues: list[Issue] = []
        self._tokens = tokenize(source, self.issues)
        self._position = 0
        self._macros = macros
        self._is_recovering = False
        self._followers: list[tuple[str, ...]] = [(EOF,)]
        """The tokens that may follow the expressions being parsed, the outermost first."""

    # Rules.

    def start(self) -> Node:
        node = self._expr()
        with suppress(_MismatchError):
            self._match(EOF, ())
        return node

    def _expr(self) -> Node:
        node = self._logical("||")
        token = self._token
        if token.kind != "?":
            return node
        try:
            self._next()
            if_true = self._inside(":", lambda: self._logical("||"))
            self._match(":", _OPERAND)
            if_false = self._expr()
        except _MismatchError:
            return self._recover()
        return Call(token.offset, "_?_:_", [node, if_true, if_false])

    def _logical(self, operator: str) -> Node:
        terms = [self._term(operator)]
        operators: list[int] = []
        while self._token.kind == operator:
            operators.append(self._next().offset)
            terms.append(self._term(operator))
        return _balanced(f"_{operator}_", terms, operators) if operators else terms[0]

    def _term(self, operator: str) -> Node:
        return self._logical("&&") if operator == "||" else self._binary()

    def _binary(self) -> Node:
        """Parse relations and calculations; those of the same rank from the left."""
        operands = [self._unary()]
        operators: list[Token] = []
        while True:
            rank = _PRECEDENCE.get(self._token.kind, 0)
            while operators and _PRECEDENCE[operators[-1].kind] >= rank:
                operator = operators.pop()
                right = operands.pop()
                name = _FUNCTIONS[operator.kind]
                operands[-1] = Call(operator.offset, name, [operands[-1], right])
            if not rank:
                return operands[0]
            operators.append(self._next())
            operands.append(self._unary())

    def _unary(self) -> Node:
        if not self._can_begin(_OPERAND):
            return self._recover()
        operator = self._token
        if operator.kind == "!" or (operator.kind == "-" and not self._begins_number()):
            count = 0
            while self._token.kind == operator.kind:
                self._next()
                count += 1
            node = self._member()
            if count % 2 == 0:
                return node
            name = "!_" if operator.kind == "!" else "-_"
            return Call(operator.offset, name, [node])
        return self._member()

    def _begins_number(self) -> bool:
        return self._peek().kind in {NUM_INT, NUM_FLOAT}

    def _member(self) -> Node:
        try:
            node = self._primary() if self._can_begin(_PRIMARY) else self._recover(_AFTER_PRIMARY)
        except _MismatchError:
            node = self._recover(_AFTER_PRIMARY)
        try:
            while self._token.kind in {".", "["}:
                node = self._selected(node) if self._token.kind == "." else self._indexed(node)
        except _MismatchError:
            return self._recover()
        return node

    def _selected(self, operand: Node) -> Node:
        dot, after = self._token, self._peek()
        if after.kind == "?":
            self._next()
            self._next()
            token = self._name()
            field = Literal(token.offset, _name_of(token))
            return Call(dot.offset, "_?._", [operand, field])
        if after.kind not in _NAMES:
            self._no_alternative(dot, after)
        self._next()
        token = self._next()
        if token.kind == IDENTIFIER and self._token.kind == "(":
            opening = self._next()
            return self._call(opening.offset, token.text, operand, self._arguments())
        return Select(dot.offset, operand, _name_of(token))

    def _indexed(self, operand: Node) -> Node:
        opening = self._next()
        name = "_[_]"
        if self._token.kind == "?":
            self._next()
            name = "_[?_]"
        position = self._inside("]", self._expr)
        self._match("]", self._after_primary())
        return Call(opening.offset, name, [operand, position])

    def _primary(self) -> Node:
        token = self._token
        kind = token.kind
        if kind == "(":
            self._next()
            node = self._inside(")", self._expr)
            self._match(")", self._after_primary())
            return node
        if kind == "[":
            return self._list()
        if kind == "{":
            return self._map()
        if kind in {IDENTIFIER, "."}:
            return self._named()
        return self._literal()

    def _named(self) -> Node:
        first = self._token
        prefix = ""
        if first.kind == ".":
            if self._peek().kind != IDENTIFIER:
                self._no_alternative(first, self._peek())
            self._next()
            prefix = "."
        names = self._message_name()
        if names:
            return self._message(prefix + ".".join(names))
        token = self._next()
        if token.text in _RESERVED:
            self.issues.append(Issue(first.offset, f"reserved identifier: {token.text}"))
        name = prefix + token.text
        if self._token.kind == "(":
            opening = self._next()
            return self._call(opening.offset, name, None, self._arguments())
        return Ident(token.offset, name)

    def _message_name(self) -> list[str]:
        """Take the name of a type that fields follow, if there is one."""
        names = [self._token.text]
        ahead = self._position + 1
        while self._tokens[ahead].kind == "." and self._tokens[ahead + 1].kind == IDENTIFIER:
            names.append(self._tokens[ahead + 1].text)
            ahead += 2
        if self._tokens[ahead].kind != "{":
            return []
        self._position = ahead
        return names

    def _message(self, name: str) -> Node:
        opening = self._next()
        entries: list[Entry] = []
        while self._token.kind in {*_NAMES, "?"}:
            is_optional = self._take("?")
            field = _name_of(self._name())
            colon = self._match(":", _OPERAND)
            value = self._inside("}", self._expr)
            entries.append(Entry(colon, field, value, is_optional=is_optional))
            if not self._take(","):
                break
        if not entries:
            self._take(",")
        self._match("}", self._after_primary())
        return Struct(opening.offset, name, entries)

    def _list(self) -> Node:
        opening = self._next()
        elements: list[Node] = []
        optionals: set[int] = set()
        is_open = self._token.kind not in {"]", ","}
        while is_open:
            if self._take("?"):
                optionals.add(len(elements))
            elements.append(self._inside("]", self._expr))
            is_open = self._goes_on("]")
        self._take(",")
        self._match("]", self._after_primary())
        return ListNode(opening.offset, elements, frozenset(optionals))

    def _map(self) -> Node:
        opening = self._next()
        entries: list[Entry] = []
        is_open = self._token.kind not in {"}", ","}
        while is_open:
            is_optional = self._take("?")
            name = self._inside(":", self._expr)
            colon = self._match(":", _OPERAND)
            value = self._inside("}", self._expr)
            entries.append(Entry(colon, name, value, is_optional=is_optional))
            is_open = self._goes_on("}")
        self._take(",")
        self._match("}", self._after_primary())
        return MapNode(opening.offset, entries)

    def _goes_on(self, closing: str) -> bool:
        """Return whether another item follows, and take the comma before it."""
        comma = self._token
        if comma.kind != ",":
            return False
        after = self._peek()
        if after.kind == closing:
            return False
        if after.kind not in _OPERAND and after.kind != "?":
            self._no_alternative(comma, after)
        self._next()
        return True

    def _arguments(self) -> list[Node]:
        arguments: list[Node] = []
        if self._token.kind != ")":
            arguments.append(self._inside(")", self._expr))
            while self._take(","):
                arguments.append(self._inside(")", self._expr))
        self._match(")", self._after_primary())
        return arguments

    def _call(self, offset: int, name: str, target: Node | None, arguments: list[Node]) -> Node:
        macro = self._macros.get((name, len(arguments), target is not None))
        if macro is not None:
            try:
                expanded = macro(offset, target, arguments)
            except MacroError as error:
                self.issues.append(Issue(error.offset, str(error)))
                return _Broken(offset)
            if expanded is not None:
                return expanded
        return Call(offset, name, arguments, target)

    def _literal(self) -> Node:
        first = self._next()
        token = self._next() if first.kind == "-" else first
        sign = "-" if first.kind == "-" else ""
        kind, text = token.kind, token.text
        try:
            if kind == STRING:
                return Literal(first.offset, unquoted_text(text))
            if kind == BYTES:
                return Literal(first.offset, unquoted_bytes(text))
            if kind in _NUMBERS:
                return Literal(first.offset, _number(kind, sign + text))
        except ValueError as error:
            self.issues.append(Issue(first.offset, str(error)))
            return _Broken(first.offset)
        return Literal(first.offset, None if kind == "null" else kind == "true")

    # Tokens.

    @property
    def _token(self) -> Token:
        return self._tokens[self._position]

    def _peek(self) -> Token:
        return self._tokens[min(self._position + 1, len(self._tokens) - 1)]

    def _next(self) -> Token:
        token = self._tokens[self._position]
        if token.kind != EOF:
            self._position += 1
        self._is_recovering = False
        return token

    def _take(self, kind: str) -> bool:
        """Consume a token if it is next."""
        if self._token.kind != kind:
            return False
        self._next()
        return True

    def _name(self) -> Token:
        token = self._token
        if token.kind not in _NAMES:
            self._no_alternative(token, token)
        return self._next()

    def _match(self, kind: str, followers: tuple[str, ...] | frozenset[str]) -> int:
        """Take a token that must be there and return where it is; raises _MismatchError.

        followers: what may come after it, so that it may be the one that is missing.
        """
        token = self._token
        if token.kind == kind:
            return self._next().offset
        expected = kind if kind == EOF else f"'{kind}'"
        if self._peek().kind == kind and token.kind != EOF:
            self._tell(token, f"extraneous input '{token.text}' expecting {expected}")
            self._next()
            return self._next().offset
        if token.kind in followers:
            self._tell(token, f"missing {expected} at '{token.text}'")
            return token.offset
        self._tell(token, f"mismatched input '{token.text}' expecting {expected}")
        raise _MismatchError

    # Errors.

    def _inside(self, closing: str, rule: Callable[[], Node]) -> Node:
        """Parse an expression that ends with a token of its own."""
        self._followers.append((closing, ","))
        try:
            return rule()
        finally:
            self._followers.pop()

    def _after_primary(self) -> frozenset[str]:
        return _AFTER_PRIMARY.union(*self._followers)

    def _can_begin(self, expected: tuple[str, ...]) -> bool:
        """Return whether an expression may begin here; drops a token that is too many."""
        token = self._token
        if token.kind in expected:
            return True
        if self._is_recovering:
            return False
        told = ", ".join(each if each.isupper() else f"'{each}'" for each in expected)
        if token.kind != EOF and self._peek().kind in expected:
            self._tell(token, f"extraneous input '{token.text}' expecting {{{told}}}")
            self._next()
            return True
        self._tell(token, f"mismatched input '{token.text}' expecting {{{told}}}")
        return False

    def _no_alternative(self, first: Token, failing: Token) -> None:
        """Report that no rule begins with these tokens; raises _MismatchError."""
        text = first.text if failing is first or failing.kind == EOF else first.text + failing.text
        if text[1:] in _LITERALS and text[0] == ".":
            message = f"mismatched input '{text[1:]}' expecting IDENTIFIER"
        else:
            message = f"no viable alternative at input '{text}'"
        self._tell(failing, message)
        raise _MismatchError

    def _tell(self, token: Token, message: str) -> None:
        if not self._is_recovering:
            self.issues.append(Issue(token.offset, f"Syntax error: {message}"))
        self._is_recovering = True

    def _recover(self, followers: frozenset[str] = _AFTER_OPERAND) -> Node:
        """Skip what may not follow."""
        offset = self._token.offset
        allowed = followers.union(*self._followers)
        while self._token.kind not in allowed and self._token.kind != EOF:
            self._position += 1
        return _Broken(offset)


def _name_of(token: Token) -> str:
    return token.text[1:-1] if token.kind == ESC_IDENTIFIER else token.text


def _number(kind: str, text: str) -> int | float:
    if kind == NUM_FLOAT:
        return float(text)
    is_uint = kind == NUM_UINT
    value = int(text[:-1] if is_uint else text, 16 if "0x" in text else 10)
    if is_uint:
        if value > UINT_MAX:
            raise ValueError("invalid uint literal")
        return Uint(value)
    if not INT_MIN <= value <= INT_MAX:
        raise ValueError("invalid int literal")
    return value


def _balanced(name: str, terms: list[Node], operators: list[int]) -> Node:
    """Return a tree of low depth, so that long conditions are not deep."""

    def tree(low: int, high: int) -> Node:
        middle = (low + high + 1) // 2
        left = terms[middle] if middle == low else tree(low, middle - 1)
        right = terms[middle + 1] if middle == high else tree(middle + 1, high)
        return Call(operators[middle], name, [left, right])

    return tree(0, len(operators) - 1)
