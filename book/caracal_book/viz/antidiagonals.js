// The product of two polynomials as the anti-diagonals of the table of products v_j g_k.
// The table is turned by 45 degrees: cell (j, k) stands at x = j + k, above the bar of coefficient j + k.
// model: v, g (whole numbers, same length L), t (the coefficient that is lit), limit (largest entry).

const PITCH = 31;                      // largest distance of two bars, in pixels
const BARS = fit(104, 64), GAP = fit(30, 24);    // height of the bars; room between table and bars, for the arrow
const TALLEST = fit(Infinity, 300);    // table, in pixels
const APART = 0.5;                     // of the entries from the table, in pitches: they stand between the columns
const DRAG = 14;                       // pixels of pointer travel for one unit
const NAME = { v: "content v", g: "gate g" };

const signed = (x) => (x < 0 ? `(${minus(x)})` : `${x}`);

// All 2L - 1 coefficients of the product, and the pairs [j, i] behind coefficient t.
export function multiply(v, g) {
  const product = Array(v.length + g.length - 1).fill(0);
  v.forEach((a, j) => g.forEach((b, k) => { product[j + k] += a * b; }));
  return product;
}
export const pairs = (length, t) => all(length, (j) => [j, t - j]).filter(([, i]) => i >= 0 && i < length);

