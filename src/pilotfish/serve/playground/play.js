// One play at a time: events go to the listeners of their models, and to those who hear the page rather than see it.
import { Problem, events } from "./stream.js";
import { make } from "./turns.js";

const heard = document.getElementById("heard");
// How to end what is being played.
let work = null;
export const cancel = () => work?.abort();

// Play what a body asks; `started` is given the episode's id. Raises what fails before that; later it is the listeners'.
export async function play(body, listeners, started) {
  cancel();
  const own = (work = new AbortController());
  let begun = false;
  const stop = (why) => Object.values(listeners).forEach((one) => one.stop(why));
  heard.replaceChildren();
  try {
    for await (const [name, fields] of events(body, own.signal)) {
      if (name === "started") begun = started(fields.episode) || true;
      listeners[fields.model]?.[name](fields);
      SAID[name]?.(fields);
    }
  } catch (error) {
    if (own.signal.aborted) stop("Cancelled.");
    else if (begun && error instanceof Problem) stop(error.message);
    else throw error;
  } finally {
    if (work === own) work = null;
  }
}

// What is said aloud: each turn once, when it has ended, and how the answer is.
const SAID = {
  turn_done: ({ model, member, text }) => say(`${model}, ${member}: ${text.slice(0, 300)}`),
  verdict: ({ model, reward }) => say(`${model} has answered${reward === null ? "" : reward >= 0.5 ? ", right" : ", wrong"}`),
};
const say = (text) => heard.append(make("p", {}, text));
