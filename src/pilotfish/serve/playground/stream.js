// The server, asked: its models, and a team at work as it tells of it. What fails comes out in words for the reader.

// The key is held here and nowhere else.
let key = "";
export const useKey = (given) => (key = given.trim());

export class Problem extends Error {
  constructor(words, status = 0) {
    super(words);
    this.status = status;
  }
}

const WANTED = "This server wants an API key.";
const WRONG = "This server does not know that API key.";
const GONE = "The server does not answer. Is it still running?";
const BROKEN = "The server ended before the team was done.";

export async function models() {
  return (await (await asked("v1/models", {})).json()).data;
}

// Each event of `/v1/team/episodes` as [name, fields], until the team is done.
export async function* events(body, signal) {
  const answer = await asked("v1/team/episodes", { method: "POST", body: JSON.stringify(body), signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => failed(error, BROKEN));
    if (done) throw new Problem(BROKEN);
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    // A block that begins with a colon says that the server is alive, and nothing else.
    for (const [name, fields] of blocks.filter((block) => !block.startsWith(":")).map(parsed)) {
      if (name === "error" && !fields.model) throw new Problem(fields.error.message);
      yield [name, fields];
      if (name === "done") return;
    }
  }
}

const parsed = (block) => {
  const [, name, data] = block.match(/^event: (.*)\ndata: (.*)$/);
  return [name, JSON.parse(data)];
};

async function asked(path, options) {
  const headers = { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
  const answer = await fetch(path, { ...options, headers }).catch((error) => failed(error, GONE));
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

const failed = (error, words) => {
  throw error.name === "AbortError" ? error : new Problem(words);
};

const refusal = async (answer) => {
  if (answer.status === 401) return new Problem(key ? WRONG : WANTED, 401);
  const told = await answer.json().catch(() => null);
  const words = told?.error?.message ?? `The server answers with status ${answer.status}`;
  const wait = answer.headers.get("Retry-After");
  return new Problem(wait ? `${words}. Wait ${wait} s before the next try.` : words, answer.status);
};