export function render({ model, el }) {
  const start = { v: model.get("v"), g: model.get("g") }, length = start.v.length, last = 2 * length - 2;
  const limit = model.get("limit");
  const colour = (s) => (s < length ? "var(--result)" : "var(--wrapped)");
  const state = inStep(model, ["v", "g", "t"], show);
  const now = {};
  let t, reach = 1;

  const host = begin(el, "Click a cell or a bar, or move the slider, to choose t. Drag an entry of v or g up or down. By keyboard: Tab to the entries, ← → choose one, ↑ ↓ change it.");
  const drawing = make(el, "svg", { role: "presentation" });
  const label = make(el, "label", { class: "anti-t" });
  const slider = make(label, "input", { type: "range", min: 0, max: last, step: 1 });
  const caption = make(label, "span");
  legend(el, [["--c: var(--content)", NAME.v], ["--c: var(--gate)", NAME.g],
    ["--c: var(--result)", "outputs of the text"], ["--c: var(--wrapped)", "beyond the text"]]);
  const words = make(el, "div", { class: "anti-sum", "aria-live": "off" });
  const sum = make(words, "div", { class: "anti-line" });
  const numbers = make(words, "div", { class: "anti-line" });
  const note = make(words, "div");
  const again = make(el, "button", { type: "button" }, "Start again");

  // Back to front: the column of the chosen t, the cells, the bars, the entries with their rings.
  const column = make(drawing, "rect", { rx: 4, style: "fill: var(--shade)" });
  const arrow = make(drawing, "path", { style: "fill: none; stroke-width: 2.5" });
  const cells = start.v.map((_, j) => start.g.map((_, i) => {
    const cell = make(drawing, "path", { class: "anti-cell", style: `fill: ${colour(j + i)}; stroke: ${colour(j + i)}` });
    cell.addEventListener("click", () => choose(j + i));
    return { cell, text: make(drawing, "text", { class: "anti-value" }) };
  }));
  const zero = make(drawing, "line", { style: "stroke: var(--muted)" });
  const bars = all(last + 1, (s) => ({
    bar: make(drawing, "rect", { style: `fill: ${colour(s)}` }),
    value: make(drawing, "text", { class: "anti-value" }), power: make(drawing, "text", { class: "anti-value" }),
  }));
  const names = ["r", "t"].map((name) => make(drawing, "text", { class: "anti-value dim", style: "font-style: italic" }, name));
  const field = make(drawing, "rect", { class: "anti-bars" });
  const entries = { v: start.v.map((_, k) => entry("v", k)), g: start.g.map((_, k) => entry("g", k)) };

  function entry(s, k) {
    const group = make(drawing, "g");
    const grip = make(group, "path", { class: "caracal-grip anti-grip", role: "slider", "aria-orientation": "vertical",
      "aria-label": `${NAME[s]}, entry ${k}`, "aria-valuemin": -limit, "aria-valuemax": limit,
      tabindex: k ? -1 : 0, style: `stroke: var(--${s === "v" ? "content" : "gate"})` });
    const ring = make(group, "path", { class: "caracal-ring" });
    const value = make(group, "text", { class: "anti-value", style: "font-weight: 700" });
    const name = make(group, "text", { class: "anti-value" }, s);
    make(name, "tspan", { dy: 3, style: "font-size: 9.5px" }, k);
    grip.addEventListener("focus", () => entries[s].forEach((e, n) => e.grip.setAttribute("tabindex", n === k ? 0 : -1)));
    raisable(grip, k, { row: () => entries[s].map((e) => e.grip), value: () => now[s][k],
      change: (to) => set(s, k, to), pixels: DRAG, step: 1, leap: 3, snap: 1 });
    return { grip, value, name, ring };
  }
  function set(s, k, value) {
    now[s][k] = clamp(value, -limit, limit);
    update();
  }
  function choose(s) {
    t = clamp(s, 0, last);
    update();
  }
  function show(given) {
    for (const s of ["v", "g"]) now[s] = given[s].map((x) => clamp(Math.round(x), -limit, limit));
    choose(given.t);
  }
  function restart() {
    reach = 1;
    state.restart();
  }

  function update() {
    const product = multiply(now.v, now.g), met = pairs(length, t);
    reach = Math.max(reach, peak(product));
    slider.value = t;
    slider.setAttribute("aria-valuetext", `t = ${t}, sum ${product[t]}`);
    track(slider, (length - 0.5) / last, "result", "wrapped");
    caption.textContent = `coefficient t = ${t}`;
    tell(product, met);
    speak(el, `Coefficient ${t} is ${minus(product[t])}, a sum of ${met.length === 1 ? "1 product" : `${met.length} products`}.`);
    for (const s of ["v", "g"]) {
      entries[s].forEach((e, k) => {
        e.value.textContent = minus(now[s][k]);
        move(e.grip, { "aria-valuenow": now[s][k], "aria-valuetext": now[s][k] });
      });
    }
    Object.assign(host.dataset, { t, v: JSON.stringify(now.v), g: JSON.stringify(now.g),
      product: JSON.stringify(product), pairs: JSON.stringify(met), sum: product[t], beyond: t >= length });
    state.tell({ ...now, t });
    draw(product);
  }

  function tell(product, met) {
    const write = (line, head, terms) => {
      line.replaceChildren();
      line.append(head);
      terms.forEach((term, k) => {
        if (k) line.append(" + ");
        const span = make(line, "span");
        for (const [s, text, sub] of term) {
          if (span.childNodes.length) span.append("·");
          const part = make(span, "span", { class: `anti-${s}` }, text);
          if (sub !== undefined) make(part, "sub", {}, sub);
        }
      });
    };
    write(sum, "", met.map(([j, i]) => [["v", "v", j], ["g", "g", i]]));
    write(numbers, "= ", met.map(([j, i]) => [["v", signed(now.v[j])], ["g", signed(now.g[i])]]));
    numbers.append(" = ");
    make(numbers, "span", { class: "anti-r", style: `--c: ${colour(t)}` }, minus(product[t]));
    note.textContent = t < length
      ? `Positions add up to ${t}, an output of the text.`
      : `Positions add up to ${t}, which the text of ${length} tokens has not reached.`;
  }

  function draw(product = multiply(now.v, now.g)) {
    const width = drawing.clientWidth || 600;
    const pitch = Math.min(PITCH, width / (2 * length + 0.75 + APART), TALLEST / (2 * length + 1.4 + 2 * APART));
    const left = (width - pitch * (2 * length - 0.75 - APART)) / 2 + 1.05 * pitch;   // x of the bar of coefficient 0
    const middle = pitch * (length + 0.95 + APART);
    const top = middle + pitch * (length + 0.45 + APART), base = top + GAP + 14 + BARS / 2;
    const at = (j, i) => [left + pitch * (j + i), middle + pitch * (j - i)];
    const diamond = ([x, y], half) => `M${x - half} ${y}L${x} ${y - half}L${x + half} ${y}L${x} ${y + half}Z`;
    const put = (node, x, y, text) => {
      move(node, { x, y: y + 4.5 });
      if (text !== undefined) node.textContent = text;
    };
    move(drawing, { height: base + BARS / 2 + 44 });
    Object.assign(slider.style, { width: `${pitch * last + 24}px`, marginLeft: `${left - 12}px` });
    names.forEach((name, k) => put(name, left - pitch, base + BARS / 2 + 12 + 19 * k));
    cells.forEach((row, j) => row.forEach(({ cell, text }, i) => {
      const lit = j + i === t;
      move(cell, { d: diamond(at(j, i), pitch * 0.94 - (lit ? 1 : 0)), class: lit ? "anti-cell lit" : "anti-cell",
        "fill-opacity": lit ? 0.38 : 0.1 });
      put(text, ...at(j, i), minus(now.v[j] * now.g[i]));
      text.setAttribute("class", lit ? "anti-value" : "anti-value dim");
      text.style.fontWeight = lit ? 700 : 400;
    }));
    for (const s of ["v", "g"]) {
      entries[s].forEach((e, k) => {
        const [x, y] = s === "v" ? at(k, -1 - APART) : at(-1 - APART, k);
        e.grip.setAttribute("d", diamond([x, y], pitch * 0.8));
        e.ring.setAttribute("d", diamond([x, y], pitch * 0.8 + 4));
        put(e.value, x, y);
        const away = pitch * 0.66 + (s === "v" ? 0 : 4);   // an index below g stands nearer to the edge
        put(e.name, x - away, s === "v" ? y + away : y - away);
      });
    }
    const x = left + pitch * t, length_t = pairs(length, t).length, foot = middle + pitch * length_t;
    const tall = (product[t] / reach) * (BARS / 2);
    move(column, { x: x - pitch / 2, width: pitch, y: top + GAP - 6, height: BARS + 62 });
    move(arrow, { d: `M${x} ${foot + 4}V${top + GAP - 7}m-5 -6l5 6l5 -6` });
    arrow.style.stroke = colour(t);
    move(zero, { x1: left - pitch / 2, x2: left + pitch * (last + 0.5), y1: base, y2: base });
    bars.forEach(({ bar, value, power }, s) => {
      const high = (product[s] / reach) * (BARS / 2);
      move(bar, { x: left + pitch * (s - 0.33), width: pitch * 0.66, y: Math.min(base, base - high),
        height: Math.abs(high), "fill-opacity": s === t ? 1 : 0.5 });
      put(value, left + pitch * s, base + BARS / 2 + 12, minus(product[s]));
      put(power, left + pitch * s, base + BARS / 2 + 31, s);
      value.style.fontWeight = power.style.fontWeight = s === t ? 700 : 400;
      power.setAttribute("class", "anti-value dim");
    });
    move(field, { x: left - pitch / 2, width: pitch * (last + 1), y: top + GAP - 6, height: BARS + 62 });
  }

  sweep(field, (across) => choose(Math.floor(across * (last + 1))));
  slider.addEventListener("input", () => choose(Number(slider.value)));
  again.addEventListener("click", restart);
  restart();
  return follow(el, draw);
}

export default { render };
