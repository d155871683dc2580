// Six tokens on their way through a Multi-Head Fourier layer.  At each step the reader touches a number, and the
// numbers that it is made of light up in the table before it, with the sum written out.
// model: words (L), heads, x (L rows of D), taps (D rows of 3), norm (scale, shift, eps), value, gate, out (matrix, bias),
// mix (D rows of D / H, bias), step, token, channel (the number that is touched).

const ROW = fit(30, 26), HEAD = fit(20, 17), GAP = fit(54, 38);           // a cell's height, the line of words above a table, room for the pairs

const dot = (a, b) => a.reduce((sum, x, k) => sum + x * b[k], 0);
const silu = (a) => a / (1 + Math.exp(-a));
const linear = ([matrix, bias]) => (column) => matrix.map((row, c) => dot(row, column) + bias[c]);

// Every tensor of the layer, by name: L rows of D numbers each.
export function steps({ x, taps, norm, value, gate, mix, out }) {
  const [scale, shift, eps] = norm, wide = mix[0][0].length;
  const xt = x.map((_, t) => taps.map((row, c) => row.reduce((sum, w, k) => sum + (t - 2 + k < 0 ? 0 : w * x[t - 2 + k][c]), 0)));
  const xh = xt.map((column) => {
    const [mean, size] = moments(column, eps);
    return column.map((a, c) => (scale[c] * (a - mean)) / size + shift[c]);
  });
  const v = xh.map(linear(value)), h = xh.map((column) => linear(gate)(column).map(silu));
  const g = h.map((column) => mix[0].map((row, c) => {
    const first = c - (c % wide);
    return dot(row, column.slice(first, first + wide)) + mix[1][c];
  }));
  const r = v.map((_, t) => v[0].map((_, c) => v.slice(0, t + 1).reduce((sum, a, j) => sum + a[c] * g[t - j][c], 0)));
  return { x, xt, xh, v, h, g, r, y: r.map(linear(out)) };
}
function moments(column, eps) {
  const mean = column.reduce((a, b) => a + b, 0) / column.length;
  return [mean, Math.sqrt(column.reduce((sum, a) => sum + (a - mean) ** 2, 0) / column.length + eps)];
}

const NAMES = { x: "x", xt: "x̃", xh: "x̂", v: "v", h: "h", g: "g", r: "r", y: "y" };
const ORDER = Object.keys(NAMES);
const BEFORE = { x: [], xt: ["x"], xh: ["xt"], v: ["xh"], h: ["xh"], g: ["h"], r: ["v", "g"], y: ["r"] };
const SHADE = { v: "content", h: "gate", g: "gate", r: "result" };
const TITLE = {
  x: "The input x", xt: "Step 1: the short convolution, x̃", xh: "Then layer normalisation, x̂", v: "Step 2: the content v",
  h: "Step 2: the gate, first stage, h", g: "Step 2: the gate, second stage, g", r: "Step 3: the causal convolution, r", y: "Step 4: the output y",
};

