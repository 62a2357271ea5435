// One kind: its Table, live.

import { pathOf } from "./api.js";
import { age, el, fill } from "./dom.js";
import { Grid } from "./grid.js";
import { LiveTable } from "./live.js";
import { objectHash } from "./routes.js";

const WIDTHS = { Name: "minmax(24ch, 3fr)", Namespace: "minmax(12ch, 1fr)", Age: "8ch" };

export function listing(view, app, kind, namespace) {
  const filter = el("input", {
    type: "search", placeholder: "filter ( / )", "aria-label": "Filter", id: "filter",
    oninput: () => draw(),
  });
  const wide = el("input", { type: "checkbox", onchange: () => { remake(); draw(); } });
  const count = el("span", { class: "quiet", id: "count" });
  const state = el("span", { class: "bad", id: "state" });
  const place = el("div", { class: "grid-place" });
  fill(view, el("div", { class: "bar" }, el("h1", {}, kind.kind), filter, el("label", {}, wide, " wide"), count, state), place);

  const open = (row) => {
    const { namespace: of, name } = row.object.metadata;
    location.hash = objectHash(kind, of || "", name);
  };
  let grid = null;
  let made = "";

  function remake() {
    const columns = live.columns
      .map((column, index) => ({ column, index }))
      .filter(({ column }) => wide.checked || column.priority === 0)
      .map(({ column, index }) => ({
        name: column.name, about: column.description, width: WIDTHS[column.name],
        value: (row) => row.cells[index],
        ...(column.name === "Age" && {
          shown: (row) => age(row.object.metadata.creationTimestamp) || String(row.cells[index]),
          sort: (row) => -Date.parse(row.object.metadata.creationTimestamp),
        }),
        ...(column.name === "Name" && {
          isToned: false,
          shown: (row) => el("a", { href: objectHash(kind, row.object.metadata.namespace || "", row.object.metadata.name) },
            String(row.cells[index])),
        }),
      }));
    if (kind.namespaced && !namespace) {
      columns.unshift({ name: "Namespace", width: WIDTHS.Namespace, isToned: false, value: (row) => row.object.metadata.namespace });
    }
    grid?.close();
    grid = new Grid(columns, { onOpen: open, label: kind.kind });
    fill(place, grid.element);
    app.current = { row: () => grid.current(), kind };
  }

  function draw() {
    const key = live.columns.map((column) => column.name).join("\n");
    if (!grid || key !== made) {
      made = key;
      remake();
    }
    const wanted = filter.value.trim().toLowerCase();
    const rows = [...live.rows.values()];
    const found = wanted ? rows.filter((row) => text(row).includes(wanted)) : rows;
    grid.show(found);
    count.textContent = `${found.length}${wanted ? ` of ${rows.length}` : ""}${live.isWhole ? "" : " …"}`;
  }

  const live = new LiveTable(pathOf(kind, namespace), {}, {
    onChange: draw,
    onState: (problem) => { state.textContent = problem; },
  });
  live.run().catch((error) => app.fail(error));
  const ages = setInterval(() => grid?.draw(), 10000);
  return () => {
    live.close();
    grid?.close();
    clearInterval(ages);
  };
}

function text(row) {
  const { namespace = "", labels = {} } = row.object.metadata;
  return `${namespace} ${row.cells.join(" ")} ${Object.entries(labels).map((pair) => pair.join("=")).join(" ")}`.toLowerCase();
}
