// The wrap-around clock: the product v_j g_k stands at hour (j + k) mod N, and what wraps around arrives as 1, -1 or i.
// Each hour has a complex plane of its own with the real axis pointing outwards; the line across is the real part.
// model: v, g (numbers from 0 to LIMIT, same length L), n (hours at the start), unit (what z^n is), hour (the hand).

const LIMIT = 2;                                         // largest entry
const TOP = 24, HEIGHT = 66, PACE = 110;                 // of the bars, in pixels; milliseconds for 2/3 of a way
const UNITS = { "1": { name: "1", turn: 0, re: 1, im: 0 }, "-1": { name: "−1", turn: 180, re: -1, im: 0 },
  i: { name: "i", turn: -90, re: 0, im: 1 } };
const NAME = { v: "content v", g: "gate g" }, COLOUR = { v: "content", g: "gate" };
const OWN = "--c: var(--result)", WRAPPED = "--c: var(--wrapped)", OUTPUT = "--c: var(--ink); --h: 3px";
const TAIL = "--c: color-mix(in srgb, var(--wrapped) 25%, var(--paper)); --e: 1px solid var(--wrapped)";

const above = (x) => `${x}`.replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);

// The coefficients of the product, each as the list of its terms.
export function terms(v, g) {
  const degrees = all(2 * v.length - 1, () => []);
  v.forEach((a, j) => g.forEach((b, i) => degrees[j + i].push({ j, i, value: a * b })));
  return degrees;
}

// Hour by hour on n hours: what belongs there, what wraps around (before it is turned), real and imaginary part.
export function clock(v, g, n, unit) {
  const p = terms(v, g).map((degree) => degree.reduce((sum, term) => sum + term.value, 0));
  const own = all(n, (t) => p[t] ?? 0), wrapped = own.map((_, t) => p[t + n] ?? 0);
  const real = own.map((x, t) => x + UNITS[unit].re * wrapped[t]), imag = wrapped.map((x) => UNITS[unit].im * x);
  const contaminated = [...v.keys()].filter((t) => t + n < p.length && UNITS[unit].re !== 0);
  return { p, own, wrapped, real, imag, contaminated };
}