export function render({ model, el }) {
  const words = model.get("words"), heads = model.get("heads");
  const parts = Object.fromEntries(["x", "taps", "norm", "value", "gate", "mix", "out"].map((name) => [name, model.get(name)]));
  const tensors = steps(parts), length = words.length, width = parts.x[0].length, wide = width / heads;
  const state = inStep(model, ["step", "token", "channel"], show);
  let step, token, channel, hover = null, cells = [];

  const host = begin(el, "Choose a step, then touch a number of the lower table. By keyboard: Tab to the steps or to the table, then the arrow keys.");
  const row = make(el, "div", { class: "fs-steps", role: "group", "aria-label": "steps through the layer" });
  const buttons = ORDER.map((key, k) => {
    const shade = SHADE[key] ? `var(--${SHADE[key]})` : "var(--muted)";
    const button = make(row, "button", { type: "button", "aria-label": TITLE[key], style: `border-bottom: 4px solid ${shade}` }, NAMES[key]);
    button.addEventListener("click", () => go(key));
    const to = (next) => () => { const i = clamp(next, 0, ORDER.length - 1); buttons[i].focus(); go(ORDER[i]); };
    listen(button, { ArrowLeft: to(k - 1), ArrowRight: to(k + 1), Home: to(0), End: to(Infinity) });
    return button;
  });
  const head = make(el, "p", { class: "fs-head" }), what = make(el, "p", { class: "fs-what" });
  const canvas = make(el, "svg", { role: "group", "aria-label": "the table of this step, below those it is made of" });
  const told = make(el, "div", { class: "fs-facts", "aria-live": "off" });
  const reach = make(told, "p"), sum = make(told, "p", { class: "fs-sum" });

  function show(given) {
    [step, token, channel] = [given.step in NAMES ? given.step : ORDER[0], clamp(given.token, 0, length - 1), clamp(given.channel, 0, width - 1)];
    hover = null;
    update();
  }
  function go(key) { [step, hover] = [key, null]; update(); }
  function pick(t, c) { [token, channel, hover] = [t, c, null]; light(); }

  // What number (t, c) of this step is made of: [tensor, token, channel, factor], a token before 0 being a zero of the padding.
  function sources(t, c) {
    const column = (name, factors, first = 0) => factors.map((w, k) => [name, t, first + k, w]);
    switch (step) {
      case "xt": return parts.taps[c].map((w, k) => ["x", t - 2 + k, c, w]);
      case "xh": return column("xt", all(width, () => 1));
      case "v": return column("xh", parts.value[0][c]);
      case "h": return column("xh", parts.gate[0][c]);
      case "g": return column("h", parts.mix[0][c], c - (c % wide));
      case "r": return all(t + 1, (j) => ["v", j, c, tensors.g[t - j][c]]).concat(all(t + 1, (j) => ["g", t - j, c, tensors.v[j][c]]));
      case "y": return column("r", parts.out[0][c]);
      default: return [];
    }
  }
  // The same number once more, from its sources alone.
  function again(t, c, from) {
    const at = (name, s, k) => (s < 0 ? 0 : tensors[name][s][k]);
    const bias = { v: parts.value[1], h: parts.gate[1], g: parts.mix[1], y: parts.out[1] }[step]?.[c] ?? 0;
    if (step === "x") return tensors.x[t][c];
    if (step === "xh") {
      const [mean, size] = moments(from.map(([name, s, k]) => at(name, s, k)), parts.norm[2]);
      return (parts.norm[0][c] * (tensors.xt[t][c] - mean)) / size + parts.norm[1][c];
    }
    const terms = step === "r" ? from.slice(0, t + 1) : from;
    const total = terms.reduce((sum, [name, s, k, w]) => sum + w * at(name, s, k), bias);
    return step === "h" ? silu(total) : total;
  }

  function explain(t, c) {
    const of = (...shape) => `[${shape.join(", ")}]`;
    const own = `channel ${c}`, first = c - (c % wide);
    return {
      x: `Each token is a vector of ${width} numbers, drawn as a column.`,
      xt: `Row ${c} of pre_conv, ${of(width, 1, 3)}, times three tokens of ${own}, with zeros before the text. No other channel.`,
      xh: "The column of one token, minus its mean, divided by its size. No other token.",
      v: `Row ${c} of to_value, ${of(width, width)}, times the column of one token, plus a bias. No other token.`,
      h: `Row ${c} of to_gate, ${of(width, width)}, times the column of one token, plus a bias, then SiLU. No other token.`,
      g: `Row ${c} of gate_mix, ${of(width, wide, 1)}, times the channels of the same head, ${first} to ${first + wide - 1}, plus a bias.`,
      r: `Each content times the gate whose position adds up to ${t}, summed. All tokens up to this one, no other channel.`,
      y: `Row ${c} of to_out, ${of(width, width)}, times the column of one token, plus a bias. No other token.`,
    }[step];
  }
  function write(t, c, from, value) {
    const n = (x) => (x < 0 ? `(${said(x)})` : said(x));
    const terms = [], name = NAMES[step];
    if (step === "xh") {
      const [mean, size] = moments(tensors.xt[t], parts.norm[2]);
      terms.push(`(${said(tensors.xt[t][c])} − ${n(mean)}) / ${said(size)}`);
    } else if (step === "r") {
      for (let j = 0; j <= t; j++) terms.push(`${n(tensors.v[j][c])}·${n(tensors.g[t - j][c])}`);
    } else if (step !== "x") {
      for (const [key, s, k, w] of from) terms.push(`${n(w)}·${s < 0 ? 0 : n(tensors[key][s][k])}`);
      const bias = { v: parts.value[1], h: parts.gate[1], g: parts.mix[1], y: parts.out[1] }[step]?.[c];
      if (bias !== undefined) terms.push(n(bias));
    }
    sum.textContent = "";
    make(sum, "b", {}, `${name} of “${words[t]}”, channel ${c}: ${said(value)}`);
    terms.forEach((term, k) => {
      sum.append(k ? " + " : step === "h" ? " = SiLU( " : " = ");
      make(sum, "span", {}, term);
    });
    if (step === "h") sum.append(" )");
    const start = step === "x" ? t : step === "r" || step === "y" ? 0 : Math.max(0, t - 2);
    reach.textContent = `It depends on the words: ${words.slice(start, t + 1).join(" ")}.`;
  }

  // The tables of this step: where each stands, its cells and what belongs to it.
  let tables = {}, pairs = null;
  function update() {
    buttons.forEach((button, k) => move(button, { "aria-pressed": ORDER[k] === step, tabindex: ORDER[k] === step ? 0 : -1 }));
    head.textContent = TITLE[step];
    canvas.textContent = "";
    tables = {};
    const room = canvas.clientWidth || 340, side = 20, pad = step === "xt" ? 20 : 0;
    const cell = Math.min(108, (room - side - 2 * pad - 2) / length);
    const x = (t) => side + 2 * pad + t * cell, end = x(length);
    const tall = (key) => width * ROW + (split(key) ? (heads - 1) * 6 : 0);
    let top = 0;
    const shape = (key) => (key === "r" || step === "r" ? `[B, D, L] = [1, ${width}, ${length}]` : `[B, L, D] = [1, ${length}, ${width}]`);
    function title(key, y, text = NAMES[key]) {
      make(canvas, "text", { x: side, y, class: "fs-name" }, text);
      make(canvas, "text", { x: end, y, "text-anchor": "end", class: "fs-shape" }, shape(key));
    }
    function header(y) {
      words.forEach((word, t) => make(canvas, "text", { x: x(t) + cell / 2, y, "text-anchor": "middle", class: "muted" }, word));
    }
    function table(key, y0) {
      const y = (c) => y0 + c * ROW + (split(key) ? Math.floor(c / wide) * 6 : 0);
      const boxes = all(width, (c) => all(length + 2, (k) => {
        const t = k - 2;
        if (t < 0 && !(pad && key === "x")) return null;
        const left = t < 0 ? x(0) + t * pad : x(t), wideness = t < 0 ? pad : cell;
        const box = make(canvas, "rect", { x: left + 1, y: y(c) + 1, width: wideness - 2, height: ROW - 2, rx: 2, class: "fs-box" });
        const value = t < 0 ? 0 : tensors[key][t][c];
        const number = make(canvas, "text", { x: left + wideness / 2, y: y(c) + ROW / 2 + 4.5, "text-anchor": "middle", class: "fs-number" },
          t < 0 ? "0" : said(value));
        return { box, number, left, wideness, y: y(c) };
      }));
      all(width, (c) => make(canvas, "text", { x: key === "x" ? side - 7 : x(0) - 7, y: y(c) + ROW / 2 + 4.5,
        "text-anchor": "end", class: "muted" }, `${c}`));
      tables[key] = boxes;
      return y0 + tall(key);
    }
    const [source, partner] = BEFORE[step];
    if (source) {
      title(source, top + 13);
      header(top + 13 + HEAD);
      top = table(source, top + HEAD + 20);
    }
    pairs = null;
    if (partner) {
      pairs = { group: make(canvas, "g"), from: top, to: top + GAP, x: (t) => x(t) + cell / 2 };
      top = table(partner, top + GAP);
      title(partner, top + 18);
      top += 22;
    }
    if (source) {
      const middle = x(0) + (end - x(0)) / 2;
      make(canvas, "path", { d: `M${middle - 9} ${top + fit(12, 5)}h18l-9 11z`, style: "fill: var(--muted)" });
      top += fit(30, 22);
    }
    title(step, top + 13);
    header(top + 13 + HEAD);
    const bottom = table(step, top + HEAD + 20);
    cells = all(width, (c) => all(length, (t) => touchable(t, c, tables[step][c][t + 2])));
    move(canvas, { height: bottom + 2, width: room });
    light();
  }
  const split = (key) => heads > 1 && (step === "g" ? key === "h" || key === "g" : false);

  function touchable(t, c, place) {
    const node = make(canvas, "rect", { class: "fs-cell", role: "button", x: place.left + 1, y: place.y + 1, width: place.wideness - 2,
      height: ROW - 2, rx: 2, "aria-label": `${NAMES[step]}, ${words[t]}, token ${t}, channel ${c}: ${said(tensors[step][t][c])}` });
    pickable(node, () => pick(t, c), (looks) => {
      if (!looks && !hover) return;
      hover = looks ? [t, c] : null;
      light();
    });
    const to = (nt, nc) => () => cells[clamp(nc, 0, width - 1)][clamp(nt, 0, length - 1)].focus();
    listen(node, { ArrowLeft: to(t - 1, c), ArrowRight: to(t + 1, c), ArrowUp: to(t, c - 1), ArrowDown: to(t, c + 1),
      Home: to(0, c), End: to(length, c) });
    return node;
  }

  function light() {
    const [t, c] = hover ?? [token, channel], from = sources(t, c), value = again(t, c, from);
    const lit = new Set(from.map(([key, s, k]) => `${key} ${s} ${k}`));
    for (const [key, rows] of Object.entries(tables)) {
      const shade = SHADE[key] ? `var(--${SHADE[key]})` : "var(--ink)";
      rows.forEach((line, k) => line.forEach((place, s) => {
        if (!place) return;
        const chosen = key === step && s - 2 === t && k === c, on = chosen || (key !== step && lit.has(`${key} ${s - 2} ${k}`));
        move(place.box, { class: on ? "fs-box fs-lit" : "fs-box", style: on ? `stroke: ${shade}; fill: ${shade}` : "" });
        move(place.number, { style: on ? "font-weight: 700" : "fill: var(--muted)" });
      }));
    }
    if (pairs) {
      const curve = (j) => `M${pairs.x(j)} ${pairs.from + 2}L${pairs.x(t - j)} ${pairs.to - 2}`;
      pairs.group.textContent = "";
      all(t + 1, (j) => make(pairs.group, "path", { d: curve(j), class: "fs-pair" }));
    }
    cells.forEach((line, k) => line.forEach((node, s) => move(node, { tabindex: s === token && k === channel ? 0 : -1 })));
    what.textContent = explain(t, c);
    write(t, c, from, value);
    if (!hover) speak(el, `${NAMES[step]}, token ${t}, channel ${c}: ${said(tensors[step][t][c])}.`);
    Object.assign(host.dataset, { step, token: t, channel: c, value: tensors[step][t][c], again: value,
      sources: JSON.stringify(from), tensors: JSON.stringify(tensors) });
    state.tell({ step, token, channel });
  }

  state.restart();
  let last = canvas.clientWidth;
  return follow(el, () => { if (canvas.clientWidth !== last) { last = canvas.clientWidth; update(); } });
}

export default { render };
