// A kernel g and its lower-triangular Toeplitz matrix, linked: a bar is a diagonal, an entry shows its lag,
// and a row is the weighted sum r_t.  The reader drags the bars.
// model: v, g (numbers, same length L), row, column (the entry that is picked at the start, column <= row).

const SIDE = 22, RIGHT = 62, TOP = 64;       // margins of the matrix: row numbers, bars of r, bars of v

// r_t = sum over j <= t of v_j g_{t-j}.
export function mixed(v, g) {
  return v.map((_, t) => v.slice(0, t + 1).reduce((sum, x, j) => sum + x * g[t - j], 0));
}

export function render({ model, el }) {
  const v = model.get("v").map(tidy), first = model.get("g").map(tidy), length = v.length;
  const limit = Math.max(2, Math.ceil(peak([...v, ...first])));
  const state = inStep(model, ["g", "row", "column"], show);
  let g, row, column, hover = null;      // the entry that is picked, and the one under the mouse

  const host = begin(el, "Drag an orange bar, or pick a square. By keyboard: Tab to the bars or the squares, then the arrow keys.");
  const parts = make(make(el, "div", { class: "toe-room" }), "div", { class: "toe-parts" });
  const [kernelBox, matrixBox, words] = ["kernel", "matrix", "words"].map((name) => make(parts, "div", { class: `toe-${name}` }));
  make(kernelBox, "p", { class: "toe-head" }, "kernel g, by lag");
  const kernel = make(kernelBox, "svg", { height: fit(210, 150) });
  make(matrixBox, "p", { class: "toe-head" }, "matrix A: rows t, columns j");
  const matrix = make(matrixBox, "svg");

  const floor = fit(180, 120), reach = fit(84, 54), zero = floor - reach - 6;
  const y = (value) => zero - (value / limit) * reach;
  const lit = make(kernel, "rect", { class: "toe-lit", y: 2, height: floor + 24, rx: 3 });
  const axis = make(kernel, "line", { x1: 0, y1: zero, y2: zero, style: "stroke: var(--muted)" });
  const bars = all(length, () => make(kernel, "rect", { class: "toe-bar" }));
  const lags = all(length, (k) => make(kernel, "text", { y: floor + 18, "text-anchor": "middle" }, `${k}`));
  const handle = make(kernel, "circle", { r: 6, class: "toe-still",
    style: "fill: var(--paper); stroke: var(--ink); stroke-width: 2" });
  const grips = all(length, grip);

  const stripe = make(matrix, "path", { class: "toe-lit" });
  const edge = make(matrix, "path", { style: "fill: none; stroke: var(--rule)" });
  const band = make(matrix, "rect", { style: "fill: none; stroke: var(--result); stroke-width: 2.5", rx: 2 });
  const squares = all(length, (t) => all(length, (j) => (j <= t ? make(matrix, "rect", { class: "toe-square" }) : null)));
  const vBars = all(length, () => make(matrix, "rect", { style: "fill: var(--content)" }));
  const rBars = all(length, () => make(matrix, "rect", { style: "fill: var(--result)" }));
  const [vAxis, rAxis] = [0, 1].map(() => make(matrix, "line", { style: "stroke: var(--muted)" }));
  const [vName, rName] = ["v", "r"].map((name) => make(matrix, "text", { style: "font-weight: 600" }, name));
  const rows = all(length, (t) => make(matrix, "text", { x: SIDE - 7, "text-anchor": "end" }, `${t}`));
  const columns = all(length, (j) => make(matrix, "text", { "text-anchor": "middle" }, `${j}`));
  const picked = make(matrix, "rect", { class: "toe-still", style: "fill: none; stroke: var(--ink); stroke-width: 2.5", rx: 2 });
  const entries = all(length, (t) => all(length, (j) => (j <= t ? entry(t, j) : null)));

  const { caption, slider } = slide(words, { class: "toe-row" }, 0, length - 1);
  const told = make(words, "div", { class: "toe-facts", "aria-live": "off" });
  const what = make(told, "p"), sum = make(told, "p", { class: "toe-sum" });
  const buttons = make(words, "div", { class: "toe-buttons" });
  const only = make(buttons, "button", { type: "button" });
  const again = make(buttons, "button", { type: "button" }, "Start again");

  function grip(k) {
    const node = gripping(kernel, `kernel g, lag ${k}`, -limit, limit);
    node.addEventListener("focus", () => pickLag(k));
    raisable(node, k, { row: () => grips, value: () => g[k], change: (value) => set(k, value), pixels: reach / limit });
    node.addEventListener("pointerdown", () => pickLag(k));      // in focus already, it may not be the one picked
    return node;
  }
  function entry(t, j) {
    const node = make(matrix, "rect", { class: "toe-entry", role: "button", tabindex: -1 });
    pickable(node, () => pick(t, j), (looks) => {
      if (!looks && !hover) return;
      hover = looks ? [t, j] : null;
      update();
    });
    const go = (...to) => () => {
      const [nextRow, nextColumn] = to.map((x) => clamp(x, 0, length - 1));
      entries[nextRow][Math.min(nextRow, nextColumn)].focus();
    };
    listen(node, { ArrowUp: go(t - 1, j), ArrowDown: go(t + 1, j), ArrowLeft: go(t, j - 1), ArrowRight: go(t, j + 1),
      Home: go(t, 0), End: go(t, t) });
    return node;
  }
  function pick(t, j) { [row, column, hover] = [t, j, null]; update(); }
  function pickLag(k) { row = Math.max(row, k); pick(row, row - k); }
  function set(k, value) { g[k] = clamp(tidy(value), -limit, limit); update(); }
  function show(given) {
    g = given.g.map((x) => clamp(tidy(x), -limit, limit));
    const t = clamp(Math.round(given.row), 0, length - 1);
    pick(t, clamp(Math.round(given.column), 0, t));
  }

  function update() {
    const [t, j] = hover ?? [row, column], k = t - j, r = mixed(v, g);
    caption.textContent = `row t = ${t}`;
    slider.value = t;
    slider.setAttribute("aria-valuetext", `row ${t}, r = ${said(r[t])}`);
    what.textContent = `A[${t}, ${j}] = g${below(k)} = ${said(g[k])}, the weight at lag ${k}. It stands in ` +
      `${length - k} ${length - k === 1 ? "place" : "places"}.`;
    speak(el, `Row ${t}, column ${j}: weight ${said(g[k])}, and r is ${said(r[t])}.`);
    sum.textContent = "";
    make(sum, "b", {}, `r${below(t)} = ${said(r[t])}`);
    for (let i = 0; i <= t; i++) {
      sum.append(i ? " + " : " = ");
      make(sum, "span", i === j ? { class: "toe-term" } : {}, `v${below(i)}g${below(t - i)}`);
    }
    only.textContent = `Keep only lag ${k}`;
    grips.forEach((node, i) => move(node, { tabindex: i === k ? 0 : -1, "aria-valuenow": g[i], "aria-valuetext": said(g[i]) }));
    entries.forEach((line, a) => line.forEach((node, b) => node && move(node, {
      tabindex: a === row && b === column ? 0 : -1, "aria-label": `row ${a}, column ${b}: ${said(g[a - b])}` })));
    Object.assign(host.dataset, { row: t, column: j, lag: k, entry: g[k], sum: tidy(r[t]),
      g: JSON.stringify(g), r: JSON.stringify(r.map(tidy)) });
    state.tell({ g, row, column });
    draw(t, j, r);
  }
  function draw(t, j, r) {
    const k = t - j, wide = kernel.clientWidth || 300, pitch = wide / length;
    axis.setAttribute("x2", wide);
    move(lit, { x: pitch * k, width: pitch });
    move(handle, { cx: pitch * (k + 0.5), cy: y(g[k]) });
    g.forEach((value, i) => {
      move(bars[i], { x: pitch * (i + 0.2), width: pitch * 0.6, y: Math.min(y(value), zero), height: Math.abs(y(value) - zero),
        style: sign(value) });
      move(lags[i], { x: pitch * (i + 0.5), style: i === k ? "font-weight: 700" : "fill: var(--muted)" });
      for (const node of [grips[i], grips[i].ring]) move(node, { x: pitch * i, width: pitch, y: 2, height: floor + 24 });
    });
    const total = matrix.clientWidth || 360, cell = Math.min(fit(42, 25), (total - SIDE - RIGHT) / length);
    const x = (b) => SIDE + b * cell, top = (a) => TOP + a * cell, right = x(length);
    move(matrix, { height: top(length) + 4 });
    move(edge, { d: `M${x(0)} ${top(0)}V${top(length)}H${right}` + all(length, (a) => `L${x(length - a)} ${top(length - a - 1)}H${x(length - a - 1)}`).join("") });
    move(stripe, { d: all(length, (b) => (b + k < length ? `M${x(b)} ${top(b + k)}h${cell}v${cell}h${-cell}z` : "")).join("") });
    move(band, { x: x(0), y: top(t), width: (t + 1) * cell, height: cell });
    move(picked, { x: x(j) + 1, y: top(t) + 1, width: cell - 2, height: cell - 2 });
    squares.forEach((line, a) => line.forEach((node, b) => {
      if (!node) return;
      const side = 0.8 * cell * Math.sqrt(Math.abs(g[a - b]) / limit);
      move(node, { x: x(b) + (cell - side) / 2, y: top(a) + (cell - side) / 2, width: side, height: side, style: sign(g[a - b], side) });
      move(entries[a][b], { x: x(b), y: top(a), width: cell, height: cell });
    }));
    const most = Math.max(1, peak(v)), far = Math.max(2, peak(r)), half = RIGHT / 2 - 5;
    const rise = 18, middle = 22, centre = right + 10 + half;
    move(vAxis, { x1: x(0), x2: right, y1: middle, y2: middle });
    move(rAxis, { x1: centre, x2: centre, y1: top(0), y2: top(length) });
    move(vName, { x: 4, y: middle + 4 });
    move(rName, { x: centre - 3, y: top(0) - 9 });
    all(length, (b) => {
      const up = (v[b] / most) * rise, out = (r[b] / far) * half;
      move(vBars[b], { x: x(b + 0.2), width: cell * 0.6, y: Math.min(middle, middle - up), height: Math.abs(up),
        "fill-opacity": b <= t ? 1 : 0.3 });
      move(rBars[b], { x: Math.min(centre, centre + out), width: Math.abs(out), y: top(b + 0.2), height: cell * 0.6,
        "fill-opacity": b === t ? 1 : 0.45 });
      move(columns[b], { x: x(b + 0.5), y: TOP - 8, style: b === j ? "font-weight: 700" : "fill: var(--muted)" });
      move(rows[b], { y: top(b + 0.5) + 4, style: b === t ? "font-weight: 700" : "fill: var(--muted)" });
    });
  }
  // Positive weights are filled, negative ones hollow.
  function sign(value, side = 20) {
    return value >= 0 ? "fill: var(--gate)" : `fill: var(--paper); stroke: var(--gate); stroke-width: ${Math.min(2, side / 3)}`;
  }

  slider.addEventListener("input", () => { const t = Number(slider.value); pick(t, Math.min(column, t)); });
  only.addEventListener("click", () => { const k = row - column; g = all(length, (i) => (i === k ? 1 : 0)); update(); });
  again.addEventListener("click", state.restart);
  state.restart();
  return follow(el, update);
}

export default { render };
