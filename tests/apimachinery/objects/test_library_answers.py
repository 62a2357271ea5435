"""The libraries Kubernetes 1.37.1 is made of were asked these questions: ours answer the same."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from kvstack.apimachinery.objects import (
    addresses,
    durations,
    field_checks,
    fields,
    int_or_string,
    json_patch,
    labels,
    merge_patch,
    metadata,
    names,
    quantity,
    times,
)
from kvstack.apimachinery.objects.field_errors import FieldError
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text import json_text, yaml_text
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_int
from tests.apimachinery.schema.recordings import lines

Answer = Any
Question = Callable[..., Answer]


def texts(check: Callable[[str, str], list[FieldError]]) -> Question:
    return lambda value: [str(each) for each in check("x", value)]


def time_json(canonical: Callable[[str], str | None]) -> Question:
    def ask(text: str) -> Answer:
        found = canonical(text)
        return "null" if found is None else json.dumps(found)

    return ask


def share(value: str, total: str, direction: str) -> int:
    parsed: int | str
    try:
        parsed = parse_int(value, 32)
    except NumberError:
        parsed = value
    return int_or_string.scaled(parsed, int(total), round_up=direction == "up")


def quantity_answer(text: str, other_text: str) -> Answer:
    number, other = quantity.parse(text), quantity.parse(other_text)
    return {
        "s": str(number),
        "value": str(number.value()),
        "milli": str(number.milli_value()),
        "rounded": str(number.round_up(quantity.MILLI)),
        "sum": str(number + other),
        "difference": str(number - other),
        "order": quantity.compare(number, other),
    }


def selection(selector: labels.Selector | fields.FieldSelector, sets: tuple[str, ...]) -> Answer:
    return {"s": str(selector), "m": [selector.matches(json.loads(each)) for each in sets]}


def label_selector(text: str) -> Answer:
    selector = json.loads(text)
    shown, error = "", ""
    try:
        shown = str(labels.from_object(selector))
    except labels.SelectorError as problem:
        error = str(problem)
    return {
        "errs": [str(each) for each in labels.validate_object("x", selector)],
        "err": error,
        "s": shown,
        "f": labels.format_object(selector),
    }


def meta(text: str, scope: str) -> Answer:
    found = metadata.validate(
        json.loads(text), names.name_is_dns_subdomain, is_namespaced=scope == "ns"
    )
    return [str(each) for each in found]


def meta_update(new: str, old: str) -> Answer:
    return [str(each) for each in metadata.validate_update(json.loads(new), json.loads(old))]


def any_json(text: str) -> Answer:
    return {"v": json_text.parse(text.encode())}


def strict_json(text: str) -> Answer:
    data = text.encode()
    value = json_text.parse(data)
    if value is not None and not isinstance(value, dict):
        word = json_text.type_word(value)
        raise ValueError(
            f"json: cannot unmarshal {word} into Go value of type map[string]interface {{}}"
        )
    repeated = json_text.parse_repeated(data)
    found = json_text.repeated_fields(repeated)
    assert json_text.has_repeated(data, value) is bool(found)
    return {"v": value, "strict": found}


def yaml_to_json(text: str) -> Answer:
    return Rendered(yaml_text.parse(text.encode()).value)


def yaml_strictly(text: str) -> Answer:
    parsed = yaml_text.parse(text.encode())
    return {"err": parsed.repeated} if parsed.repeated else Rendered(parsed.value)


class Rendered:
    """A value to be compared with a text of JSON."""

    def __init__(self, value: object) -> None:
        self.value = value


def patched_by_operations(document: str, patch: str) -> Answer:
    found = json_patch.apply(json.loads(document), json.loads(patch))
    return json_text.write(found).decode()


def merged(document: str, patch: str) -> Answer:
    parsed, _ = merge_patch.parse(patch.encode(), is_strict=False)
    return json_text.write(merge_patch.apply(json.loads(document), parsed)).decode()


QUESTIONS: dict[str, Question] = {
    "legacy_ip": texts(addresses.validate_legacy_ip),
    "sloppy_ip": texts(lambda p, v: addresses.validate_legacy_ip(p, v, is_strict=False)),
    "ip": texts(addresses.validate_ip),
    "legacy_cidr": texts(addresses.validate_legacy_cidr),
    "sloppy_cidr": texts(lambda p, v: addresses.validate_legacy_cidr(p, v, is_strict=False)),
    "cidr": texts(addresses.validate_cidr),
    "interface": texts(addresses.validate_interface_address),
    "ip_warnings": lambda value: addresses.ip_warnings("x", value),
    "cidr_warnings": lambda value: addresses.cidr_warnings("x", value),
    "fqn": texts(field_checks.fully_qualified_name),
    "fqdn": texts(field_checks.fully_qualified_domain_name),
    "prefixed_path": texts(field_checks.domain_prefixed_path),
    "prefixed_key": texts(field_checks.domain_prefixed_key),
    "time": time_json(times.canonical_time),
    "micro": time_json(times.canonical_micro_time),
    "duration": durations.canonical,
    "human": lambda seconds: times.human_duration(float(seconds)),
    "percentof": share,
    "quantity": quantity_answer,
    "labels": lambda text, *sets: selection(labels.parse(text), sets),
    "fields": lambda text, *sets: selection(fields.parse(text), sets),
    "labelselector": label_selector,
    "meta": meta,
    "metaupdate": meta_update,
    "anyjson": any_json,
    "strictjson": strict_json,
    "yamltojson": yaml_to_json,
    "yamlstrict": yaml_strictly,
    "jsontoyaml": lambda text: yaml_text.write(json.loads(text)).decode(),
    "jsonpatch": patched_by_operations,
    "mergepatch": merged,
}
RECORDED: dict[str, list[tuple[list[str], Answer]]] = {}
for function, arguments, answer in lines("library-answers"):
    RECORDED.setdefault(function, []).append((arguments, answer))
RECORDED.pop("smp")  # types are needed: tests of the schema
for name in ("prefixed_label_key", "env_name"):
    RECORDED.pop(name)  # nothing here asks it


@pytest.mark.parametrize("function", sorted(RECORDED))
def test_the_answers_are_the_same(function: str) -> None:
    question = QUESTIONS.get(function) or getattr(names, f"check_{function}")
    different = [
        (arguments, given, recorded)
        for arguments, recorded in RECORDED[function]
        if not same(given := answer_of(question, arguments), recorded)
    ]
    assert different == []
    assert len(RECORDED[function]) > 10


def answer_of(question: Question, arguments: list[str]) -> Answer:
    try:
        return question(*arguments)
    except (ValueError, ApiError) as error:
        return {"err": str(error)}


def same(ours: Answer, recorded: Answer) -> bool:
    if isinstance(ours, Rendered):
        return isinstance(recorded, str) and numbered(ours.value) == numbered(json.loads(recorded))
    return bool(numbered(ours) == numbered(recorded))


def numbered(value: Answer) -> Answer:
    """Return the value with all numbers as floats: the recorded ones came through JSON."""
    if isinstance(value, dict):
        return {name: numbered(each) for name, each in value.items()}
    if isinstance(value, list):
        return [numbered(each) for each in value]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number else value
