// A model at work: its turns in a column, and how it ended. What it is told of are the server's events, by their names.
import { aside, button, card, make, total, verdict, words } from "./turns.js";

// Who hears the events of one model. `placed` and `ended` are given each card, `found` and `failed` what it came to.
export function listener({ placed, ended = () => {}, found, failed }) {
  const cards = new Map();
  return {
    cards,
    answer: null,
    over: false,
    turn(fields) {
      cards.set(fields.turn, placed(fields));
    },
    delta(fields) {
      cards.get(fields.turn).add(fields.text);
    },
    turn_done(fields) {
      const one = cards.get(fields.turn);
      one.end(fields);
      ended(one);
    },
    verdict(fields) {
      this.answer = fields;
      this.over = true;
      found(fields);
    },
    error(fields) {
      this.stop(fields.error.message);
    },
    // It ends, if it has not, before it has an answer.
    stop(why) {
      if (this.over) return;
      this.over = true;
      for (const one of cards.values()) one.stop();
      failed(why);
    },
  };
}

// A column of turns; with a gold answer the verdict stands below them.
export function column(title, gold) {
  const list = make("div");
  const foot = make("div", { class: "foot" });
  const element = make("section", {}, make("h2", {}, title), list, foot);
  const one = listener({
    placed(fields) {
      const begun = card(fields);
      list.append(begun.element);
      return begun;
    },
    found(answer) {
      foot.append(...[apart(answer, one.cards), gold && verdict(answer), total(answer)].filter(Boolean));
    },
    failed: (why) => foot.append(make("p", { class: "wrong" }, why)),
  });
  return Object.assign(one, { element, foot });
}

// The answer, where no turn is marked as it: after a vote, say.
const apart = (answer, cards) => {
  const marked = [...cards.values()].some((one) => one.begun.final);
  return marked ? null : make("div", {}, make("h3", {}, "The answer"), words(answer.answer).element);
};

// A turn of the trainee gets a button that opens its words for an edit; `replay` is given the new ones.
export function editable(one, replay) {
  const { member } = one.begun;
  const field = make("textarea", { rows: "6", maxlength: "20000", dir: "auto" });
  field.value = one.ended.text;
  const edit = button("Edit", () => shown(true));
  const go = button("Replay from here", () => (shown(false), replay(field.value)));
  const leave = button("Leave it", () => shown(false));
  const label = make("label", {}, "What ", aside(member), " says instead", field);
  const editor = make("div", { class: "editor" }, label, make("p", { class: "buttons" }, go, leave));
  const shown = (open) => {
    editor.hidden = !open;
    edit.hidden = one.said.hidden = open;
    (open ? field : edit).focus();
  };
  editor.hidden = true;
  edit.setAttribute("aria-label", `Edit what ${member} says`);
  one.said.after(edit, editor);
}