export function render({ model, el }) {
  const start = { v: model.get("v"), g: model.get("g") }, length = start.v.length;
  const top = 2 * length - 1;                             // degrees of the product, and the smallest safe n
  const motion = new Motion(draw, PACE, 0.003);
  const group = `clock-${Math.random()}`;                 // of radio buttons: a page may hold two figures
  const state = inStep(model, ["v", "g", "n", "unit", "hour"], show);
  let now, n, unit, hour, picked = null;                  // `picked`: the bar whose products are outlined
  const host = begin(el, "Drag a bar, the slider or the hand. Or use Tab and the arrow keys.");
  const parts = make(el, "div", { class: "clock-parts" });
  const inputs = make(parts, "svg", { height: TOP + HEIGHT + 20, style: "grid-area: in" });
  const controls = make(parts, "div", { style: "grid-area: set" });
  const { caption, slider } = slide(controls, { style: "display: block" }, length, 2 * length);
  const marks = make(controls, "div", { class: "clock-marks", "aria-hidden": "true" });
  const share = (points) => (points - length) / length;
  track(slider, share(top - 0.5), "wrapped", "result");
  make(marks, "span", { style: `left: ${along(0)}` }, "L");
  make(marks, "span", { style: `left: ${along(share(top))}` }, "2L − 1");
  const units = make(controls, "div", { class: "clock-units", role: "radiogroup", "aria-label": "what z to the N is" });
  const choices = Object.keys(UNITS).map((value) => {
    const choice = make(units, "label"), input = make(choice, "input", { type: "radio", name: group, value });
    input.addEventListener("change", () => { unit = value; update(); });
    return { value, input, text: make(choice, "span") };
  });
  const face = make(parts, "svg", { class: "clock-face" });
  legend(parts, [[OWN, "where it belongs"], [WRAPPED, "wrapped around"], [TAIL, "after the text, cut off"],
    [OUTPUT, "real part of the output"]], "clock-key");
  const read = make(parts, "div", { class: "clock-read", style: "grid-area: read", "aria-live": "off" });
  const again = make(make(parts, "div", { style: "grid-area: again" }), "button", { type: "button" }, "Start again");
  const bars = { v: [], g: [] }, grips = { v: [], g: [] }, numbers = { v: [], g: [] }, panels = {}, floors = {};
  for (const s of ["v", "g"]) {
    const panel = panels[s] = make(inputs, "g"), style = `fill: var(--${COLOUR[s]})`;
    make(panel, "rect", { y: 1, width: 11, height: 11, rx: 2, style });
    make(panel, "text", { x: 17, y: 11, style: "font-weight: 600" }, NAME[s]);
    floors[s] = make(panel, "line", { y1: TOP + HEIGHT, y2: TOP + HEIGHT, style: "stroke: var(--muted)" });
    for (let t = 0; t < length; t++) {
      bars[s].push(make(panel, "rect", { rx: 1.5, style }));
      numbers[s].push(make(panel, "text", { y: TOP + HEIGHT + 16, "text-anchor": "middle", class: "muted" }, t));
      grips[s].push(grip(s, t));
    }
  }
  const sector = make(face, "path", { style: "fill: var(--shade)" });
  const ring = (colour) => make(face, "circle", { fill: "none", style: `stroke: var(--${colour})` });
  const dial = ring("muted"), rail = ring("rule");
  const stacks = all(top, (d) => {
    const node = make(face, "g");
    return { node, rects: terms(start.v, start.g)[d].map(() => make(node, "rect", { rx: 1 })) };
  });
  const lines = all(length, () => make(face, "line", { style: "stroke: var(--ink)", "stroke-width": 3 }));
  const hours = all(2 * length, (t) => {
    const node = make(face, "g"), disc = make(node, "circle", { r: 12.5 });
    return { node, disc, text: make(node, "text", { "text-anchor": "middle", y: 4.5 }, t) };
  });
  const hand = make(face, "g", { class: "clock-hand", role: "slider", tabindex: 0, "aria-label": "hour" });
  const halo = make(hand, "circle", { class: "clock-halo", fill: "transparent", "stroke-width": 3 });
  const needle = make(hand, "path");
  make(hand, "circle", { r: 5 });

  const set = (s, t, value) => { now[s][t] = clamp(tidy(value), 0, LIMIT); update(); };
  const turn = (to) => { hour = ((to % n) + n) % n; update(); };
  function grip(s, t) {
    const node = gripping(panels[s], `${NAME[s]}, token ${t}`, 0, LIMIT);
    node.tabIndex = t ? -1 : 0;
    node.addEventListener("focus", () => { picked = { s, t }; update(); });
    node.addEventListener("blur", () => { picked = null; update(); });
    raisable(node, t, { row: () => grips[s], value: () => now[s][t], change: (value) => set(s, t, value),
      pixels: HEIGHT / LIMIT });
    return node;
  }
  function point(event) {
    const box = face.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    turn(Math.round((Math.atan2(x - box.width / 2, box.height / 2 - y) * n) / (2 * Math.PI)));
  }
  function show(given) {
    now = Object.fromEntries(["v", "g"].map((s) => [s, given[s].map((x) => clamp(tidy(x), 0, LIMIT))]));
    [n, unit, hour] = [clamp(given.n, length, 2 * length), given.unit in UNITS ? given.unit : "1", Math.max(0, given.hour)];
    update();
  }
  function update() {
    hour = Math.min(hour, n - 1);
    const out = clock(now.v, now.g, n, unit), { p } = out, wraps = (d) => d >= n;
    const lap = motion.shown ? Math.round(motion.shown.hand[0] - hour / n) : 0;   // the hand goes the short way round
    const goal = { ...now, n: [n], hand: [hour / n + lap], real: out.real.slice(0, length),
      reach: [Math.max(length / 2, ...now.v.map((_, t) => p[t] + (p[t + length] ?? 0)))],
      base: p.map((_, d) => (wraps(d) ? p[d - n] : 0)), slim: p.map((_, d) => (wraps(d) ? 0.55 : 1)),
      turn: p.map((_, d) => (wraps(d) ? UNITS[unit].turn : 0)) };
    setControls();
    tell(out);
    speak(el, `${n} hours, at hour ${hour}: ${out.contaminated.length} of ${length} outputs depend on later tokens.`);
    paint(out);
    for (const [name, x] of Object.entries({ ...out, ...now, n, unit, hour })) host.dataset[name] = JSON.stringify(x);
    state.tell({ ...now, n, unit, hour });
    motion.to(goal);
  }
  function setControls() {
    const name = { [length]: `${n} = L`, [top]: `${n} = 2L − 1`, [2 * length]: `${n} = 2L` }[n] ?? `${n}`;
    caption.textContent = `hours on the clock N = ${name}`;
    slider.value = n;
    slider.setAttribute("aria-valuetext", name);
    for (const { value, input } of choices) input.checked = value === unit;
    for (const { value, text } of choices) text.textContent = `z${above(n)} = ${UNITS[value].name}`;
    for (const s of ["v", "g"]) grips[s].forEach((node, t) => move(node, { "aria-valuenow": now[s][t] }));
    if (picked) grips[picked.s].forEach((node, t) => { node.tabIndex = t === picked.t ? 0 : -1; });
  }
  function tell({ own, wrapped, real, contaminated }) {
    const kept = hour < length, wraps = hour + n < top, product = terms(now.v, now.g), { im, re } = UNITS[unit];
    const sum = (d) => (product[d] ?? []).map(({ j, i }) => `v${below(j)}g${below(i)}`).join(" + ") || "nothing";
    const [a, b, value] = [own, wrapped, real].map((x) => said(x[hour])), sign = re < 0 ? "−" : "+";
    move(hand, { "aria-valuemin": 0, "aria-valuemax": n - 1, "aria-valuenow": hour,
      "aria-valuetext": `hour ${hour}: ${a} belongs there, ${b} wrapped around, real part ${value}` });
    read.textContent = "";
    make(read, "b", {}, `Hour ${hour}: degree${wraps ? `s ${hour} and ${hour + n}` : ` ${hour}`}`);
    const list = make(read, "dl"), rows = [[kept ? OWN : TAIL, kept ? "causal sum" : "after the text", sum(hour), a],
      [WRAPPED, "wrapped", sum(hour + n), b],
      [OUTPUT, "comes out", wraps ? `${a} ${sign} ${b}${im ? " i" : ""}` : "", wraps && im ? "" : value]];
    for (const [style, title, ...texts] of rows) {
      make(list, "dt", { class: "caracal-sign", style }, title);
      for (const text of texts) make(list, "dd", {}, text);
    }
    make(read, "div", {}, !kept ? "No output: truncation cuts this hour off."
      : contaminated.includes(hour) ? `Output ${hour} depends on later tokens.`
        : `${wraps ? "The real part" : "This"} is output ${hour}. It is causal.`);
    make(read, "div", {}, `Contaminated outputs: ${contaminated.join(", ") || "none"}.`);
  }
  function paint({ contaminated }) {
    hours.forEach(({ node, disc, text }, t) => {
      const ring = t >= length ? "rule" : contaminated.includes(t) ? "wrapped" : "result";
      move(node, { visibility: t < n ? "visible" : "hidden" });
      move(disc, { style: `fill: var(--paper); stroke: var(--${ring}); stroke-width: ${t === hour ? 4 : 2}` });
      move(text, { style: `font-weight: ${t === hour ? 700 : 400}`, class: t < length ? "" : "muted" });
    });
    stacks.forEach(({ rects }, d) => terms(now.v, now.g)[d].forEach(({ j, i }, k) => {
      const colour = `var(--${d < length ? "result" : "wrapped"})`, tail = d >= length && d < n;
      const mine = picked?.t === (picked?.s === "v" ? j : i);
      move(rects[k], { style: `fill: ${colour}; fill-opacity: ${tail ? 0.25 : 1}; stroke-width: ${mine ? 2.5 : 1};
        stroke: ${mine ? "var(--ink)" : tail ? colour : "var(--paper)"}` });
    }));
  }
  function draw() {
    parts.classList.toggle("clock-wide", el.clientWidth >= 600);
    const panel = ((inputs.clientWidth || 300) - 20) / 2, pitch = panel / length;
    ["v", "g"].forEach((s, k) => {
      move(panels[s], { transform: `translate(${k * (panel + 20)} 0)` });
      move(floors[s], { x2: panel });
      motion.shown[s].forEach((value, t) => {
        const x = pitch * t, high = (value / LIMIT) * HEIGHT;
        move(bars[s][t], { x: x + pitch * 0.18, width: pitch * 0.64, y: TOP + HEIGHT - high, height: high });
        move(numbers[s][t], { x: x + pitch / 2 });
        for (const node of [grips[s][t], grips[s][t].ring]) move(node, { x, width: pitch, y: TOP - 4, height: HEIGHT + 8 });
      });
    });
    drawFace((face.clientWidth || 320) / 2);
  }
  function drawFace(radius) {
    const { shown } = motion;
    const rim = radius - 16, inner = radius * 0.38, scale = (rim - 18 - inner) / shown.reach[0], wide = inner * 0.3;
    const count = shown.n[0], half = 0.5 / count, place = shown.hand[0];
    const at = (part, r) => `${r * Math.sin(2 * Math.PI * part)} ${-r * Math.cos(2 * Math.PI * part)}`;
    move(face, { viewBox: `${-radius} ${-radius} ${2 * radius} ${2 * radius}`, height: 2 * radius });
    for (const [node, r] of [[dial, inner], [rail, rim], [halo, inner - 3]]) move(node, { r });
    move(sector, { d: `M0 0L${at(place - half, rim)}A${rim} ${rim} 0 0 1 ${at(place + half, rim)}Z` });
    stacks.forEach(({ node, rects }, d) => {
      const across = wide * shown.slim[d], sine = Math.abs(Math.sin((shown.turn[d] * Math.PI) / 180));
      const foot = inner + shown.base[d] * scale + sine * (across / 2 + 2.5);      // aside, it lies on the line
      move(node, { transform: `rotate(${(360 * d) / count}) translate(0 ${-foot}) rotate(${shown.turn[d]})` });
      let high = 0;
      terms(shown.v, shown.g)[d].forEach(({ value }, k) => {
        move(rects[k], { x: -across / 2, width: across, y: -high - value * scale, height: value * scale });
        high += value * scale;
      });
    });
    lines.forEach((node, t) => move(node, { x1: -wide * 0.75, x2: wide * 0.75,
      transform: `rotate(${(360 * t) / count}) translate(0 ${-inner - shown.real[t] * scale})` }));
    hours.forEach(({ node }, t) => move(node, { transform: `translate(${at(t / count, rim)})` }));
    move(needle, { d: `M-4 0L0 ${-inner * 0.5}L4 0Z`, transform: `rotate(${360 * place})` });
  }

  slider.addEventListener("input", () => { n = Number(slider.value); update(); });
  face.addEventListener("click", point);
  hold(hand, () => true, point);
  const next = () => turn(hour + 1), back = () => turn(hour - 1);
  listen(hand, { ArrowRight: next, ArrowUp: next, ArrowLeft: back, ArrowDown: back,
    Home: () => turn(0), End: () => turn(n - 1) });
  again.addEventListener("click", state.restart);
  state.restart();
  const end = follow(el, draw);
  return () => { end(); motion.stop(); };
}
export default { render };
