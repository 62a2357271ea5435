// Bytes of a program to operations of a screen: UTF-8, control characters and the escape sequences of
// a VT100 with colours, which shells, editors and pagers send (TERM=xterm).
//
// What a program may not do here: set the title, write the clipboard, print, or have anything typed
// for it but where the cursor is and what the terminal is. Sequences that are not known are left out;
// none is longer than SEQUENCE_MAX.

const SEQUENCE_MAX = 4096;
const NUMBERS_MAX = 32;
const NUMBER_MAX = 9999;
const GRAPHICS = "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·";
const COMBINING = /\p{M}/u;
const IDENTITY = "\u001b[?1;2c";

export class Parser {
  /** reply(text): what the terminal says to the program. */
  constructor(screen, reply) {
    this.screen = screen;
    this.reply = reply;
    this.reset();
  }

  reset() {
    this.decoder = new TextDecoder();
    this.state = this.ground;
    this.sequence = "";
    this.isGraphic = false;
  }

  write(bytes) {
    for (const character of this.decoder.decode(bytes, { stream: true })) this.state(character);
  }

  ground(character) {
    const code = character.codePointAt(0);
    if (code === 0x1b) this.begin(this.escape);
    else if (code < 0x20 || (code >= 0x7f && code < 0xa0)) this.control(code);
    else if (code > 0x2ff && COMBINING.test(character)) this.screen.combine(character);
    else if (this.isGraphic && code >= 0x60 && code < 0x7f) this.screen.put(GRAPHICS[code - 0x60] || " ");
    else this.screen.put(character);
  }

  control(code) {
    const { screen } = this;
    if (code === 0x08) screen.move(screen.row, screen.column - 1);
    else if (code === 0x09) screen.move(screen.row, (Math.floor(screen.column / 8) + 1) * 8);
    else if (code >= 0x0a && code <= 0x0c) screen.lineFeed();
    else if (code === 0x0d) screen.move(screen.row, 0);
    else if (code === 0x0e) this.isGraphic = true;
    else if (code === 0x0f) this.isGraphic = false;
  }

  begin(state) {
    this.sequence = "";
    this.state = state;
  }

  escape(character) {
    const { screen } = this;
    this.state = this.ground;
    if (character === "[") this.begin(this.csi);
    else if (character === "]" || "P^_X".includes(character)) this.begin(this.text);
    else if ("()*+".includes(character))
      this.begin((which) => {
        this.isGraphic = character === "(" ? which === "0" : this.isGraphic;
        this.state = this.ground;
      });
    else if (" #%".includes(character))
      this.begin(() => {
        this.state = this.ground;
      });
    else if (character === "7") screen.save();
    else if (character === "8") screen.restore();
    else if (character === "D") screen.lineFeed();
    else if (character === "E") {
      screen.move(screen.row, 0);
      screen.lineFeed();
    } else if (character === "M") screen.reverseLineFeed();
    else if (character === "c") {
      screen.reset();
      this.reset();
    }
  }

  /** Leave out a text for the terminal, such as a title, up to its end. */
  text(character) {
    this.sequence += 1;
    if (character === "\u0007" || character === "\u0018" || this.sequence.length > SEQUENCE_MAX)
      this.state = this.ground;
    else if (character === "\u001b")
      this.begin((next) => {
        this.state = next === "\\" ? this.ground : this.text;
      });
  }

  csi(character) {
    const code = character.codePointAt(0);
    if (code < 0x20) {
      if (code === 0x1b) this.begin(this.escape);
      else this.control(code);
    } else if (code < 0x40) {
      this.sequence += character;
      if (this.sequence.length > SEQUENCE_MAX) this.state = this.ground;
    } else {
      this.state = this.ground;
      this.run(character);
    }
  }

  run(final) {
    const mark = /^[<=>?]/.exec(this.sequence)?.[0] || "";
    if (/[ -/]/.test(this.sequence) && final !== "p") return;
    const numbers = this.sequence
      .slice(mark.length)
      .split(/[;:]/)
      .slice(0, NUMBERS_MAX)
      .map((each) => (each === "" ? null : Math.min(NUMBER_MAX, Number(each) || 0)));
    const one = (at = 0) => Math.max(1, numbers[at] ?? 1);
    if (mark === "?" && "hl".includes(final)) this.modes(numbers, final === "h");
    else if (mark === ">" || mark === "=") return;
    else if (mark === "" && final in SIMPLE) SIMPLE[final](this.screen, one, numbers);
    else if (mark === "" && "hl".includes(final) && numbers[0] === 4) this.screen.isInserting = final === "h";
    else if (mark === "" && final === "c") this.reply(IDENTITY);
    else if (mark === "" && final === "n" && numbers[0] === 6)
      this.reply(`\u001b[${this.screen.row + 1};${this.screen.column + 1}R`);
    else if (mark === "" && final === "n" && numbers[0] === 5) this.reply("\u001b[0n");
    else if (mark === "" && final === "m") colours(this.screen, numbers);
  }

