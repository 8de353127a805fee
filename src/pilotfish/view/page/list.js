"use strict";
// The list of episodes: only the lines in sight are in the page, however many there are.
const list = (() => {
  const HEIGHT = 30;
  const MARGIN = 8;
  // Browsers cannot make an element of any height: beyond this, a pixel stands for more than one.
  const HIGHEST = 10_000_000;
  const box = document.getElementById("list");
  const space = document.getElementById("space");
  const lines = new Map();
  let found = [];
  let at = 0;
  let open = () => {};

  const CELLS = {
    verdict: (number) => ({ right: "✓", wrong: "✗", none: "–" })[rows.verdict(number)],
    task: (number) => rows.text("task", number),
    method: (number) => rows.text("method", number),
    part: (number) => rows.text("part", number),
    step: (number) => rows.columns.step[number] ?? "",
    sample: (number) => rows.columns.sample[number] ?? "",
    row: (number) => numbered(number),
    reward: (number) => shown(rows.columns.worth[number] ?? rows.columns.reward[number], 2),
    advantage: (number) => signed(rows.columns.advantage[number]),
    flip: (number) => ({ "wrong to right": "↑", "right to wrong": "↓" })[rows.flip(number)] ?? "",
  };
  // What may be wider than its column.
  const LONG = new Set(["task", "method", "part"]);
  const HEADS = { verdict: "", part: "played in", sample: "no.", advantage: "adv." };

  // Decision and row of a group, counted as the recipe counts them.
  const numbered = (number) => {
    const { decision, row } = rows.columns;
    return decision[number] === null ? "" : `${decision[number]}.${row[number]}`;
  };

  const ratio = () => Math.max(1, (found.length * HEIGHT - box.clientHeight) / (HIGHEST - box.clientHeight));
  const first = () => Math.min(found.length, Math.floor((box.scrollTop * ratio()) / HEIGHT));
  const inSight = () => Math.max(1, Math.floor(box.clientHeight / HEIGHT));

  const line = (place) => {
    const number = found[place];
    const cells = Object.entries(CELLS).map(([name, of]) => make("span", { class: name, title: LONG.has(name) ? of(number) : null }, String(of(number))));
    const label = `${rows.verdict(number)}, task ${rows.text("task", number)}, ${rows.text("method", number)}, ${rows.text("part", number)}`;
    return make(
      "div",
      {
        class: `line is-${rows.verdict(number)}`,
        role: "option",
        id: `line-${place}`,
        "aria-label": `${label} ${rows.columns.step[number] ?? ""} ${rows.flip(number)}`,
        "aria-selected": String(place === at),
        "aria-setsize": found.length,
        "aria-posinset": place + 1,
        click: () => (choose(place), open(number)),
      },
      ...cells,
    );
  };

  const draw = () => {
    const top = first();
    const end = Math.min(found.length, top + inSight() + 2 * MARGIN);
    const start = Math.max(0, top - MARGIN);
    for (const [place, element] of lines) {
      if (place < start || place >= end) (element.remove(), lines.delete(place));
    }
    for (let place = start; place < end; place++) {
      if (!lines.has(place)) lines.set(place, line(place));
      const element = lines.get(place);
      element.style.transform = `translateY(${box.scrollTop + place * HEIGHT - box.scrollTop * ratio()}px)`;
      if (!element.isConnected) space.append(element);
    }
  };

  const choose = (place) => {
    lines.get(at)?.setAttribute("aria-selected", "false");
    at = Math.max(0, Math.min(found.length - 1, place));
    const top = first();
    if (at < top) box.scrollTop = (at * HEIGHT) / ratio();
    else if (at >= top + inSight()) box.scrollTop = ((at - inSight() + 1) * HEIGHT) / ratio();
    draw();
    lines.get(at)?.setAttribute("aria-selected", "true");
    point();
  };

  const point = () => (found.length ? box.setAttribute("aria-activedescendant", `line-${at}`) : box.removeAttribute("aria-activedescendant"));

  // Show other rows; the one that was chosen stays so, and where it is, if it is among them.
  const show = (numbers) => {
    const [number, place] = [found[at], at];
    found = numbers;
    for (const element of lines.values()) element.remove();
    lines.clear();
    space.style.height = `${Math.min(HIGHEST, found.length * HEIGHT)}px`;
    at = Math.max(0, found.indexOf(number));
    if (box.scrollTop) box.scrollTop += ((at - place) * HEIGHT) / ratio();
    draw();
    point();
  };

  const KEYS = {
    ArrowDown: () => choose(at + 1),
    ArrowUp: () => choose(at - 1),
    PageDown: () => choose(at + inSight()),
    PageUp: () => choose(at - inSight()),
    Home: () => choose(0),
    End: () => choose(found.length - 1),
    Enter: () => found.length && open(found[at]),
    " ": () => found.length && open(found[at]),
  };

  const begin = (opened) => {
    open = opened;
    for (const name of Object.keys(CELLS)) {
      document.getElementById("head").append(make("span", { class: name }, HEADS[name] ?? name));
    }
    let due = 0;
    box.addEventListener("scroll", () => (due ||= requestAnimationFrame(() => ((due = 0), draw()))));
    new ResizeObserver(draw).observe(box);
    box.addEventListener("keydown", (event) => {
      if (!KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      KEYS[event.key]();
    });
  };

  return { begin, show, focus: () => box.focus() };
})();
