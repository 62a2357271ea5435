// A table of any length: only the rows in sight are elements.
//
//     const grid = new Grid(columns, { onOpen, label });
//     grid.show(rows);  grid.current();  grid.close();
//
// columns: [{name, about, value(row), shown(row), sort(row), width, isToned, tone(row)}]. Rows of
// equal objects keep their elements while they stay in sight, so that nothing that was chosen or
// focused is lost when others change.

import { tone } from "../text/tone.js";
import { el, fill } from "./elements.js";

const ROW_PX = 28;
const SPARE_ROWS = 12;
const TITLE_MAX = 1000;
const CELL_MAX = 400;
const order = new Intl.Collator(undefined, { numeric: true }).compare;
let made = 0;

export class Grid {
  constructor(columns, { onOpen, label, sortBy = -1, isDescending = false }) {
    Object.assign(this, { columns, onOpen, isDescending });
    this.sortBy = columns[sortBy] || null;
    this.rows = [];
    this.order = [];
    this.chosen = 0;
    this.drawn = new Map();
    this.id = `grid${(made += 1)}`;
    this.head = el("div", { class: "grid-head", role: "row" });
    this.spacer = el("div", { class: "grid-spacer", role: "presentation" });
    this.body = el(
      "div",
      { class: "grid-body", tabindex: "0", role: "rowgroup", "aria-label": `${label}, rows` },
      this.spacer,
    );
    this.element = el(
      "div",
      { class: "grid", role: "grid", "aria-label": label, "aria-readonly": "true" },
      el("div", { role: "rowgroup" }, this.head),
      this.body,
    );
    this.element.style.setProperty("--columns", columns.map((each) => each.width || "minmax(6ch, 1fr)").join(" "));
    this.body.addEventListener("scroll", () => this.draw(), { passive: true });
    this.body.addEventListener("keydown", (event) => this.onKey(event));
    this.resizes = new ResizeObserver(() => this.draw());
    this.resizes.observe(this.body);
    this.heads = columns.map((column) => this.headOf(column));
    fill(
      this.head,
      this.heads.map((each) => each.cell),
    );
    this.drawHead();
  }

  headOf(column) {
    const button = el("button", {
      type: "button",
      class: "cell",
      title: column.about,
      onclick: () => {
        this.isDescending = this.sortBy === column ? !this.isDescending : false;
        this.sortBy = column;
        this.show(this.rows);
      },
    });
    return { column, button, cell: el("span", { role: "columnheader" }, button) };
  }

  drawHead() {
    for (const { column, button, cell } of this.heads) {
      const isSorted = this.sortBy === column;
      fill(button, column.name + (isSorted ? (this.isDescending ? " ↓" : " ↑") : ""));
      cell.setAttribute("aria-sort", isSorted ? (this.isDescending ? "descending" : "ascending") : "none");
    }
  }

  /** Show rows, sorted as was asked for last. */
  show(rows) {
    const before = this.current();
    this.rows = rows;
    this.order = rows;
    if (this.sortBy) {
      const value = this.sortBy.sort || this.sortBy.value;
      const sign = this.isDescending ? -1 : 1;
      this.order = rows
        .map((row) => ({ row, value: value(row) ?? "" }))
        .sort((a, b) => sign * compare(a.value, b.value))
        .map((each) => each.row);
    }
    const uid = before?.object?.metadata.uid;
    const place = uid ? this.order.findIndex((row) => row.object?.metadata.uid === uid) : -1;
    this.chosen = place >= 0 ? place : Math.min(this.chosen, Math.max(0, rows.length - 1));
    this.drawHead();
    this.draw();
  }

  /** Draw what is in sight; isAnew: also what has not changed, as ages have. */
  draw(isAnew = false) {
    const first = Math.max(0, Math.floor(this.body.scrollTop / ROW_PX) - SPARE_ROWS);
    const count = Math.ceil(this.body.clientHeight / ROW_PX) + 2 * SPARE_ROWS;
    this.spacer.style.height = `${this.order.length * ROW_PX}px`;
    this.element.setAttribute("aria-rowcount", String(this.order.length));
    const drawn = new Map();
    this.order.slice(first, first + count).forEach((row, at) => {
      const kept = isAnew ? undefined : this.drawn.get(row);
      drawn.set(row, this.placed(kept || this.row(row), first + at));
    });
    for (const [row, element] of this.drawn) if (drawn.get(row) !== element) element.remove();
    for (const element of drawn.values()) if (!element.isConnected) this.spacer.append(element);
    this.drawn = drawn;
    this.body.setAttribute("aria-activedescendant", this.order.length ? `${this.id}-${this.chosen}` : "");
  }

  placed(element, index) {
    element.id = `${this.id}-${index}`;
    element.dataset.index = index;
    element.style.top = `${index * ROW_PX}px`;
    element.setAttribute("aria-rowindex", String(index + 1));
    element.setAttribute("aria-selected", String(index === this.chosen));
    element.classList.toggle("chosen", index === this.chosen);
    return element;
  }

  row(row) {
    const cells = this.columns.map((column) => {
      const shown = column.shown ? column.shown(row) : String(column.value(row) ?? "");
      const text = shown instanceof Node ? shown.textContent : shown;
      const kind = column.tone ? column.tone(row) : column.isToned === false ? "" : tone(text);
      return el(
        "span",
        { class: `cell ${kind}`, role: "gridcell", title: text.slice(0, TITLE_MAX) },
        shown instanceof Node ? shown : shown.slice(0, CELL_MAX),
      );
    });
    const element = el(
      "div",
      {
        class: "grid-row",
        role: "row",
        onclick: () => {
          this.choose(Number(element.dataset.index));
        },
        ondblclick: () => this.onOpen?.(row),
      },
      cells,
    );
    return element;
  }

  choose(index) {
    this.chosen = index;
    this.draw();
  }

  current() {
    return this.order[this.chosen];
  }

  onKey(event) {
    const page = Math.max(1, Math.floor(this.body.clientHeight / ROW_PX) - 1);
    const steps = {
      ArrowDown: 1,
      j: 1,
      ArrowUp: -1,
      k: -1,
      PageDown: page,
      PageUp: -page,
      Home: -Infinity,
      End: Infinity,
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in steps) {
      const last = Math.max(0, this.order.length - 1);
      this.chosen = Math.min(last, Math.max(0, this.chosen + steps[event.key]));
      const top = this.chosen * ROW_PX;
      const bottom = top + ROW_PX - this.body.clientHeight;
      if (top < this.body.scrollTop) this.body.scrollTop = top;
      else if (bottom > this.body.scrollTop) this.body.scrollTop = bottom;
      this.draw();
    } else if (event.key === "Enter" && this.current()) {
      this.onOpen?.(this.current());
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  close() {
    this.resizes.disconnect();
  }
}

function compare(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b : order(String(a), String(b));
}
