// A mixer as a matrix of weights: one row of it, the tokens it weighs, and the outputs, with and without a mask.
// The reader picks a mixer, an output row and the mask, and moves a token's number; weights that depend on the
// data move with it, and outputs that see the future answer.  Marks of the future are vermilion.
// model: words, x (one number each), before (x as it was when the token was picked up), mixer, masked, row, token,
// and matrix: without it the figure shows inputs and outputs of one mixer, and leaves out its matrix and the choice.

const LEFT = 50, RIGHT = 4;            // margins of every panel, in pixels: all share their columns
const LIMIT = 2;                       // largest value
const MOVED = 1e-9;                    // smaller changes are rounding
const MIXERS = { average: "average", attention: "attention", dft: "DFT, real part" };

const short = (x) => (Math.abs(x) < 0.005 ? "0" : said(x));
const far = (a, b) => Math.abs(a - b) > MOVED;
const count = (flags) => flags.filter(Boolean).length;

// The matrix of weights, rows of outputs; the numbers x serve as query, key and content alike.
export function weightsOf(mixer, masked, x) {
  const length = x.length;
  return x.map((query, t) => {
    const seen = x.map((_, j) => !masked || j <= t);
    if (mixer === "dft") return x.map((_, j) => (seen[j] ? Math.cos((2 * Math.PI * ((t * j) % length)) / length) : 0));
    const score = x.map((key) => (mixer === "attention" ? query * key : 0));
    const top = Math.max(...score.filter((_, j) => seen[j]));
    const e = score.map((s, j) => (seen[j] ? Math.exp(s - top) : 0));
    return e.map((value) => value / e.reduce((a, b) => a + b));
  });
}

// What each output takes from the tokens up to its own, and from all of them.
export function outputsOf(weights, x) {
  const sum = (row, last) => row.reduce((total, weight, j) => total + (j <= last ? weight * x[j] : 0), 0);
  return { past: weights.map((row, t) => sum(row, t)), total: weights.map((row) => sum(row, x.length)) };
}

const fill = (colour) => `fill: var(--${colour})`;
const line = (colour, width) => `fill: none; stroke: var(--${colour}); stroke-width: ${width}`;

// A row of bars: title, zero line, labels under the columns.
class Panel {
  constructor(svg, colour, length, top, height) {
    Object.assign(this, { length, height, top: top + 24, low: -1, high: 1 });
    this.shade = make(svg, "rect", { y: this.top - 2, height: height + 4, rx: 3, style: fill("shade") });
    make(svg, "rect", { y: top + 3, width: 11, height: 11, rx: 2, style: fill(colour) });
    this.title = make(svg, "text", { x: 17, y: top + 13, style: "font-weight: 600" });
    this.zero = make(svg, "line", { x1: LEFT, style: line("muted", 1) });
    this.ends = [0, 1].map((end) => make(svg, "text",
      { x: LEFT - 7, y: this.top + (end ? height : 0) + (end ? 2 : 8), "text-anchor": "end", class: "muted" }));
    this.labels = this.row(svg, "text", { y: this.top + height + 17, "text-anchor": "middle" });
    this.bars = make(svg, "g");
  }
  row(svg, name, attributes) { return all(this.length, () => make(svg, name, attributes)); }
  rects(style) { return this.row(this.bars, "rect", { style }); }
  lines(colour, width) { return this.row(this.bars, "line", { style: line(colour, width) }); }
  x(t) { return LEFT + this.pitch * (t + 0.5); }
  y(value) { return this.top + ((this.high - value) / (this.high - this.low)) * this.height; }
  layout(width, low, high, chosen) {
    Object.assign(this, { pitch: (width - LEFT - RIGHT) / this.length, low, high });
    move(this.zero, { x2: width - RIGHT, y1: this.y(0), y2: this.y(0) });
    [high, low].forEach((end, k) => { this.ends[k].textContent = minus(end); });
    this.shade.style.display = chosen === null ? "none" : "";
    if (chosen !== null) move(this.shade, { x: LEFT + this.pitch * chosen, width: this.pitch });
  }
  bar(node, t, from, to, share, style = node.getAttribute("style")) {
    const a = this.y(from), b = this.y(to), width = Math.min(this.pitch, 60) * share;
    move(node, { x: this.x(t) - width / 2, width, y: Math.min(a, b), height: Math.abs(a - b), style });
  }
  tick(node, t, value, share, visible) {
    const half = (Math.min(this.pitch, 60) * share) / 2;
    move(node, { x1: this.x(t) - half, x2: this.x(t) + half, y1: this.y(value), y2: this.y(value) });
    node.style.display = visible ? "" : "none";
  }
  column(t) { return { x: this.x(t) - this.pitch / 2, width: this.pitch, y: this.top - 3, height: this.height + 6 }; }
}

