"use strict";
// Curves of training as drawings. Values go up, steps go across; a pointer or the arrow keys read them off.
const curves = (() => {
  const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [460, 220, 52, 12, 12, 34];
  const SERIES = 8;
  // Where a reader has put the cursor, by drawing: a run that is followed is drawn anew with each step.
  const cursors = new Map();

  const draw = (name, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // A round step that divides a reach into about so many parts.
  const stepOf = (reach, parts) => {
    const power = 10 ** Math.floor(Math.log10(reach / parts));
    return power * [1, 2, 5, 10].find((step) => power * step >= (reach / parts) * 0.999);
  };

  const ticks = (low, high, parts) => {
    const step = stepOf(high - low || 1, parts);
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, at) => (first + at) * step);
  };

  const scales = (drawn) => {
    const marks = drawn.flatMap((curve) => curve.marks);
    const [steps, values] = [marks.map(([step]) => step), marks.map(([, value]) => value)];
    const smallest = (of) => of.reduce((a, b) => Math.min(a, b));
    const largest = (of) => of.reduce((a, b) => Math.max(a, b));
    const [low, top] = [Math.min(0, smallest(values)), largest(values) * 1.04];
    const high = top > low ? top : low + 1;
    const [first, last] = [smallest(steps), Math.max(largest(steps), smallest(steps) + 1)];
    return {
      low, high, first, last,
      x: (step) => LEFT + ((WIDTH - LEFT - RIGHT) * (step - first)) / (last - first),
      y: (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * (value - low)) / (high - low),
      step: (x) => first + ((x - LEFT) * (last - first)) / (WIDTH - LEFT - RIGHT),
    };
  };

  const frame = (svg, scale) => {
    for (const tick of ticks(scale.low, scale.high, 4)) {
      const y = scale.y(tick);
      svg.append(draw("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y }));
      svg.append(draw("text", { x: LEFT - 6, y: y + 5, "text-anchor": "end" }, tick >= 1000 ? `${shown(tick / 1000, 1)}k` : shown(tick)));
    }
    for (const tick of ticks(scale.first, scale.last, 5).filter(Number.isInteger)) {
      svg.append(draw("text", { x: scale.x(tick), y: HEIGHT - 14, "text-anchor": "middle" }, String(tick)));
    }
  };

  const style = (at) => `s${at % SERIES}${at >= SERIES ? " dashed" : ""}`;

  const line = (curve, at, scale) => {
    const made = draw("g", { class: `curve ${style(at)}` });
    const points = curve.marks.map(([step, value]) => `${scale.x(step).toFixed(1)},${scale.y(value).toFixed(1)}`);
    made.append(draw("polyline", { points: points.join(" ") }));
    // Few marks are seen better than a line alone.
    if (points.length <= 40) for (const point of points) {
      const [cx, cy] = point.split(",");
      made.append(draw("circle", { cx, cy, r: 2.5 }));
    }
    return made;
  };

  const nearest = (marks, step) => marks.reduce((best, mark) => (Math.abs(mark[0] - step) < Math.abs(best[0] - step) ? mark : best));

  const picture = (drawing) => {
    const scale = scales(drawing.curves);
    const name = `${drawing.title} by step ${drawing.stage}`.trim();
    const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: "0", "aria-label": name });
    const cursor = draw("line", { class: "tick", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    const legend = make("ul", { class: "legend", "aria-live": "polite" });
    const point = (step) => {
      cursors.set(name, Math.round(Math.min(scale.last, Math.max(scale.first, step))));
      read();
    };
    const read = () => {
      const at = cursors.get(name) ?? scale.last;
      cursor.setAttribute("visibility", cursors.has(name) ? "visible" : "hidden");
      for (const key of ["x1", "x2"]) cursor.setAttribute(key, scale.x(at));
      legend.replaceChildren(
        ...drawing.curves.map((curve, place) => {
          const [step, value] = nearest(curve.marks, at);
          return make("li", { class: style(place) }, aside(curve.name), ` ${shown(value)} at step ${step}`);
        }),
      );
    };
    frame(svg, scale);
    svg.append(cursor, ...drawing.curves.map((curve, place) => line(curve, place, scale)));
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      point(scale.step(((event.clientX - box.left) / box.width) * WIDTH));
    });
    svg.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!way) return;
      event.preventDefault();
      point((cursors.get(name) ?? scale.last) + way);
    });
    read();
    const stage = drawing.stage ? make("span", { class: "quiet" }, " ", aside(drawing.stage)) : null;
    return make("figure", {}, make("h3", {}, drawing.title, stage), svg, legend);
  };

  return {
    draw: (drawings) =>
      make(
        "div",
        {},
        make("h2", { tabindex: "-1" }, "Training"),
        drawings.length ? null : make("p", { class: "quiet" }, "This run has logged no step of a training."),
        make("div", { class: "drawings" }, ...drawings.map(picture)),
      ),
  };
})();
