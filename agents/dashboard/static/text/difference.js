// What differs between two texts, a line at a time.
//
//     difference("a\nb", "a\nc")      [{sign: " ", text: "a"}, {sign: "-", text: "b"}, {sign: "+", text: "c"}]
//
// What is equal at both ends is set aside; the middle is compared by the longest common subsequence.
// A middle of more than CELLS_MAX pairs is told as all gone and all new, so that nobody waits.

const CELLS_MAX = 4_000_000;

export function difference(before, after) {
  const old = before.split("\n");
  const now = after.split("\n");
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start += 1;
  let end = 0;
  while (end < old.length - start && end < now.length - start && old.at(-1 - end) === now.at(-1 - end)) end += 1;
  const same = (lines) => lines.map((text) => ({ sign: " ", text }));
  return [
    ...same(old.slice(0, start)),
    ...middle(old.slice(start, old.length - end), now.slice(start, now.length - end)),
    ...same(old.slice(old.length - end)),
  ];
}

function middle(old, now) {
  if (old.length * now.length > CELLS_MAX) {
    return [...old.map((text) => ({ sign: "-", text })), ...now.map((text) => ({ sign: "+", text }))];
  }
  const width = now.length + 1;
  // common[i * width + j]: how many lines old[i:] and now[j:] have in common.
  const common = new Uint16Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      common[i * width + j] =
        old[i] === now[j]
          ? common[(i + 1) * width + j + 1] + 1
          : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const found = [];
  let i = 0;
  let j = 0;
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      found.push({ sign: " ", text: old[i] });
      i += 1;
      j += 1;
    } else if (i < old.length && (j === now.length || common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      found.push({ sign: "-", text: old[i] });
      i += 1;
    } else {
      found.push({ sign: "+", text: now[j] });
      j += 1;
    }
  }
  return found;
}

/** Return the changed lines with a few equal ones around them; {sign: "…"} stands for those left out. */
export function around(lines, context = 3) {
  const near = new Set();
  lines.forEach(({ sign }, index) => {
    if (sign === " ") return;
    for (let at = index - context; at <= index + context; at += 1) near.add(at);
  });
  const found = [];
  lines.forEach((line, index) => {
    if (near.has(index)) found.push(line);
    else if (found.length && found.at(-1).sign !== "…") found.push({ sign: "…", text: "" });
  });
  return found;
}
