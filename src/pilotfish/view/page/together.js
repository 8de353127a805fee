"use strict";
// Several episodes of one task: a group side by side, or what was said on it as training went on.
const together = (() => {
  const MOST = 256;

  const group = (number) => {
    const found = rows.where((other) => rows.columns.group[other] === rows.columns.group[number]);
    const { row, step } = rows.columns;
    return found.sort((a, b) => (row[a] ?? step[a] ?? a) - (row[b] ?? step[b] ?? b)).slice(0, MOST);
  };

  // The steps at which a task was played: on the holdout, or else the first row of each of its groups.
  const story = (number) => {
    const of = (kind) =>
      rows.where((other) => rows.columns.task[other] === rows.columns.task[number] && rows.text("kind", other) === kind);
    const held = of("holdout");
    const trained = of("train").filter((other) => !rows.columns.row[other] && rows.text("answer", other) === "");
    const found = held.length ? held : trained;
    const { part, step, decision } = rows.columns;
    const order = (a, b) => part[a] - part[b] || step[a] - step[b] || decision[a] - decision[b] || a - b;
    return found.sort(order).slice(0, MOST);
  };

  // What the trainee said at the decision that was trained, or first of all.
  const said = (found, number) => {
    const own = (found.turns ?? []).filter((turn) => turn.trainee && turn.said !== null);
    const depth = rows.columns.decision[number];
    return (own.find((turn) => turn.depth === depth) ?? own[0])?.said ?? null;
  };

  const title = (number) => {
    const kind = rows.text("kind", number);
    if (kind === "train") return [`row ${rows.columns.row[number]}`, rows.text("answer", number)].filter(Boolean).join(", ");
    return kind === "holdout" ? `step ${rows.columns.step[number]}` : rows.text("method", number);
  };

  // What a group has in common, and its rewards where it was learned from.
  const about = (numbers) => {
    const step = rows.text("kind", numbers[0]) === "train" ? `step ${rows.columns.step[numbers[0]]}` : "";
    const rewards = numbers.map((number) => rows.columns.worth[number]).filter((reward) => reward !== null);
    const mean = rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
    const learned = rewards.length ? `${rewards.length} rewards, mean ${shown(mean)}` : "";
    return [rows.text("part", numbers[0]), step, learned].filter(Boolean).join(" · ");
  };

  const worth = (number, found) => {
    const advantage = rows.columns.advantage[number];
    if (advantage === null) return make("p", {}, episode.verdict(found.reward));
    const reward = `reward ${shown(rows.columns.worth[number])}, advantage `;
    const kind = advantage > 0 ? "right" : advantage < 0 ? "wrong" : "quiet";
    return make("p", {}, episode.verdict(found.reward), make("br"), reward, make("b", { class: kind }, signed(advantage)));
  };

  const card = (number, found, words, link) =>
    make(
      "div",
      { class: "card" },
      make("h4", {}, link(number, title(number))),
      found.missing ? make("p", { class: "wrong" }, found.missing) : worth(number, found),
      words === null ? null : words,
      found.answer === null || found.missing ? null : episode.folded("the team's answer", episode.words(found.answer)),
      found.missing ? null : episode.used(found),
    );

  const side = (numbers, found, link) =>
    make(
      "div",
      { class: "cards" },
      ...numbers.map((number, at) => {
        const words = said(found[at], number);
        return card(number, found[at], words === null ? null : episode.words(words), link);
      }),
    );

  // Down the steps; words that did not change are not shown again.
  const told = (numbers, found, link) => {
    let before = null;
    const cards = numbers.map((number, at) => {
      const words = said(found[at], number);
      const same = words !== null && words === before;
      before = words;
      const text = words === null ? null : same ? make("p", { class: "quiet" }, "the same words as before") : episode.words(words);
      const one = card(number, found[at], text, link);
      if (rows.text("kind", number) === "train") one.querySelector("h4").prepend(`step ${rows.columns.step[number]}, `);
      return one;
    });
    return make("div", { class: "steps" }, ...cards);
  };

  return { group, story, side, told, about };
})();
