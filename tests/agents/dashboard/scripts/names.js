// Names that are used without being known, or known without being used, in the modules of the page.
//
//     node --expose-internals --experimental-default-type=module names.js FILE…
//
// Node has a parser of its own (acorn), so that no tool is needed. Scopes are coarse: a name that is
// declared anywhere in a module is known everywhere in it.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const acorn = require("internal/deps/acorn/acorn/dist/acorn");
const walk = require("internal/deps/acorn/acorn-walk/dist/walk");
const GLOBALS = new Set(("AbortController AbortSignal Array Blob Boolean DOMException Date Error Infinity Intl JSON Map Math NaN Node Number Object Promise "
  + "ResizeObserver Set String TextDecoder TextDecoderStream TextEncoder URL URLSearchParams Uint16Array Uint8Array WeakMap WebSocket addEventListener "
  + "btoa decodeURIComponent encodeURIComponent RegExp clearInterval clearTimeout console document fetch history isSecureContext location navigator setInterval setTimeout undefined Symbol").split(" "));

const problems = [];
for (const file of process.argv.slice(2)) {
  const text = readFileSync(file, "utf8");
  const tree = acorn.parse(text, { ecmaVersion: "latest", sourceType: "module", locations: true });
  const declared = new Map();
  const declare = (pattern, isOptional = false) => {
    if (!pattern) return;
    if (pattern.type === "Identifier") declared.set(pattern.name, { at: pattern.loc.start.line, isOptional });
    else if (pattern.type === "ObjectPattern") for (const each of pattern.properties) declare(each.value || each.argument, isOptional || pattern.properties.some((one) => one.type === "RestElement"));
    else if (pattern.type === "ArrayPattern") for (const each of pattern.elements) declare(each, true);
    else if (pattern.type === "AssignmentPattern") declare(pattern.left, isOptional);
    else if (pattern.type === "RestElement") declare(pattern.argument, isOptional);
  };
  const exported = new Set();
  walk.full(tree, (node) => {
    if (node.type === "VariableDeclarator") declare(node.id);
    if (/Function/.test(node.type)) {
      if (node.id) declare(node.id, node.type === "FunctionExpression");
      // Arguments before one that is used have to be there.
      node.params.forEach((each, at) => declare(each, at < node.params.length - 1));
    }
    if (node.type === "ClassDeclaration") declare(node.id);
    if (node.type === "CatchClause") declare(node.param);
    if (/^Import.*Specifier$/.test(node.type)) declare(node.local);
    if (node.type === "ExportNamedDeclaration" && node.declaration) {
      for (const each of node.declaration.declarations || [node.declaration]) exported.add(each.id.name);
    }
  });
  const names = new Map();
  walk.full(tree, (node, _, type) => {
    if (node.type === "Identifier" && type !== "VariablePattern") names.set(node.name, true);
    if (node.type === "AssignmentExpression" && node.operator !== "=" && node.left.type === "Identifier") names.set(node.left.name, true);
  });
  for (const name of names.keys()) if (!declared.has(name) && !GLOBALS.has(name)) problems.push(`${file}: ${name} is not known`);
  for (const [name, { at, isOptional }] of declared) {
    if (!names.has(name) && !exported.has(name) && !isOptional && !name.startsWith("_")) problems.push(`${file}:${at}: ${name} is not used`);
  }
}
console.log(problems.join("\n"));
