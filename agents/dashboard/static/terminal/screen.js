// A screen of characters as terminals have it: cells, a cursor, a region that scrolls.
//
//     const screen = new Screen(80, 24);
//     screen.put("a");  screen.move(0, 3);  screen.style.foreground = 1;
//
// It knows no escape sequences (parser.js) and no page (view.js). Lines that leave it at the top are
// kept, HISTORY_MAX of them. `dirty` has the rows that changed.

const HISTORY_MAX = 2000;
const COLUMNS_MAX = 500;
const ROWS_MAX = 200;
const PLAIN = Object.freeze({
  foreground: -1,
  background: -1,
  bold: false,
  dim: false,
  italic: false,
  underline: false,
  inverse: false,
});

const blank = (style = PLAIN) => ({ text: " ", style });
const sized = (number, max) => Math.max(1, Math.min(max, Math.floor(number) || 1));

export class Screen {
  constructor(columns, rows) {
    this.columns = sized(columns, COLUMNS_MAX);
    this.rows = sized(rows, ROWS_MAX);
    this.reset();
  }

  reset() {
    this.lines = this.blankLines();
    this.history = [];
    this.aside = null;
    this.saved = null;
    this.isVisible = true;
    this.wraps = true;
    this.isInserting = false;
    this.keysOfApplications = false;
    this.bracketsPaste = false;
    this.plainStyle();
    this.row = 0;
    this.column = 0;
    this.isPastEnd = false;
    this.region(0, this.rows - 1);
    this.dirtyAll();
  }

  blankLines() {
    return Array.from({ length: this.rows }, () => this.blankLine());
  }

  blankLine() {
    return Array.from({ length: this.columns }, () => blank());
  }

  plainStyle() {
    this.style = PLAIN;
  }

  styled(change) {
    this.style = Object.freeze({ ...this.style, ...change });
  }

  dirtyAll() {
    this.isDirty = true;
    this.dirty = new Set(this.lines.keys());
  }

  /** Let rows from top to bottom scroll alone. */
  region(top, bottom) {
    if (top >= bottom || bottom >= this.rows) [top, bottom] = [0, this.rows - 1];
    this.top = top;
    this.bottom = bottom;
  }

  resize(columns, rows) {
    columns = sized(columns, COLUMNS_MAX);
    rows = sized(rows, ROWS_MAX);
    if (columns === this.columns && rows === this.rows) return;
    const fit = (lines) => {
      const kept = lines.slice(Math.max(0, Math.min(lines.length - rows, this.row - rows + 1)));
      while (kept.length < rows) kept.push([]);
      return kept.slice(0, rows).map((line) => Array.from({ length: columns }, (_, at) => line[at] || blank()));
    };
    const gone = Math.max(0, Math.min(this.lines.length - rows, this.row - rows + 1));
    this.lines = fit(this.lines);
    if (this.aside) this.aside.lines = fit(this.aside.lines);
    this.columns = columns;
    this.rows = rows;
    this.row = Math.min(this.row - gone, rows - 1);
    this.column = Math.min(this.column, columns - 1);
    this.isPastEnd = false;
    this.region(0, rows - 1);
    this.dirtyAll();
  }

  /** Write one character where the cursor is. */
  put(character) {
    if (this.isPastEnd && this.wraps) {
      this.column = 0;
      this.lineFeed();
    }
    const line = this.lines[this.row];
    if (this.isInserting) {
      line.splice(this.column, 0, blank());
      line.length = this.columns;
    }
    line[this.column] = { text: character, style: this.style };
    this.dirty.add(this.row);
    this.isPastEnd = this.column === this.columns - 1;
    if (!this.isPastEnd) this.column += 1;
  }

  /** Put what has no width of its own onto the character before. */
  combine(mark) {
    const at = this.isPastEnd ? this.column : Math.max(0, this.column - 1);
    const cell = this.lines[this.row][at];
    if (cell.text.length < 8) this.lines[this.row][at] = { ...cell, text: cell.text + mark };
    this.dirty.add(this.row);
  }

  lineFeed() {
    this.isPastEnd = false;
    if (this.row === this.bottom) this.scroll(1);
    else this.row = Math.min(this.row + 1, this.rows - 1);
  }

  reverseLineFeed() {
    this.isPastEnd = false;
    if (this.row === this.top) this.scroll(-1);
    else this.row = Math.max(this.row - 1, 0);
  }

  /** Scroll the region up by a number of lines, or down by a negative one. */
  scroll(count, top = this.top) {
    const height = this.bottom - top + 1;
    for (let turn = Math.min(Math.abs(count), height); turn > 0; turn -= 1) {
      if (count > 0) {
        const [gone] = this.lines.splice(top, 1);
        this.lines.splice(this.bottom, 0, this.blankLine());
        if (top === 0 && !this.aside) this.keep(gone);
      } else {
        this.lines.splice(this.bottom, 1);
        this.lines.splice(top, 0, this.blankLine());
      }
    }
    this.dirtyAll();
  }

  keep(line) {
    this.history.push(line);
    if (this.history.length > HISTORY_MAX) this.history.shift();
  }

  move(row, column) {
    this.row = Math.max(0, Math.min(this.rows - 1, row));
    this.column = Math.max(0, Math.min(this.columns - 1, column));
    this.isPastEnd = false;
    this.isDirty = true;
  }

  /** Erase cells of a row, from a column up to another one. */
  eraseCells(row, from, to) {
    const line = this.lines[row];
    const empty = blank(
      this.style.background < 0 ? PLAIN : Object.freeze({ ...PLAIN, background: this.style.background }),
    );
    for (let at = Math.max(0, from); at < Math.min(this.columns, to); at += 1) line[at] = empty;
    this.dirty.add(row);
  }

  eraseRows(from, to) {
    for (let row = Math.max(0, from); row < Math.min(this.rows, to); row += 1) this.eraseCells(row, 0, this.columns);
  }

  insertCells(count) {
    const line = this.lines[this.row];
    line.splice(this.column, 0, ...Array.from({ length: Math.min(count, this.columns) }, () => blank()));
    line.length = this.columns;
    this.dirty.add(this.row);
  }

  deleteCells(count) {
    const line = this.lines[this.row];
    line.splice(this.column, Math.min(count, this.columns));
    while (line.length < this.columns) line.push(blank());
    this.dirty.add(this.row);
  }

  insertLines(count) {
    if (this.row >= this.top && this.row <= this.bottom) this.scroll(-count, this.row);
  }

  deleteLines(count) {
    if (this.row >= this.top && this.row <= this.bottom) this.scroll(count, this.row || 0);
  }

  save() {
    this.saved = { row: this.row, column: this.column, style: this.style };
  }

  restore() {
    const { row, column, style } = this.saved || { row: 0, column: 0, style: PLAIN };
    this.style = style;
    this.move(row, column);
  }

  /** Show another screen in the place of this one, as editors do, and this one again. */
  alternate(isOn) {
    if (isOn && !this.aside) {
      this.aside = { lines: this.lines, row: this.row, column: this.column };
      this.lines = this.blankLines();
    } else if (!isOn && this.aside) {
      const { lines, row, column } = this.aside;
      this.lines = lines;
      this.aside = null;
      this.move(row, column);
    }
    this.dirtyAll();
  }
}
