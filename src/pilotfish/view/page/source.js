"use strict";
// Where figures come from: a server that is asked, or the files of an exported folder, which a page that was opened
// from disk can load as scripts only.
const source = (() => {
  const folder = document.documentElement.dataset.folder;
  const waiting = new Map();

  // Each file of an exported folder is one call of this.
  if (folder) window.put = (name, value) => waiting.get(name)?.(value);

  const asked = async (name) => {
    const answer = await fetch(`data/${name}`);
    if (!answer.ok) throw new Error((await answer.text()).trim() || `${name}: ${answer.status}`);
    return answer.json();
  };

  const loaded = (name) =>
    new Promise((found, failed) => {
      const script = document.createElement("script");
      waiting.set(name, found);
      script.src = `${folder}/${name}.js`;
      script.onload = () => (script.remove(), waiting.delete(name));
      script.onerror = () => failed(new Error(`${script.src} cannot be loaded; copy the folder whole`));
      document.head.append(script);
    });

  const AT_ONCE = 64;

  // Of a server: so many marks at a time.
  const bySheet = async (numbers) => {
    const found = [];
    for (let at = 0; at < numbers.length; at += AT_ONCE) {
      const marks = numbers.slice(at, at + AT_ONCE).map((number) => rows.columns.mark[number]);
      found.push(...(await asked(`episodes?marks=${marks.join(",")}`)));
    }
    return found;
  };

  // Of a folder: the files that hold them.
  const byFile = async (numbers) => {
    const files = new Map();
    const each = (await state()).each;
    for (const number of numbers) files.set(Math.floor(number / each), null);
    for (const file of files.keys()) files.set(file, await loaded(`episodes-${file}`));
    return numbers.map((number) => files.get(Math.floor(number / each))[number % each]);
  };

  let kept = null;
  const state = async () => (folder ? (kept ??= await loaded("state")) : asked("state"));

  return {
    live: !folder,
    state,
    about: () => (folder ? loaded("about") : asked("about")),
    curves: () => (folder ? loaded("curves") : asked("curves")),
    rows: (chunk) => (folder ? loaded(`rows-${chunk}`) : asked(`rows/${chunk}`)),
    episodes: (numbers) => (folder ? byFile(numbers) : bySheet(numbers)),
  };
})();

// An element with attributes and children. Strings become text and never markup, whatever a model has said.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "click") element.addEventListener("click", value);
    else if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// A name or a task's id: text of others, which keeps its direction to itself.
const aside = (text) => make("bdi", {}, text);
