// Two short sequences v and g, their circular convolution on N points, and what changing one entry does to it.
// The reader moves one bar; outputs before its token can change only through wrapped-around terms.
// model: v, g (numbers, same length L), before (v and g as they were before the change), n (points), stream, token (the
// entry that is changed).

const LEFT = 30, RIGHT = 4;            // margins of a panel, in pixels
const PACE = 70;                       // milliseconds in which a bar covers two thirds of its way
const NAME = { v: "content v", g: "gate g", r: "output r", d: "change of the output" };
const COLOUR = { v: "content", g: "gate", r: "result", d: "result" };

const copy = (streams) => ({ v: [...streams.v], g: [...streams.g] });

// The first L outputs on n points: the causal part (a + b < n), the total, how many receive a wrapped term.
export function circular(v, g, n) {
  const causal = v.map(() => 0), total = v.map(() => 0), wrapped = new Set();
  for (let a = 0; a < v.length; a++) {
    for (let b = 0; b < g.length; b++) {
      const k = (a + b) % n;
      if (k >= v.length) continue;
      total[k] += v[a] * g[b];
      if (a + b < n) causal[k] += v[a] * g[b];
      else wrapped.add(k);
    }
  }
  return { causal, total, contaminated: wrapped.size };
}

// One row of bars: title, zero line, scale, token numbers, a shaded past.
class Panel {
  constructor(svg, kind, length, top, height) {
    const middle = top + 26 + height / 2;
    Object.assign(this, { length, height, middle, top: top + 26, limit: 1 });
    this.past = make(svg, "rect", { y: this.top, height, style: "fill: var(--shade)" });
    make(svg, "rect", { y: top + 3, width: 11, height: 11, rx: 2, style: `fill: var(--${COLOUR[kind]})` });
    make(svg, "text", { x: 17, y: top + 13, style: "font-weight: 600" }, NAME[kind]);
    this.zero = make(svg, "line", { x1: LEFT, y1: middle, y2: middle, style: "stroke: var(--muted)" });
    this.scale = [1, 0, -1].map((end) => make(svg, "text",
      { x: LEFT - 7, y: middle - (end * height) / 2 + 4, "text-anchor": "end", class: "muted" }));
    this.numbers = this.rows(svg, "text", { y: this.top + height + 16, "text-anchor": "middle" });
    this.numbers.forEach((node, t) => { node.textContent = t; });
    this.bars = make(svg, "g");
  }
  rows(parent, name, attributes) {
    return all(this.length, () => make(parent, name, attributes));
  }
  rects(colour) { return this.rows(this.bars, "rect", { style: `fill: var(--${colour})` }); }
  x(t) { return LEFT + this.pitch * (t + 0.5); }
  y(value) { return this.middle - (value / this.limit) * (this.height / 2); }
  layout(width, limit, token) {
    this.pitch = (width - LEFT - RIGHT) / this.length;
    this.limit = limit;
    this.zero.setAttribute("x2", width - RIGHT);
    move(this.past, { x: LEFT, width: this.pitch * token });
    [`${Math.round(limit)}`, "0", `−${Math.round(limit)}`].forEach((text, k) => { this.scale[k].textContent = text; });
    this.numbers.forEach((node, t) => {
      move(node, { x: this.x(t), style: t === token ? "font-weight: 700" : "fill: var(--muted)" });
    });
  }
  bar(node, t, from, to, share) {
    const ends = [this.y(from), this.y(to)], width = this.pitch * share;
    move(node, { x: this.x(t) - width / 2, width, y: Math.min(...ends), height: Math.abs(ends[0] - ends[1]) });
  }
  column(t) {
    return { x: this.x(t) - this.pitch / 2, width: this.pitch, y: this.top - 4, height: this.height + 8 };
  }
}

