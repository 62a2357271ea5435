"""What two runs of one story print differently though nothing differs, and how they are compared.

A mask replaces what cannot be equal by a name; masks are applied in order, to both sides. A step of
a story may weaken its comparison: `sorted` (lines in any order), `set` (the set of lines), `last`
(only the last line), `sorted-words` (words in any order), `exit` (only the exit code), `skip` (it
is context). The filter `explain` drops the prose of `kubectl explain`, which is another's text.
"""

import re
from functools import lru_cache
from typing import NamedTuple


class Mask(NamedTuple):
    """A pattern and what stands for what it matches, but for lines that `unless_line` finds."""

    why: str
    pattern: str
    name: str
    unless_line: str = ""


MASKS = (
    Mask("the recorded server's address, which stories use, too", r"\b192\.0\.2\.2\b", "$ADDRESS"),
    Mask("patch releases of the client", r"Client Version: v1\.32\.\d", "Client Version: v1.32"),
    Mask("the file's name tells the manager", r"\bkubectl\.1\.32\b", "kubectl"),
    Mask(
        "a warning of the client about a closed stream",
        r"(?m)^[EWI]\d{4} .*Unexpected error when reading response body.*\n",
        "",
    ),
    Mask("tokens", r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "<jwt>"),
    Mask("uids", r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
    Mask("times, RFC 3339", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "<time>"),
    Mask(
        "times as Go prints them",
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4}( UTC)?( m=\S+)?",
        "<time>",
    ),
    Mask("times of helm's log", r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d", "<time>"),
    Mask(
        "times with a weekday",
        r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun),? (\d\d )?"
        r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [\d :]+([+-]\d{4}|\d{4})",
        "<time>",
    ),
    Mask("klog's head", r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", "<klog> "),
    Mask("helm 3's time", r"time=\S+", "time=<time>"),
    Mask("seconds in helm's labels", r'(modifiedAt(?:=|"?:\s*"))\d+', r"\1<seconds>"),
    Mask("resource versions in managed text", r'(resourceVersion(?:\\":\\"|:))\d+', r"\1<rv>"),
    Mask("resource versions, quoted", r'("?resourceVersion"?: ?)"\d+"', r'\1"<rv>"'),
    Mask("resource versions of details", r"(resourceVersion=)\d+", r"\1<rv>"),
    Mask("resource versions of describe", r'("?[rR]esource [vV]ersion"?:\s*)\d+', r"\1<rv>"),
    Mask(
        "resource versions of conflicts",
        r"(Expected resource version to be \d+, was )\d+",
        r"\1<rv>",
    ),
    Mask("continue tokens", r'("?continue"?: ?)"[\w=-]+"', r'\1"<token>"'),
    Mask("kubectl diff's folders", r"/(LIVE|MERGED)-\d+", r"/\1-<n>"),
    Mask("kubectl edit's files", r"kubectl[.\d]*-edit-\d+", "kubectl-edit-<n>"),
    Mask("addresses of pods", r"\b10\.244\.\d+\.\d+\b", "<pod-ip>"),
    Mask("cluster addresses", r"\b10\.0\.\d+\.\d+\b", "<cluster-ip>"),
    Mask("the server", r"(\$ADDRESS|127\.0\.0\.1):6443", "<address>"),
    Mask("node ports of get", r"\b(3[0-2]\d{3})(/(TCP|UDP|SCTP))", r"<nodeport>\2"),
    Mask("node ports of objects", r'("?(healthCheckN|n)odePort"?: ?)\d{5}', r"\1<nodeport>"),
    Mask(
        "node ports of describe",
        r"((?:HealthCheck )?NodePort:\s+(?:\S+\s+)?)\d{5}",
        r"\1<nodeport>",
    ),
    Mask(
        "pod template hashes",
        r'(pod-template-hash"?[:=] ?"?)[bcdfghjklmnpqrstvwxz2456789]+',
        r"\1<hash>",
    ),
    Mask(
        "controller revision hashes",
        r'(controller-revision-hash"?[:=] ?"?[a-z0-9-]*?)[bcdfghjklmnpqrstvwxz2456789]{7,10}\b',
        r"\1<hash>",
    ),
    Mask(
        "names of pods",
        r"-[bcdfghjklmnpqrstvwxz2456789]{7,10}-[bcdfghjklmnpqrstvwxz2456789]{5}\b",
        "-<hash>-<x>",
    ),
    Mask(
        "hashes at the end of a name",
        r"-(?=[a-z0-9]*\d)[bcdfghjklmnpqrstvwxz2456789]{7,10}\b",
        "-<hash>",
    ),
    Mask("generated suffixes", r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-<x>"),
    Mask("names of Events", r"\.[0-9a-f]{16}\b", ".<event>"),
    Mask("minutes of CronJobs", r"-\d{8}\b", "-<minute>"),
    Mask("hashes", r"(hash=)[0-9A-F]{64,}", r"\1<hash>"),
    Mask("durations", r"\b\d+(\.\d+)?(ms|µs)\b", "<dur>"),
    Mask("ages", r'(?<![\w.:/="-])(?:\d+[ydhm])*\d+[ydhs](?![\w.:/=-]| \(\d+%\))', "<age>"),
    Mask(
        "ages in minutes (also milli-cores: not in lines about cpu)",
        r'(?<![\w.:/="-])(?:\d+[ydh])*\d+m(?![\w.:/=-]| \(\d+%\))',
        "<age>",
        unless_line=r"(?i)\bcpu\b",
    ),
    Mask("repeats of Events", r"<age> \(x\d+ over <age>\)", "<age>"),
    Mask("ages of the future", r"<invalid>", "<age>"),
    Mask("columns", r"[ \t]{2,}|\t", "  "),
    Mask("blanks at the end", r"(?m)[ \t]+$", ""),
    Mask("rules under a heading", r"-{3,}", "---"),
    Mask("the same", r"={3,}", "==="),
)

WORD = re.compile(r"[^\s,;\[\]]+")
EXPLAINED = re.compile(
    r"^(KIND|VERSION|GROUP|FIELD|RESOURCE):|^(DESCRIPTION|FIELDS):?$"
    r"|^ +\S+\s+<[^>]+>|^ +enum:|^error"
)


@lru_cache(maxsize=1 << 14)
def masked(text: str) -> str:
    """Replace what may differ between two runs."""
    for mask in MASKS:
        if not mask.unless_line:
            text = re.sub(mask.pattern, mask.name, text)
            continue
        lines = text.split("\n")
        text = "\n".join(
            line if re.search(mask.unless_line, line) else re.sub(mask.pattern, mask.name, line)
            for line in lines
        )
    return text


def explained(text: str) -> str:
    """Keep of `kubectl explain` what is no prose."""
    return "\n".join(line for line in text.split("\n") if EXPLAINED.search(line))


def comparable(text: str, compare: str, text_filter: str) -> list[str]:
    """Return the lines of an output that are compared: equal lists mean equal outputs."""
    if "exit" in compare or "skip" in compare:
        return []
    if text_filter == "explain":
        text = explained(text)
    lines = masked(text).split("\n")
    if compare == "sorted":
        return sorted(lines)
    if compare == "sorted-words":
        return sorted(WORD.findall(masked(text)))
    if compare == "set":
        return sorted(set(lines))
    if compare == "last":
        return [line for line in lines if line][-1:]
    return lines
