"use strict";
// All episodes of the run as columns of numbers, and which of them a filter lets through.
const rows = (() => {
  const CODED = ["kind", "part", "task", "method", "answer"];
  const RIGHT = 0.5;
  const columns = {};
  const decisions = new Set();
  const names = Object.fromEntries(CODED.map((name) => [name, []]));
  const codes = Object.fromEntries(CODED.map((name) => [name, new Map()]));
  let count = 0;

  const code = (name, text) => {
    const known = codes[name];
    if (!known.has(text)) {
      known.set(text, names[name].length);
      names[name].push(text);
    }
    return known.get(text);
  };

  // A chunk has codes of its own; the same one may come again with other figures.
  const put = (first, chunk) => {
    for (const [name, values] of Object.entries(chunk.columns)) {
      const own = CODED.includes(name) ? chunk.names[name].map((text) => code(name, text)) : null;
      const column = (columns[name] ??= []);
      for (let at = 0; at < values.length; at++) column[first + at] = own ? own[values[at]] : values[at];
    }
    count = Math.max(count, first + chunk.columns.mark.length);
    for (const decision of chunk.columns.decision) if (decision !== null) decisions.add(decision);
  };

  const text = (name, number) => names[name][columns[name][number]];

  const verdict = (number) => {
    const reward = columns.reward[number];
    return reward === null ? "none" : reward >= RIGHT ? "right" : "wrong";
  };

  // Against the actor alone on the same task or sample.
  const flip = (number) => {
    const [alone, reward] = [columns.alone[number], columns.reward[number]];
    if (alone === null || reward === null || alone >= RIGHT === reward >= RIGHT) return "";
    return reward >= RIGHT ? "wrong to right" : "right to wrong";
  };

  // Codes that a text stands for, so that each row needs one look.
  const having = (name, fits) => new Set(names[name].flatMap((text, at) => (fits(text) ? [at] : [])));

  const tests = (filter) => {
    const kept = [];
    const among = (name, fits) => {
      const found = having(name, fits);
      kept.push((number) => found.has(columns[name][number]));
    };
    if (filter.task) among("task", (text) => text.toLowerCase().includes(filter.task.toLowerCase()));
    if (filter.method) among("method", (text) => text === filter.method);
    if (filter.part) among("part", (text) => text === filter.part);
    if (filter.verdict) kept.push((number) => verdict(number) === filter.verdict);
    if (filter.flip) kept.push((number) => flip(number) === filter.flip);
    if (filter.from) kept.push((number) => columns.step[number] !== null && columns.step[number] >= +filter.from);
    if (filter.to) kept.push((number) => columns.step[number] !== null && columns.step[number] <= +filter.to);
    if (filter.decision) kept.push((number) => columns.decision[number] === +filter.decision);
    return kept;
  };

  const ORDERS = {
    "by task": () => {
      const { compare } = new Intl.Collator(undefined, { numeric: true });
      const ranks = [];
      names.task.map((text, at) => [text, at]).sort(([a], [b]) => compare(a, b)).forEach(([, at], rank) => (ranks[at] = rank));
      return (number) => ranks[columns.task[number]];
    },
    "by advantage": () => (number) => -(columns.advantage[number] ?? -Infinity),
  };

  // The numbers of the rows that a filter lets through, in its order.
  const matching = (filter) => {
    const kept = tests(filter);
    const found = [];
    for (let number = 0; number < count; number++) if (kept.every((test) => test(number))) found.push(number);
    if (filter.order in ORDERS) {
      const of = ORDERS[filter.order]();
      found.sort((a, b) => of(a) - of(b) || a - b);
    } else if (filter.order !== "oldest first") found.reverse();
    return found;
  };

  const where = (test) => {
    const found = [];
    for (let number = 0; number < count; number++) if (test(number)) found.push(number);
    return found;
  };

  return {
    columns,
    put,
    matching,
    where,
    text,
    verdict,
    flip,
    names,
    decisions,
    get count() {
      return count;
    },
    marked: (mark) => columns.mark?.indexOf(+mark) ?? -1,
  };
})();

// 0.5 as 0.5, 1 as 1, nothing as a dash.
const shown = (value, digits = 3) => (value === null || value === undefined ? "–" : String(+value.toFixed(digits)));
const signed = (value) => (value > 0 ? "+" : "") + shown(value, 2).replace("-", "−");