export function render({ model, el }) {
  const start = model.get("before"), length = start.v.length;
  const limit = Math.max(2, Math.ceil(peak([...start.v, ...start.g, ...model.get("v"), ...model.get("g")])));
  const bounded = (x) => clamp(tidy(x), -limit, limit);
  const motion = new Motion(draw, PACE, 0.005);
  const state = inStep(model, ["v", "g", "before", "n", "stream", "token"], show);
  let now, before, n, stream, token;      // the streams as they stand, and as they were when a token was picked up
  let reach = { r: 1, d: 1 };

  const host = begin(el, "Drag a blue or an orange bar. By keyboard: Tab to the bars, ← → choose a token, ↑ ↓ change it.");
  const inputs = make(el, "svg", { height: fit(266, 212) });
  const { caption, slider } = slide(el, { class: "poke-points" }, length, 2 * length + 1);
  const marks = make(el, "div", { class: "poke-marks", "aria-hidden": "true" });
  const share = (points) => (points - length) / (length + 1);
  make(marks, "span", { style: `left: ${along(0)}` }, "L");
  make(marks, "span", { style: `left: ${along(share(2 * length - 1))}` }, "2L − 1");
  legend(el, [["--c: var(--result)", "causal sum"], ["--c: var(--wrapped)", "wrapped around"],
    ["--c: var(--ink); --h: 3px", "what comes out"], ["--c: var(--shade); --e: 1px solid var(--rule)", "before the changed token"]]);
  const outputs = make(el, "svg", { height: fit(316, 248) });
  const [points, count, past] = facts(el, 3);
  const again = make(el, "button", { type: "button" }, "Start again");

  const panels = {
    v: new Panel(inputs, "v", length, 0, fit(84, 58)), g: new Panel(inputs, "g", length, fit(138, 110), fit(84, 58)),
    r: new Panel(outputs, "r", length, 0, fit(104, 72)), d: new Panel(outputs, "d", length, fit(160, 124), fit(104, 72)),
  };
  const bars = {
    v: panels.v.rects("content"), g: panels.g.rects("gate"),
    causal: panels.r.rects("result"), wrapped: panels.r.rects("wrapped"),
    kept: panels.d.rects("result"), leaked: panels.d.rects("wrapped"),
    total: panels.r.rows(panels.r.bars, "line", { style: "stroke: var(--ink); stroke-width: 2.5" }),
  };
  const ghost = make(inputs, "rect", { style: "fill: none; stroke: var(--ink); stroke-dasharray: 3 2" });
  const handle = make(inputs, "circle", { r: 6.5, style: "fill: var(--paper); stroke: var(--ink); stroke-width: 2" });
  const grips = { v: start.v.map((_, t) => grip("v", t)), g: start.g.map((_, t) => grip("g", t)) };

  function grip(s, t) {
    const node = gripping(inputs, `${NAME[s]}, token ${t}`, -limit, limit);
    node.addEventListener("focus", () => pick(s, t));
    raisable(node, t, { row: () => grips[s], value: () => now[s][t], change: poke,
      pixels: panels[s].height / 2 / limit });
    return node;
  }
  function pick(s, t) {
    if (s === stream && t === token) return;
    [before, stream, token] = [copy(now), s, t];
    update();
  }
  function poke(value) {
    now[stream][token] = bounded(value);
    update();
  }
  function show(given) {
    [now, before] = [given, given.before].map(({ v, g }) => ({ v: v.map(bounded), g: g.map(bounded) }));
    [n, stream] = [clamp(given.n, length, 2 * length + 1), given.stream === "g" ? "g" : "v"];
    token = clamp(given.token, 0, length - 1);
    update();
  }
  function restart() {
    reach = { r: 1, d: 1 };
    state.restart();
  }

  function update() {
    const after = circular(now.v, now.g, n), prior = circular(before.v, before.g, n);
    const kept = after.causal.map((x, t) => x - prior.causal[t]);
    const change = after.total.map((x, t) => x - prior.total[t]);
    const leak = peak(change.slice(0, token));
    reach.r = Math.max(reach.r, niceLimit(peak([...after.total, ...after.causal])));
    reach.d = Math.max(reach.d, niceLimit(peak([...change, ...kept])));
    const goal = { ...now, causal: after.causal, total: after.total, kept, change, reach: [reach.r, reach.d] };
    tell(after, leak);
    speak(el, `${n} points: ${after.contaminated} of ${length} outputs contaminated, earlier outputs change by ${leak.toFixed(2)}.`);
    Object.assign(host.dataset, {
      n, stream, token, v: JSON.stringify(now.v), g: JSON.stringify(now.g), values: JSON.stringify(after.total),
      change: JSON.stringify(change), contaminated: after.contaminated, pastChange: leak,
    });
    state.tell({ ...now, before, n, stream, token });
    motion.to(goal);
  }
  function tell(after, leak) {
    const known = { [length]: "L", [2 * length - 1]: "2L − 1", [2 * length]: "2L", [2 * length + 1]: "2L + 1" };
    const highest = after.contaminated - 1;
    const text = n in known ? `${n} = ${known[n]}` : `${n}`;
    caption.textContent = `number of FFT points N = ${text}`;
    [points.name.textContent, points.value.textContent] = ["FFT points N", text];
    count.name.textContent = "outputs contaminated";
    count.value.textContent = `${after.contaminated} of ${length}${highest >= 0 ? ` (0 to ${highest})` : ""}`;
    past.name.textContent = `largest change before token ${token}`;
    past.value.textContent = leak.toFixed(2);
    past.value.style.color = leak > 0 ? "var(--wrapped)" : "";
    slider.value = n;
    slider.setAttribute("aria-valuetext", text);
    track(slider, share(2 * length - 1.5), "wrapped", "result");
    for (const s of ["v", "g"]) {
      const stop = s === stream ? token : Math.max(0, grips[s].findIndex((node) => node.tabIndex === 0));
      grips[s].forEach((node, t) => move(node, { tabindex: t === stop ? 0 : -1, "aria-valuenow": now[s][t],
        "aria-valuetext": `${now[s][t]}, before ${before[s][t]}` }));
    }
  }
  function draw() {
    const width = inputs.clientWidth || 600, { shown } = motion;
    const limits = { v: limit, g: limit, r: shown.reach[0], d: shown.reach[1] };
    for (const [s, panel] of Object.entries(panels)) panel.layout(width, limits[s], token);
    for (const s of ["v", "g"]) {
      panels[s].past.style.display = s === stream ? "" : "none";
      shown[s].forEach((value, t) => {
        panels[s].bar(bars[s][t], t, 0, value, 0.6);
        for (const node of [grips[s][t], grips[s][t].ring]) move(node, panels[s].column(t));
      });
    }
    panels[stream].bar(ghost, token, 0, before[stream][token], 0.6);
    move(handle, { cx: panels[stream].x(token), cy: panels[stream].y(shown[stream][token]) });
    for (let t = 0; t < length; t++) {
      const x = panels.r.x(t), y = panels.r.y(shown.total[t]), half = panels.r.pitch * 0.36;
      panels.r.bar(bars.causal[t], t, 0, shown.causal[t], 0.6);
      panels.r.bar(bars.wrapped[t], t, shown.causal[t], shown.total[t], 0.3);
      move(bars.total[t], { x1: x - half, x2: x + half, y1: y, y2: y });
      panels.d.bar(bars.kept[t], t, 0, shown.kept[t], 0.6);
      panels.d.bar(bars.leaked[t], t, shown.kept[t], shown.change[t], 0.3);
    }
  }

  slider.addEventListener("input", () => { n = Number(slider.value); update(); });
  again.addEventListener("click", restart);
  restart();
  const end = follow(el, draw);
  return () => { end(); motion.stop(); };
}

export default { render };
