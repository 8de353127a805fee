"use strict";
// One episode, turn by turn.
const episode = (() => {
  const tokens = ([prompt, completion]) => `${prompt.toLocaleString("en")} + ${completion.toLocaleString("en")} tokens`;

  const words = (text) => make("pre", { dir: "auto", tabindex: text.length > 2000 ? "0" : null }, text);

  const folded = (title, ...inside) => make("details", {}, make("summary", {}, title), ...inside);

  const verdict = (reward) => {
    const word = reward === null ? "no verdict" : reward >= 0.5 ? "right" : "wrong";
    return make("span", { class: word }, `${word}${reward === null ? "" : `, ${shown(reward)}`}`);
  };

  const marks = (turn) =>
    [
      turn.trainee && "the trainee",
      turn.trainee && `decision ${turn.depth}`,
      turn.final && "the team's answer",
      turn.finish === "length" ? "cut off at its limit" : turn.finish !== "stop" && turn.finish,
      turn.tries > 0 && `${turn.tries} failed tries before`,
    ].filter(Boolean);

  const turn = (one) => {
    const told = one.messages.flatMap(([role, text]) => [make("p", { class: "quiet" }, aside(role)), words(text)]);
    return make(
      "div",
      { class: `turn${one.trainee ? " trainee" : ""}` },
      make("p", {}, make("b", {}, aside(one.member)), ` `, make("span", { class: "quiet" }, [...marks(one), tokens(one.tokens), `${shown(one.seconds, 2)} s`].join(" · "))),
      folded("what it was told", ...told),
      one.reasoning ? folded("reasoning", words(one.reasoning)) : null,
      one.said === null ? make("p", { class: "wrong" }, one.error) : words(one.said),
    );
  };

  // Where it was played, in words.
  const place = (number) => {
    const { step, sample, decision, row } = rows.columns;
    return [
      rows.text("part", number),
      rows.text("method", number),
      step[number] !== null && `step ${step[number]}`,
      sample[number] !== null && `${rows.text("kind", number) === "eval" ? "sample" : "set"} ${sample[number]}`,
      decision[number] !== null && `decision ${decision[number]}, row ${row[number]}`,
      rows.text("answer", number),
    ]
      .filter(Boolean)
      .join(" · ");
  };

  const learned = (number) => {
    const { worth, advantage, each } = rows.columns;
    const line = (whose, reward, advantage) => {
      const worth = reward === null ? "no reward: nothing is learned from it" : `reward ${shown(reward)}`;
      return make("p", {}, `${whose}${worth}, advantage ${signed(advantage)}`);
    };
    if (each[number]) return make("div", {}, ...each[number].map(([decision, ...found]) => line(`decision ${decision}: `, ...found)));
    return advantage[number] === null ? null : line("", worth[number], advantage[number]);
  };

  const flipped = (number) =>
    rows.flip(number) ? make("p", {}, `Flip against the actor alone: ${rows.flip(number)}`) : null;

  const used = (found) =>
    make("ul", { class: "quiet used" }, ...found.tokens.map(([member, ...spent]) => make("li", {}, aside(member), `: ${tokens(spent)}`)));

  const head = (number, links) =>
    make(
      "div",
      {},
      make("h2", { tabindex: "-1" }, "Task ", aside(rows.text("task", number))),
      make("p", { class: "quiet" }, aside(place(number))),
      make("nav", {}, ...links),
    );

  const draw = (number, found, links) => {
    if (found.missing) return make("div", {}, head(number, links), make("p", { class: "wrong" }, found.missing));
    const read = found.extracted ? make("span", {}, ", read as ", aside(found.extracted)) : null;
    return make(
      "div",
      {},
      head(number, links),
      make("p", { class: "verdict" }, verdict(found.reward), read),
      found.why ? make("p", { class: "quiet", dir: "auto" }, found.why) : null,
      learned(number),
      flipped(number),
      make("h3", {}, "Question"),
      words(found.question),
      make("h3", {}, found.turns.length === 1 ? "1 turn" : `${found.turns.length} turns`),
      ...found.turns.map(turn),
      make("h3", {}, "Tokens, prompt + completion"),
      used(found),
      make("p", { class: "quiet" }, aside(found.id)),
    );
  };

  return { draw, words, folded, verdict, used };
})();
