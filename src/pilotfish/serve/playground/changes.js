// What changed between two texts, word by word: what both have in common, in order, stays; the rest goes or is new.

// A word takes the blanks before it along. Where words are not set apart by blanks, a character is a word.
const WORD = /\s*(?:[\p{sc=Han}\p{sc=Hira}\p{sc=Kana}]|[^\s\p{sc=Han}\p{sc=Hira}\p{sc=Kana}]+)|\s+$/gu;
// Most pairs of words that are compared; of longer texts the middle is shown as replaced.
const PAIRS = 4e6;
// Fewer words in common than this, between two changes, are shown as changed: else every other word would be.
const APART = 3;

// A list of [kind, text] with the kinds `span`, `del` and `ins`, which are the elements that show them.
export function changes(was, now) {
  const before = was.match(WORD) ?? [];
  const after = now.match(WORD) ?? [];
  const shorter = Math.min(before.length, after.length);
  let start = 0;
  while (start < shorter && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < shorter - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const middle = compared(before.slice(start, before.length - end), after.slice(start, after.length - end));
  const [first, last] = [before.slice(0, start), before.slice(before.length - end)].map(all("span"));
  return written(runs([...first, ...middle, ...last]));
}

const all = (kind) => (words) => words.map((word) => [kind, word]);

// From one text to the other in steps, each a kind and a word.
function compared(before, after) {
  const steps = [];
  let [row, column] = [0, 0];
  const common = before.length * after.length > PAIRS ? null : lengths(before, after);
  while (common && row < before.length && column < after.length) {
    if (before[row] === after[column]) {
      steps.push(["span", before[row]]);
      [row, column] = [row + 1, column + 1];
    } else if (common(row + 1, column) >= common(row, column + 1)) steps.push(["del", before[row++]]);
    else steps.push(["ins", after[column++]]);
  }
  return [...steps, ...all("del")(before.slice(row)), ...all("ins")(after.slice(column))];
}

// The most words that the rests of both have in common, from each pair of places.
function lengths(before, after) {
  const wide = after.length + 1;
  const common = new Uint16Array((before.length + 1) * wide);
  for (let row = before.length - 1; row >= 0; row -= 1)
    for (let column = after.length - 1; column >= 0; column -= 1) {
      const at = row * wide + column;
      common[at] = before[row] === after[column] ? common[at + wide + 1] + 1 : Math.max(common[at + wide], common[at + 1]);
    }
  return (row, column) => common[row * wide + column];
}

// Steps that stay and steps that change, in turns.
const runs = (steps) => {
  const found = [];
  for (const step of steps) {
    const changed = step[0] !== "span";
    if (found.at(-1)?.changed !== changed) found.push({ changed, steps: [] });
    found.at(-1).steps.push(step);
  }
  return found;
};

const written = (found) => {
  const parts = [];
  for (const [at, run] of found.entries()) {
    const between = at > 0 && at < found.length - 1 && run.steps.length < APART;
    const changed = run.changed || between;
    if (parts.at(-1)?.changed && changed) parts.at(-1).steps = parts.at(-1).steps.concat(run.steps);
    else parts.push({ changed, steps: run.steps });
  }
  return parts.flatMap(shown).filter(([, text]) => text);
};

const shown = ({ changed, steps }) => {
  const without = (kind) => steps.filter(([step]) => step !== kind).map(([, word]) => word).join("");
  return changed ? [["del", without("ins")], ["ins", without("del")]] : [["span", without()]];
};
