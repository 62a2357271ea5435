// A list that follows its watch: the rows of a Table by the objects' uids.

import { ApiError, getMoment, table, watch } from "./api.js";

const PAUSE_MS = 1000;
const DRAW_MS = 200;

export class LiveTable {
  /** onChange(this) is called some times a second at most; onState(text) with "" while all is well. */
  constructor(path, values, { onChange, onState }) {
    this.path = path;
    this.values = values;
    this.onChange = onChange;
    this.onState = onState || (() => undefined);
    this.columns = [];
    this.rows = new Map();
    this.isWhole = false;
    this.ending = new AbortController();
    this.timer = 0;
  }

  /** Follow until close() is called. */
  async run() {
    while (!this.ending.signal.aborted) {
      try {
        await this.read();
        if (getMoment()) return;
        await this.follow();
      } catch (error) {
        if (error.name === "AbortError") return;
        if (!(error instanceof ApiError)) throw error;
        if (error.code === 410) continue; // the history is gone: read again
        this.onState(error.message);
        if ([401, 403, 404, 405].includes(error.code)) return;
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
    }
  }

  async read() {
    const rows = new Map();
    const whole = await table(this.path, this.values, {
      signal: this.ending.signal,
      onPage: (page) => {
        if (page.columnDefinitions) this.columns = page.columnDefinitions;
        for (const row of page.rows || []) rows.set(row.object.metadata.uid, row);
        if (!this.isWhole) this.rows = rows;
        this.changed();
      },
    });
    this.rows = rows;
    this.version = whole.metadata.resourceVersion;
    this.isWhole = true;
    this.onState("");
    this.changed();
  }

  async follow() {
    for await (const event of watch(this.path, this.values, this.version, this.ending.signal)) {
      for (const row of event.object.rows || []) {
        const metadata = row.object.metadata;
        if (event.type === "DELETED") this.rows.delete(metadata.uid);
        else if (event.type !== "BOOKMARK") this.rows.set(metadata.uid, row);
        this.version = metadata.resourceVersion || this.version;
      }
      if (event.type === "BOOKMARK" && event.object.metadata?.resourceVersion) {
        this.version = event.object.metadata.resourceVersion;
      }
      this.changed();
    }
  }

  changed() {
    if (this.timer || this.ending.signal.aborted) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      if (!this.ending.signal.aborted) this.onChange(this);
    }, DRAW_MS);
  }

  close() {
    this.ending.abort();
    clearTimeout(this.timer);
  }
}