export function render({ model, el }) {
  const words = model.get("words"), matrix = model.get("matrix"), start = model.get("x").map(tidy), length = start.length;
  const state = inStep(model, ["x", "before", "mixer", "masked", "row", "token"], show);
  let mixer, masked, row, token, now, before;      // x as it stands, and as it was when a token was picked up

  const host = begin(el, `${matrix ? "Pick a mixer and an output, drag a blue bar" : "Pick an output, drag an input"}. By keyboard: `
    + "Tab to the bars, ←\u00a0→ choose, ↑\u00a0↓ change it.");
  const controls = make(el, "div", { class: "sum-controls" });
  const mixers = make(controls, "fieldset", { class: "sum-mixers" });
  make(mixers, "legend", {}, "mixer");
  const group = `mixer-${Math.random().toString(36).slice(2)}`;    // two figures on a page keep apart
  const radios = Object.entries(MIXERS).map(([value, name]) => {
    const label = make(mixers, "label");
    const radio = make(label, "input", { type: "radio", name: group, value });
    make(label, "span", {}, name);
    radio.addEventListener("change", () => { mixer = value; update(); });
    return radio;
  });
  const mask = make(controls, "label", { class: "sum-mask" }), box = make(mask, "input", { type: "checkbox" });
  make(mask, "span", {}, "causal mask");
  const { caption, slider } = slide(controls, { class: "sum-row" }, 0, length - 1);

  const rise = matrix ? 0 : fit(118, 84);            // the panel of weights is left out
  const square = make(el, "svg"), panels = make(el, "svg", { height: fit(404, 276) - rise });
  const weightPanel = make(panels, "g");
  for (const node of [mixers, mask, square, weightPanel]) node.style.display = matrix ? "" : "none";
  make(square, "text", { x: 0, y: 13, style: "font-weight: 600" }, "the matrix A, one row for each output");
  const chosen = make(square, "rect", { rx: 3, style: "fill: var(--shade); stroke: var(--ink); stroke-width: 2" });
  const cells = start.map((_, t) => start.map((_, j) => make(square, "rect", { rx: 1.5 })));
  const stairs = make(square, "path", { style: `${line("muted", 1)}; stroke-dasharray: 2 3` });
  const names = words.map((word) => make(square, "text", { x: LEFT - 7, "text-anchor": "end" }, word));
  const heads = words.map((word) => make(square, "text", { y: 33, "text-anchor": "middle", class: "muted" }, word));
  const picker = make(square, "rect", { class: "sum-pick" });
  const weigh = new Panel(weightPanel, "ink", length, 0, fit(62, 38));
  const [content, output] = [["content", fit(118, 84), fit(84, 50)], ["result", fit(258, 180), fit(96, 52)]]
    .map(([colour, top, height]) => new Panel(panels, colour, length, top - rise, height));
  const bars = {
    weight: weigh.rects(""), weightTick: weigh.lines("muted", 2),
    whole: content.rects(line("content", 1.3)), share: content.rects(""),
    past: output.rects(fill("result")), future: output.rects(fill("wrapped")),
    outputTick: output.lines("muted", 2), total: output.lines("ink", 2.5),
  };
  const chooser = make(panels, "rect", { class: "sum-pick" });
  const grips = start.map((_, j) => grip(j));
  legend(el, [["--c: var(--wrapped)", "from the future"],
    ...(matrix ? [["--e: 1.6px solid var(--ink)", "hollow: negative"]] : []),
    ["--c: var(--ink); --h: 3px", "the output"], ["--c: var(--muted); --h: 2px", "before you dragged"]]);
  const entries = facts(el, matrix ? 4 : 2);
  make(el, "button", { type: "button" }, "Start again").addEventListener("click", state.restart);

  function grip(j) {
    const node = gripping(panels, `content of token ${j}, ${words[j]}`, -LIMIT, LIMIT);
    node.addEventListener("focus", () => pick(j));
    raisable(node, j, { row: () => grips, value: () => now[j], change: poke, pixels: content.height / (2 * LIMIT) });
    return node;
  }
  function pick(j) {
    if (j !== token) [before, token] = [[...now], j];
    update();
  }
  function poke(value) {
    now[token] = clamp(tidy(value), -LIMIT, LIMIT);
    update();
  }
  function choose(t) {
    row = clamp(Math.floor(t), 0, length - 1);
    update();
  }
  function show(given) {
    [now, before] = [given.x, given.before].map((x) => x.map((value) => clamp(tidy(value), -LIMIT, LIMIT)));
    [mixer, masked] = [given.mixer in MIXERS ? given.mixer : "attention", Boolean(given.masked)];
    [row, token] = [given.row, given.token].map((k) => clamp(Math.round(k), 0, length - 1));
    update();
  }

  function update() {
    const weights = weightsOf(mixer, masked, now), prior = weightsOf(mixer, masked, before);
    const { past, total } = outputsOf(weights, now), priorTotal = outputsOf(prior, before).total;
    const future = weights.map((entries, t) => count(entries.map((w, j) => j > t && far(w, 0))));
    const stirredAt = total.map((r, t) => far(r, priorTotal[t]));
    const found = { futureRow: future[row], futureAll: future.reduce((a, b) => a + b),
      weightsMoved: count(weights.flatMap((entries, t) => entries.map((w, j) => far(w, prior[t][j])))),
      outputsMoved: count(stirredAt), outputsEarly: count(stirredAt.slice(0, token)) };
    Object.assign(host.dataset, { mixer, masked, row, token, x: JSON.stringify(now), weights: JSON.stringify(weights),
      outputs: JSON.stringify(total), ...found });
    state.tell({ x: now, before, mixer, masked, row, token });
    tell(found, total, now[token] !== before[token]);
    speak(el, `Row ${row}: ${found.futureRow} of ${length} weights belong to later words, r is ${short(total[row])}.`);
    draw(weights, prior, past, total, priorTotal);
  }
  function tell(found, total, touched) {
    radios.forEach((radio) => { radio.checked = radio.value === mixer; });
    [box.checked, slider.value] = [masked, row];
    slider.setAttribute("aria-valuetext", `t = ${row}, ${words[row]}`);
    caption.textContent = `output t = ${row}, “${words[row]}”`;
    weigh.title.textContent = `row ${row} of A: the weights`;
    content.title.textContent = `inputs (outline), terms of r${below(row)} (solid)`;
    output.title.textContent = `outputs r; here r${below(row)} = ${short(total[row])}`;
    if (!matrix) {
      say(0, `terms of output ${row} from later words`, `${found.futureRow} of ${length}`, found.futureRow);
      say(1, `outputs changed with “${words[token]}”`, touched ? `${found.outputsMoved} of ${length}` : "–");
      return grip_values();
    }
    say(0, `weights of later words, row ${row}`, `${found.futureRow} of ${length}`, found.futureRow);
    say(1, "weights of later words, all of A", `${found.futureAll} of ${length * length}`, found.futureAll);
    say(2, `weights changed with “${words[token]}”`, touched ? `${found.weightsMoved} of ${length * length}` : "–");
    say(3, `outputs before “${words[token]}” changed`, touched ? `${found.outputsEarly} of ${token}` : "–",
      touched && found.outputsEarly);
    grip_values();
  }
  function grip_values() {
    grips.forEach((node, j) => move(node, { tabindex: j === token ? 0 : -1, "aria-valuenow": now[j],
      "aria-valuetext": `${now[j]}, before ${before[j]}` }));
  }
  function say(k, name, value, alarm) {
    entries[k].name.textContent = name;
    entries[k].value.textContent = value;
    entries[k].value.className = alarm ? "caracal-sign sum-alarm" : "";
  }
  function draw(weights, prior, past, total, priorTotal) {
    const width = panels.clientWidth || 600, pitch = (width - LEFT - RIGHT) / length, tall = Math.min(pitch, fit(40, 24));
    const edge = Math.min(pitch, tall) - 5, top = 41, bold = "font-weight: 700";
    move(square, { height: top + tall * length + 8 });
    move(picker, { x: 0, y: top, width, height: tall * length });
    move(chosen, { x: 1, y: top + tall * row, width: width - 2, height: tall });
    names.forEach((node, t) => move(node, { y: top + tall * (t + 0.5) + 4, style: t === row ? bold : "" }));
    heads.forEach((node, j) => node.setAttribute("x", LEFT + pitch * (j + 0.5)));
    const steps = start.slice(1).map((_, t) => `H${LEFT + pitch * (t + 1)}V${top + tall * (t + 1)}`);
    stairs.setAttribute("d", `M${LEFT} ${top}${steps.join("")}H${width - RIGHT}`);
    weights.forEach((entries, t) => entries.forEach((w, j) => {
      const side = edge * Math.sqrt(Math.abs(w)), colour = j > t ? "wrapped" : "ink";
      move(cells[t][j], { x: LEFT + pitch * (j + 0.5) - side / 2, y: top + tall * (t + 0.5) - side / 2,
        width: side, height: side, style: w < 0 ? line(colour, 1.6) : fill(colour) });
    }));
    weigh.layout(width, mixer === "dft" ? -1 : 0, 1, null);
    content.layout(width, -LIMIT, LIMIT, token);
    const reach = niceLimit(peak([...total, ...priorTotal, ...past]));
    output.layout(width, -reach, reach, row);
    move(chooser, { x: LEFT, y: output.top, width: width - LEFT - RIGHT, height: output.height + 20 });
    for (let j = 0; j < length; j++) {
      const w = weights[row][j], late = j > row;
      weigh.bar(bars.weight[j], j, 0, w, 0.6, fill(late ? "wrapped" : "ink"));
      weigh.tick(bars.weightTick[j], j, prior[row][j], 0.86, far(prior[row][j], w));
      [weigh.labels[j].textContent, content.labels[j].textContent] = [short(w), words[j]];
      output.labels[j].textContent = words[j];
      content.bar(bars.whole[j], j, 0, now[j], 0.6);
      content.bar(bars.share[j], j, 0, w * now[j], 0.6, fill(late ? "wrapped" : "content"));
      output.bar(bars.past[j], j, 0, past[j], 0.6);
      output.bar(bars.future[j], j, past[j], total[j], 0.3);
      output.tick(bars.outputTick[j], j, priorTotal[j], 0.95, far(priorTotal[j], total[j]));
      output.tick(bars.total[j], j, total[j], 0.72, true);
      for (const [panel, chosen] of [[weigh, null], [content, token], [output, row]])
        move(panel.labels[j], { x: panel.x(j), style: j === chosen ? bold : "" });
      for (const node of [grips[j], grips[j].ring]) move(node, content.column(j));
    }
  }

  slider.addEventListener("input", () => choose(Number(slider.value)));
  box.addEventListener("change", () => { masked = box.checked; update(); });
  sweep(picker, (_, down) => choose(length * down));
  sweep(chooser, (across) => choose(length * across));
  state.restart();
  return follow(el, update);
}

export default { render };
