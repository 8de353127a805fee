// The page: a question goes to the team, and to one member alone beside it; then a hint is edited and the rest replayed.
import { cancel, play } from "./play.js";
import { replay } from "./replay.js";
import { Problem, models, useKey } from "./stream.js";
import { column, editable } from "./team.js";
import { aside, button, make, words } from "./turns.js";

const [key, ask, status, problem, found, earlier] = ["key", "ask", "status", "problem", "found", "earlier"].map((id) =>
  document.getElementById(id),
);
const { question, gold, verifier, beside } = ask.elements;
const [start, halt] = ask.querySelectorAll(".buttons button");
const NAMES = { actor: "The actor alone", alone: "The trainee alone" };
const named = (model) => NAMES[model] ?? `${model}, alone`;

// Messages before the question.
let context = [];
let met = false;

// Who plays, and who can be asked beside.
async function meet() {
  const offered = await models();
  const team = offered.find((model) => model.id === "team").pilotfish;
  const trained = team.trained ? " (the trainee, trained)" : " (the trainee, before training)";
  const seats = team.members.map(({ name, trainee }) => make("span", {}, aside(name), trainee ? trained : ""));
  const listed = seats.flatMap((seat) => [", ", seat]).slice(1);
  document.getElementById("team").replaceChildren(`${team.topology}: `, ...listed);
  const others = offered.map((model) => model.id).filter((id) => id !== "team");
  const nobody = make("option", { value: "" }, "nobody");
  beside.replaceChildren(nobody, ...others.map((id) => make("option", { value: id }, named(id))));
  beside.value = others.includes("actor") ? "actor" : (others[0] ?? "");
  met = true;
}

const show = (error) => {
  if (!(error instanceof Problem)) throw error;
  problem.textContent = error.message;
  key.hidden = error.status !== 401;
  if (!key.hidden) key.elements.given.focus();
};

const busy = (on) => {
  if (!on && document.activeElement === halt) start.focus();
  start.setAttribute("aria-disabled", on);
  halt.hidden = !on;
  status.textContent = on ? "The team is at work. Escape cancels." : "";
};

async function send() {
  if (start.getAttribute("aria-disabled") === "true") return;
  problem.textContent = "";
  busy(true);
  try {
    if (!met) await meet();
    await put(question.value, gold.value.trim());
  } catch (error) {
    show(error);
  } finally {
    busy(false);
  }
}

// Put the question, and show what comes of it in columns.
async function put(asked, wanted) {
  const messages = [...context, { role: "user", content: asked }];
  let episode = null;
  const team = Object.assign(column("The team", wanted), { edits: {} });
  const alone = beside.value ? { [beside.value]: column(named(beside.value), wanted) } : {};
  const listeners = { ...alone, team };
  const body = { messages, models: Object.keys(listeners), gold: wanted, verifier: verifier.value || null };
  await play(body, listeners, (id) => {
    episode = id;
    found.replaceChildren(make("div", { class: "sides" }, ...Object.values(listeners).map((one) => one.element)));
  });
  if (!team.answer) return;
  open(episode, team, wanted);
  const told = [...messages, { role: "assistant", content: team.answer.answer }];
  team.foot.append(button("Go on from this answer", () => follow(told)));
}

// What the trainee has said can be edited, in an episode or in a replay of it.
const open = (episode, played, wanted) => {
  for (const turn of [...played.cards.values()].filter(({ begun, ended }) => begun.decision !== null && ended))
    editable(turn, (text) => again(episode, played, turn, text, wanted));
};

// Play an episode again with other words of the trainee, behind the edits that led there. The newest replay stands first.
async function again(episode, before, edited, text, wanted) {
  const title = `Replay ${found.children.length}${before.title ? ` (of ${before.title})` : ""}`;
  const { decision } = edited.begun;
  const earlier = Object.entries(before.edits).filter(([number]) => number < decision);
  const edits = { ...Object.fromEntries(earlier), [decision]: text };
  const one = Object.assign(replay(title, before, edited, wanted, cancel), { edits, title });
  found.firstElementChild.after(one.element);
  one.show();
  try {
    await play({ episode, edits, models: ["team"] }, { team: one }, () => {});
    if (one.answer) open(episode, one, wanted);
  } catch (error) {
    one.stop(error.message);
    if (error.status === 401 || !(error instanceof Problem)) show(error);
  }
}

const follow = (messages) => {
  context = messages;
  const said = messages.flatMap(({ role, content }) => [make("p", { class: "quiet" }, role), words(content).element]);
  earlier.querySelector("summary").textContent = `The conversation so far: ${messages.length} messages`;
  earlier.querySelector("div").replaceChildren(...said);
  earlier.hidden = !messages.length;
  question.value = gold.value = "";
  question.focus();
};

ask.addEventListener("submit", (event) => (event.preventDefault(), send()));
question.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask.requestSubmit();
});
halt.addEventListener("click", cancel);
document.addEventListener("keydown", (event) => event.key === "Escape" && cancel());
earlier.querySelector("button").addEventListener("click", () => follow([]));
key.addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(key.elements.given.value);
  key.reset();
  problem.textContent = "";
  key.hidden = true;
  question.focus();
  meet().catch(show);
});
meet().catch(show);
