"""The page for people who use a keyboard alone, a screen reader, or little contrast."""

import pytest

from tests.agents.dashboard.conftest import go, shows
from tests.support.browser import Page

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("dashboard")]

VIEWS = {
    "#/": "resourceVersion",
    "#/kind/-/v1/namespaces": "kube-system",
    "#/nodes": "requested",
    "#/changes": "changes",
    "#/create": "Dry run",
    "#/object/-/v1/namespaces/-/kube-system": "Events",
    "#/object/-/v1/namespaces/-/kube-system/yaml": "kind: Namespace",
    "#/object/-/v1/namespaces/-/kube-system/edit": "Dry run",
}
NAMED = {
    "button",
    "link",
    "textbox",
    "searchbox",
    "combobox",
    "checkbox",
    "slider",
    "grid",
    "img",
    "listbox",
    "log",
    "navigation",
}
RATIO_MIN = 4.5
CONTRAST = """(() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
    .map((each) => (each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const back = (each) => {
    for (let at = each; at; at = at.parentElement) {
      const found = numbers(getComputedStyle(at).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const each of document.querySelectorAll('body *')) {
    const own = [...each.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim());
    if (!own || !each.checkVisibility() || each.closest('[disabled], svg, option')) continue;
    const front = light(numbers(getComputedStyle(each).color));
    const [a, b] = [front, light(back(each))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const about = `${each.tagName}.${each.className} ${each.textContent.slice(0, 30)}`;
    if (ratio < %f) bad.push(`${about} ${ratio.toFixed(2)}`);
  }
  return [...new Set(bad)];
})()"""


def test_everything_that_can_be_used_has_a_name(page: Page) -> None:
    page.call("Accessibility.enable")
    for hash_, shown in VIEWS.items():
        go(page, hash_)
        shows(page, shown)
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        roles = {each["role"]["value"] for each in nodes if not each.get("ignored")}
        assert {"main", "heading"} <= roles, hash_
        for each in nodes:
            role = each.get("role", {}).get("value")
            if not each.get("ignored") and role in NAMED:
                assert each.get("name", {}).get("value"), (hash_, role, each.get("properties"))
    assert page.run("document.documentElement.lang") == "en"
    assert page.run("document.querySelectorAll('main').length") == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_what_is_behind_them(page: Page, scheme: str) -> None:
    page.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    for hash_, shown in VIEWS.items():
        go(page, hash_)
        shows(page, shown)
        assert page.run(CONTRAST % RATIO_MIN) == [], hash_


def test_the_focus_is_seen_goes_everywhere_and_comes_back(page: Page) -> None:
    # Tab goes on from where the focus was last, which is where the form was until the view is drawn
    # again. An element that had it at the beginning of the page sets that.
    page.run(
        "const first = document.createElement('button'); document.body.prepend(first);"
        "first.focus(); first.remove()"
    )
    page.press("Tab")
    page.until("document.activeElement.id === 'skip'")
    page.press("Enter")
    page.until("document.activeElement.id === 'view'")
    reached = set()
    page.run("document.getElementById('skip').focus()")
    for _ in range(12):
        page.press("Tab")
        reached.add(page.run("document.activeElement.id || document.activeElement.className"))
        assert page.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert {"namespace", "choose", "create", "help", "slider", "moment", "now"} <= reached
    page.run("document.getElementById('help').focus()")
    page.press("Enter")
    page.until("document.querySelector('dialog[open]')")
    # The focus stays inside a dialog, and is where it was afterwards.
    for _ in range(4):
        page.press("Tab")
    assert page.run(
        "document.querySelector('dialog').contains(document.activeElement)"
        " || document.activeElement === document.body"
    )
    page.press("Escape")
    page.until("document.activeElement.id === 'help'")


def test_a_grid_tells_its_size_its_order_and_what_is_chosen(page: Page) -> None:
    go(page, "#/kind/-/v1/namespaces")
    page.until("document.querySelectorAll('.grid-row').length >= 4")
    grid = "document.querySelector('[role=grid]')"
    assert int(page.run(f"{grid}.getAttribute('aria-rowcount')")) >= 4
    page.run("document.querySelector('[role=columnheader] button').click()")
    assert (
        page.run("document.querySelector('[role=columnheader]').getAttribute('aria-sort')")
        == "ascending"
    )
    page.run("document.querySelector('.grid-body').focus()")
    page.press("ArrowDown")
    active = page.run("document.querySelector('.grid-body').getAttribute('aria-activedescendant')")
    assert page.run(f"document.getElementById({active!r}).getAttribute('aria-selected')") == "true"
    assert page.run(f"document.getElementById({active!r}).getAttribute('aria-rowindex')") == "2"
