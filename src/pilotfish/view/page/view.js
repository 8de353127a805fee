"use strict";
// The page: what its address says is shown, and what a reader does goes into the address.
(() => {
  const form = document.getElementById("filters");
  const panel = document.getElementById("panel");
  const PANELS = ["episode", "group", "training"];
  const OFTEN = 3000;
  const seen = [];

  const address = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

  const changed = (changes) => {
    const kept = Object.entries({ ...address(), ...changes }).filter(([, value]) => value);
    return `#${new URLSearchParams(kept)}`;
  };

  const NOTHING = Object.fromEntries(PANELS.map((kind) => [kind, ""]));
  const show = (kind, number) => ({ ...NOTHING, [kind]: String(rows.columns.mark[number]) });
  const link = (kind) => (number, text) => make("a", { href: changed(show(kind, number)) }, aside(text));

  const filter = () => Object.fromEntries([...new FormData(form)].filter(([, value]) => value));

  const listed = () => {
    const found = rows.matching(filter());
    const of = found.length === rows.count ? "" : ` of ${rows.count.toLocaleString("en")}`;
    document.getElementById("count").textContent = `${found.length.toLocaleString("en")}${of} episodes${loading ? ", reading…" : ""}`;
    list.show(found);
  };

  const choices = () => {
    offer("part", [...rows.names.part]);
    offer("method", [...rows.names.method]);
    offer("decision", [...rows.decisions].map(String));
  };

  const offer = (name, found) => {
    const select = form.elements[name];
    const known = new Set([...select.options].map((option) => option.value));
    select.append(...found.filter((one) => !known.has(one)).sort().map((one) => make("option", { value: one }, one)));
    const wanted = address()[name] ?? "";
    if (known.has(wanted) || found.includes(wanted)) select.value = wanted;
  };

  const VIEWS = {
    episode: async (number) => {
      const [found] = await source.episodes([number]);
      return episode.draw(number, found, links(number, "episode"));
    },
    group: async (number) => {
      const numbers = together.group(number);
      const cards = together.side(numbers, await source.episodes(numbers), link("episode"));
      return titled("Side by side", number, links(number, "group"), together.about(numbers), cards);
    },
    training: async (number) => {
      const numbers = together.story(number);
      const found = await source.episodes(numbers);
      const kind = numbers.length && rows.text("kind", numbers[0]) === "holdout" ? "on the holdout" : "first row of each group";
      return titled("Over training", number, links(number, "training"), kind, together.told(numbers, found, link("episode")));
    },
  };

  const titled = (title, number, links, note, cards) =>
    make(
      "div",
      {},
      make("h2", { tabindex: "-1" }, `${title}: task `, aside(rows.text("task", number))),
      make("p", { class: "quiet" }, aside(note)),
      make("nav", {}, ...links),
      cards,
    );

  const links = (number, here) => {
    const found = [];
    if (here !== "episode") found.push(link("episode")(number, "this episode"));
    if (here !== "group" && together.group(number).length > 1) found.push(link("group")(number, "side by side"));
    if (here !== "training" && together.story(number).length > 1) found.push(link("training")(number, "over training"));
    return [...found, make("a", { href: changed(NOTHING) }, "curves")];
  };

  const begun = (made, kind) => {
    panel.replaceChildren(made);
    panel.scrollTop = 0;
    if (kind) panel.querySelector("h2")?.focus();
  };

  // The same with newer figures: who is reading stays where they are.
  const renew = (made) => {
    const read = panel.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    const top = panel.scrollTop;
    panel.replaceChildren(made);
    panel.scrollTop = top;
    if (read) [...panel.querySelectorAll("svg")].find((svg) => svg.getAttribute("aria-label") === read)?.focus({ preventScroll: true });
  };

  let drawn = "";
  let inPanel = "";
  const beside = async () => {
    const now = address();
    const kind = PANELS.find((name) => now[name]);
    const key = kind ? `${kind} ${now[kind]}` : "curves";
    const number = kind ? rows.marked(now[kind]) : -1;
    if (key === drawn || (kind && number < 0 && loading)) return;
    drawn = key;
    try {
      const made = !kind
        ? curves.draw(await source.curves())
        : number < 0
          ? make("p", { class: "wrong" }, "There is no such episode here.")
          : await VIEWS[kind](number);
      if (drawn !== key) return;
      if (key === inPanel) renew(made);
      else begun(made, kind);
      inPanel = key;
    } catch (error) {
      drawn = inPanel = "";
      panel.replaceChildren(make("p", { class: "wrong" }, error.message));
    }
  };

  const draw = () => {
    const now = address();
    for (const field of form.elements) if (field.name) field.value = now[field.name] ?? "";
    listed();
    beside();
  };

  let loading = true;
  const follow = async () => {
    let whole = true;
    try {
      whole = await fresh();
      notice("");
    } catch (error) {
      notice(`${error.message}. What was read stays here.`);
    }
    if (source.live || !whole) setTimeout(follow, whole ? OFTEN : 0);
  };

  const fresh = async () => {
    if (!loading && document.hidden) return true;
    const state = await source.state();
    const changed = state.chunks.flatMap((version, chunk) => (seen[chunk] === version ? [] : [chunk]));
    for (const chunk of changed) {
      rows.put(chunk * state.size, await source.rows(chunk));
      seen[chunk] = state.chunks[chunk];
    }
    if (changed.length || loading) {
      loading = !state.whole;
      choices();
      listed();
      if (changed.length && drawn === "curves") drawn = "";
      beside();
    }
    return state.whole;
  };

  const notice = (text) => {
    const place = document.getElementById("notice");
    place.hidden = !text && !place.dataset.kept;
    place.textContent = text || place.dataset.kept || "";
  };

  const begin = async () => {
    list.begin((number) => {
      history.pushState(null, "", changed(show("episode", number)));
      beside();
    });
    const about = await source.about();
    document.title = `${about.run}: Pilotfish`;
    document.getElementById("run").replaceChildren(aside(about.run));
    const members = about.members.map((one) => `${one.name}${one.name === about.trainee ? " (trainee)" : ""}: ${one.model}`);
    document.getElementById("team").replaceChildren(aside(`${about.topology} · ${members.join(" · ")}`));
    if (about.note) document.getElementById("notice").dataset.kept = about.note;
    const fields = [...form.elements].filter((field) => field.name);
    const filtered = () => {
      history.replaceState(null, "", changed(Object.fromEntries(fields.map((field) => [field.name, field.value]))));
      listed();
    };
    form.addEventListener("input", filtered);
    form.addEventListener("reset", () => setTimeout(filtered));
    form.addEventListener("submit", (event) => event.preventDefault());
    window.addEventListener("popstate", draw);
    document.addEventListener("keydown", (event) => event.key === "Escape" && list.focus());
    for (const field of fields) field.value = address()[field.name] ?? "";
    await follow();
  };

  begin().catch((error) => notice(error.message));
})();
