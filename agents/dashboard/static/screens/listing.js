// One kind: its Table, live.

import { cell, Live } from "../server/live.js";
import { isSame, pathOf, PODS } from "../server/kinds.js";
import { remove } from "../actions/objects.js";
import { el, fill } from "../parts/elements.js";
import { Grid } from "../parts/grid.js";
import { age } from "../text/times.js";

const WIDTHS = { Name: "minmax(24ch, 3fr)", Namespace: "minmax(12ch, 1fr)", Age: "8ch", Message: "minmax(30ch, 4fr)" };
const AGES_MS = 10_000;

export function listing(app, view, kind) {
  const namespace = kind.namespaced ? app.route.namespace : "";
  const filter = el("input", {
    type: "search",
    placeholder: "filter ( / )",
    "aria-label": "Filter",
    id: "filter",
    autocomplete: "off",
    oninput: () => draw(),
    onkeydown: (event) => {
      if (["Enter", "ArrowDown", "Escape"].includes(event.key)) {
        event.preventDefault();
        event.stopPropagation();
        if (event.key === "Escape") filter.value = "";
        draw();
        grid?.body.focus();
      }
    },
  });
  const wide = el("input", {
    type: "checkbox",
    id: "wide",
    onchange: () => {
      remake();
      draw();
    },
  });
  const count = el("span", { class: "quiet", id: "count", role: "status" });
  const state = el("span", { class: "bad", id: "state", role: "alert" });
  const place = el("div", { class: "grid-place" });
  fill(
    view,
    el("div", { class: "bar" }, el("h1", {}, kind.kind), filter, el("label", {}, wide, " wide"), count, state),
    place,
  );
  let grid = null;
  let made = "";
  const texts = new WeakMap();

  function remake() {
    grid?.close();
    grid = new Grid(columnsOf(app, kind, live, namespace, wide.checked), {
      label: kind.kind,
      onOpen: (row) => {
        location.hash = app.objectHref(kind, row.object.metadata.namespace || "", row.object.metadata.name);
      },
    });
    fill(place, grid.element);
    app.current = { row: () => grid.current(), kind, remove: () => removeChosen() };
    if (document.activeElement === document.body) grid.body.focus();
  }

  function removeChosen() {
    const metadata = grid.current()?.object.metadata;
    if (metadata && !app.route.moment) remove(app, kind, { metadata }).catch((error) => app.fail(error));
  }

  function draw() {
    const key = live.columns.map((column) => column.name).join("\n");
    if (!grid || key !== made) {
      made = key;
      remake();
    }
    const wanted = filter.value.trim().toLowerCase();
    const rows = [...live.entries.values()];
    const shown = wanted ? rows.filter((row) => textOf(texts, row).includes(wanted)) : rows;
    grid.show(shown);
    count.textContent = `${shown.length}${wanted ? ` of ${rows.length}` : ""}${live.isWhole ? "" : " …"}${live.isCut ? ", the first alone" : ""}`;
  }

  const live = new Live(app.server, pathOf(kind, namespace), {
    onChange: draw,
    onState: (problem) => {
      state.textContent = problem;
    },
  });
  live.run().catch((error) => app.fail(error));
  const ages = setInterval(() => grid?.draw(true), AGES_MS);
  return () => {
    live.close();
    grid?.close();
    clearInterval(ages);
  };
}

function columnsOf(app, kind, live, namespace, isWide) {
  const columns = live.columns
    .map((column, index) => ({ column, index }))
    .filter(({ column }) => isWide || column.priority === 0)
    .map(({ column, index }) => ({
      name: column.name,
      about: column.description,
      width: WIDTHS[column.name],
      value: (row) => row.cells[index],
      ...(column.name === "Age" && {
        shown: (row) => age(row.object.metadata.creationTimestamp) || String(row.cells[index]),
        sort: (row) => -Date.parse(row.object.metadata.creationTimestamp),
      }),
      ...(index === 0 &&
        column.name === "Name" && {
          isToned: false,
          shown: (row) =>
            app.link(kind, row.object.metadata.namespace || "", row.object.metadata.name, String(row.cells[index])),
        }),
    }));
  if (kind.namespaced && !namespace) {
    columns.unshift({
      name: "Namespace",
      width: WIDTHS.Namespace,
      isToned: false,
      value: (row) => row.object.metadata.namespace,
    });
  }
  if (isSame(kind, PODS)) {
    const status = columns.find((each) => each.name === "Status");
    if (status)
      status.shown = (row) =>
        row.object.metadata.deletionTimestamp ? "Terminating" : String(cell(live, row, "Status"));
  }
  return columns;
}

/** Return what a filter looks at; rows never change, so it is made once a row. */
function textOf(texts, row) {
  let text = texts.get(row);
  if (text === undefined) {
    const { namespace = "", labels = {} } = row.object.metadata;
    text = `${namespace} ${row.cells.join(" ")} ${Object.entries(labels)
      .map((pair) => pair.join("="))
      .join(" ")}`.toLowerCase();
    texts.set(row, text);
  }
  return text;
}
