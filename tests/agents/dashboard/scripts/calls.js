// Calls functions of the page's modules: a line of JSON in, {module, name, calls: [[argument, …], …]},
// a line of JSON out, their results. `terminal` plays texts to a screen instead.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [root] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${root}/${name}`).href);

async function terminal([columns, rows, texts]) {
  const { Screen } = await load("terminal/screen.js");
  const { Parser } = await load("terminal/parser.js");
  const { runs } = await load("terminal/view.js");
  const screen = new Screen(columns, rows);
  const replies = [];
  const parser = new Parser(screen, (text) => replies.push(text));
  for (const text of texts) {
    if (Array.isArray(text)) screen.resize(...text);
    else parser.write(Buffer.from(text, "latin1"));
  }
  return {
    rows: screen.lines.map((line) => line.map((cell) => cell.text).join("").trimEnd()), row: screen.row, column: screen.column,
    history: screen.history.length, replies: replies.join(""), styles: runs(screen.lines[0], -1).map(({ text, style }) => [text, style]),
    size: [screen.lines.length, ...new Set(screen.lines.map((line) => line.length))],
  };
}

const { module, name, calls } = JSON.parse(readFileSync(0, "utf8"));
const run = name === "terminal" ? terminal : (await load(module))[name];
const results = [];
for (const each of calls) results.push(name === "terminal" ? await run(each) : await run(...each));
process.stdout.write(JSON.stringify(results.map((each) => (each === undefined ? null : each))));
