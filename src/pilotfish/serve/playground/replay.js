// What follows when the trainee says something else: old and new turns side by side, and what changed in the answer.
import { changes } from "./changes.js";
import { listener } from "./team.js";
import { aside, button, card, make, total, verdict } from "./turns.js";

// `before` is the listener of the episode as it was, `edited` the card whose words are replaced.
export function replay(title, before, edited, gold, cancel) {
  const heading = make("h2", { tabindex: "-1" }, title, ": ", aside(edited.begun.member), " says something else");
  const halt = button("Cancel", cancel);
  const rows = make("div");
  const foot = make("div", { class: "foot" });
  const sides = new Map();
  const one = listener({
    placed(fields) {
      const now = card(fields);
      sides.set(now, side(before.cards.get(fields.turn), now));
      rows.append(sides.get(now));
      return now;
    },
    ended(now) {
      const was = before.cards.get(now.begun.turn);
      if (was?.ended && same(was.ended, now.ended)) sides.get(now).replaceChildren(unchanged(now));
    },
    found(answer) {
      rows.append(...unasked(before.cards, one.cards));
      foot.append(...outcome(before.answer, answer, gold));
      end();
    },
    failed(why) {
      foot.append(make("p", { class: "wrong", role: "alert" }, why));
      end();
    },
  });
  const end = () => {
    if (document.activeElement === halt) heading.focus();
    halt.remove();
  };
  one.element = make("section", { class: "replay" }, heading, halt, rows, foot);
  one.show = () => heading.focus();
  return one;
}

const side = (was, now) =>
  make("div", { class: "sides" }, was?.ended ? old(was) : make("p", { class: "quiet" }, "not asked before"), now.element);

const old = ({ begun, ended }) => {
  const was = card(begun, "as it was");
  was.end(ended);
  return was.element;
};

const same = (was, now) => !now.edited && was.text === now.text && was.outcome === now.outcome;

const unchanged = (now) => make("p", { class: "quiet" }, aside(now.begun.member), ": as it was");

// Turns that there are no more.
const unasked = (before, now) =>
  [...before]
    .filter(([place, was]) => was.ended && !now.has(place))
    .map(([, was]) => make("div", { class: "sides" }, old(was), make("p", { class: "quiet" }, "not asked now")));

const outcome = (was, now, gold) => {
  const verdicts = make("div", { class: "sides" }, labelled("as it was", was), labelled("now", now));
  const title = make("h3", {}, "What changed in the answer");
  return [title, ...(gold ? [verdicts] : []), difference(was.answer, now.answer), total(now)];
};

const labelled = (label, answer) => make("div", {}, make("p", { class: "quiet" }, label), verdict(answer));

const difference = (was, now) => {
  if (was === now) return make("p", {}, "Nothing: it is the same, word for word.");
  const marked = changes(was, now).map(([kind, text]) => make(kind, {}, text));
  return make("pre", { dir: "auto", tabindex: "0", role: "group", "aria-label": "the answer, with what changed" }, ...marked);
};
