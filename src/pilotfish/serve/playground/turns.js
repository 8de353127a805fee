// Turns as they come, a card for each, and what became of them.

// An element with attributes and children. Strings become text and never markup, whatever a model has said.
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "click") element.addEventListener("click", value);
    else if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A name: text of others, which keeps its direction to itself.
export const aside = (text) => make("bdi", {}, text);

export const button = (label, click) => make("button", { type: "button", click }, label);

const number = (value) => value.toLocaleString("en");
const tokens = (usage) => `${number(usage.prompt_tokens)} tokens read, ${number(usage.completion_tokens)} written`;
const seconds = (value) => `${value.toFixed(value < 10 ? 2 : 0)} s`;

// Characters of a text that are shown until all are asked for.
const FOLD = 1500;

// Words of a model, which may grow while they are looked at: `add` a piece, or `set` all of it.
export function words(first = "") {
  const shown = document.createTextNode("");
  const pre = make("pre", { dir: "auto" }, shown);
  const more = button("", () => ((whole = !whole), draw()));
  let text = "";
  let whole = false;
  let waiting = false;

  const draw = () => {
    waiting = false;
    const long = text.length > FOLD;
    const folded = long && !whole;
    const seen = folded ? `${text.slice(0, FOLD).replace(/[\ud800-\udbff]$/, "")} …` : text;
    // What grows is added to, so that a selection in it lives.
    if (seen.startsWith(shown.data)) shown.appendData(seen.slice(shown.data.length));
    else shown.data = seen;
    // A box that may scroll must be reached by the keyboard.
    if (long) pre.tabIndex = 0;
    more.hidden = !long;
    more.setAttribute("aria-expanded", whole);
    more.textContent = folded ? `show all ${number(text.length)} characters` : "show less";
  };
  const set = (all) => ((text = all), draw());
  const add = (piece) => {
    text += piece;
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  };
  set(first);
  return { element: make("div", { class: "words" }, pre, more), add, set };
}

const told = (messages) =>
  make(
    "details",
    {},
    make("summary", {}, "what it was told"),
    ...messages.flatMap(({ role, content }) => [make("p", { class: "quiet" }, aside(role)), words(content).element]),
  );

const used = (ended) =>
  [
    ended.edited && "edited",
    ended.finish_reason === "length" && "cut off at its limit",
    !ended.edited && tokens(ended.usage),
    !ended.edited && seconds(ended.seconds),
  ].filter(Boolean);

// One turn. `marks` say what else there is to know of it.
export function card(begun, ...marks) {
  const known = [begun.decision !== null && "the trainee", begun.final && "the answer", ...marks].filter(Boolean);
  const facts = make("span", { class: "quiet" }, known.join(" · "));
  const said = words();
  const trainee = begun.decision === null ? "" : " trainee";
  const element = make(
    "div",
    { class: `turn${trainee} speaking` },
    make("p", {}, make("b", {}, aside(begun.member)), " ", facts),
    said.element,
    told(begun.messages),
  );
  const one = { element, begun, said: said.element, add: said.add, ended: null };
  one.stop = () => element.classList.remove("speaking");
  one.end = (ended) => {
    one.ended = ended;
    one.stop();
    facts.textContent = [...known, ...used(ended)].join(" · ");
    said.set(ended.text || (ended.outcome === "answered" ? "(no words)" : "(no answer)"));
  };
  return one;
}

// Whether an answer is right.
export const verdict = ({ reward, extracted, why }) => {
  if (reward === null) return make("p", { class: "quiet", dir: "auto" }, `no verdict: ${why}`);
  const right = reward >= 0.5;
  const word = `${right ? "right" : "wrong"}${reward % 1 ? `, ${reward}` : ""}`;
  const read = extracted && make("span", {}, ", read as ", aside(extracted));
  return make("p", { class: "verdict" }, make("span", { class: right ? "right" : "wrong" }, word), read);
};

export const total = ({ usage, seconds: taken }) => {
  const cost = usage.cost === undefined ? "" : ` · cost ${usage.cost.toPrecision(2)}`;
  return make("p", { class: "quiet" }, `${tokens(usage)}${cost} · ${seconds(taken)} in all`);
};