  modes(numbers, isOn) {
    const { screen } = this;
    for (const number of numbers) {
      if (number === 1) screen.keysOfApplications = isOn;
      else if (number === 7) screen.wraps = isOn;
      else if (number === 25) {
        screen.isVisible = isOn;
        screen.isDirty = true;
      } else if (number === 47 || number === 1047) screen.alternate(isOn);
      else if (number === 1048) isOn ? screen.save() : screen.restore();
      else if (number === 1049) {
        if (isOn) screen.save();
        screen.alternate(isOn);
        if (!isOn) screen.restore();
      } else if (number === 2004) screen.bracketsPaste = isOn;
    }
  }
}

const SIMPLE = {
  A: (screen, one) => screen.move(screen.row - one(), screen.column),
  B: (screen, one) => screen.move(screen.row + one(), screen.column),
  C: (screen, one) => screen.move(screen.row, screen.column + one()),
  D: (screen, one) => screen.move(screen.row, screen.column - one()),
  E: (screen, one) => screen.move(screen.row + one(), 0),
  F: (screen, one) => screen.move(screen.row - one(), 0),
  G: (screen, one) => screen.move(screen.row, one() - 1),
  H: (screen, one) => screen.move(one() - 1, one(1) - 1),
  J: (screen, _, [what]) => {
    if (!what) {
      screen.eraseCells(screen.row, screen.column, screen.columns);
      screen.eraseRows(screen.row + 1, screen.rows);
    } else if (what === 1) {
      screen.eraseRows(0, screen.row);
      screen.eraseCells(screen.row, 0, screen.column + 1);
    } else screen.eraseRows(0, screen.rows);
    if (what === 3) screen.history = [];
  },
  K: (screen, _, [what]) =>
    screen.eraseCells(screen.row, what ? 0 : screen.column, what === 1 ? screen.column + 1 : screen.columns),
  L: (screen, one) => screen.insertLines(one()),
  M: (screen, one) => screen.deleteLines(one()),
  P: (screen, one) => screen.deleteCells(one()),
  S: (screen, one) => screen.scroll(one()),
  T: (screen, one) => screen.scroll(-one()),
  X: (screen, one) => screen.eraseCells(screen.row, screen.column, screen.column + one()),
  "@": (screen, one) => screen.insertCells(one()),
  "`": (screen, one) => screen.move(screen.row, one() - 1),
  a: (screen, one) => screen.move(screen.row, screen.column + one()),
  d: (screen, one) => screen.move(one() - 1, screen.column),
  e: (screen, one) => screen.move(screen.row + one(), screen.column),
  f: (screen, one) => screen.move(one() - 1, one(1) - 1),
  r: (screen, one, [, bottom]) => {
    screen.region(one() - 1, (bottom || screen.rows) - 1);
    screen.move(0, 0);
  },
  s: (screen) => screen.save(),
  u: (screen) => screen.restore(),
};

/** Set how characters look from now on. */
function colours(screen, numbers) {
  for (let at = 0; at < numbers.length; at += 1) {
    const number = numbers[at] ?? 0;
    if (number === 0) screen.plainStyle();
    else if (number === 1) screen.styled({ bold: true });
    else if (number === 2) screen.styled({ dim: true });
    else if (number === 3) screen.styled({ italic: true });
    else if (number === 4) screen.styled({ underline: true });
    else if (number === 7) screen.styled({ inverse: true });
    else if (number === 22) screen.styled({ bold: false, dim: false });
    else if (number === 23) screen.styled({ italic: false });
    else if (number === 24) screen.styled({ underline: false });
    else if (number === 27) screen.styled({ inverse: false });
    else if (number >= 30 && number <= 37) screen.styled({ foreground: number - 30 });
    else if (number >= 90 && number <= 97) screen.styled({ foreground: number - 82 });
    else if (number === 39) screen.styled({ foreground: -1 });
    else if (number >= 40 && number <= 47) screen.styled({ background: number - 40 });
    else if (number >= 100 && number <= 107) screen.styled({ background: number - 92 });
    else if (number === 49) screen.styled({ background: -1 });
    else if (number === 38 || number === 48) at += large(screen, number, numbers.slice(at + 1));
  }
}

/** Take a colour of 256, or of red, green and blue; return how many numbers it has. */
function large(screen, number, [form, ...values]) {
  const name = number === 38 ? "foreground" : "background";
  if (form === 5) {
    screen.styled({ [name]: Math.min(255, values[0] ?? 0) });
    return 2;
  }
  if (form !== 2) return 1;
  const [red, green, blue] = values.slice(0, 3).map((each) => Math.round((Math.min(255, each ?? 0) * 5) / 255));
  screen.styled({ [name]: 16 + 36 * (red || 0) + 6 * (green || 0) + (blue || 0) }); // the nearest of the cube
  return 4;
}
