// The mixing matrices of an attention layer and of a Fourier layer, side by side, for one text.
// The reader picks a head, a channel, a row and a column; the tokens below are barred with the row's weights.
// model: tokens (strings), attention ([{name, rows: lower triangle in thousandths}]),
// fourier ([{name, g: weights by lag}]), head, channel (which of them are shown, by number), row, column.

// The cells of diagonal k of a matrix of this length, as a path; those of a negative weight are hollow.
function diagonal(k, length, hollow) {
  const hole = hollow ? "m0.25 0.25v0.5h0.5v-0.5z" : "";
  return all(length - k, (j) => `M${j} ${j + k}h1v1h-1z${hole}`).join("");
}

// Row t of the matrix of a kernel: the weights of tokens 0 to t.
export function toeplitzRow(g, t) {
  return g.slice(0, t + 1).reverse();
}

export function render({ model, el }) {
  const tokens = model.get("tokens"), length = tokens.length;
  const attention = model.get("attention"), fourier = model.get("fourier");
  const drawn = (k) => tokens[k].trim() || "␣";
  const quoted = (k) => `token ${k} “${drawn(k)}”`;
  const state = inStep(model, ["head", "channel", "row", "column"], show);
  let head, channel, row, column;

  const host = begin(el, "Choose a head and a channel, then pick an entry in a matrix or move the two sliders.");
  quote(el);
  const pair = make(el, "div", { class: "mix-pair" });
  const [heads, channels] = [["attention", "head", attention], ["Fourier", "channel", fourier]].map(([name, part, frames]) => {
    const label = make(pair, "label", {}, name), select = make(label, "select", { "aria-label": `${name}: ${part}` });
    frames.forEach((frame, k) => make(select, "option", { value: k }, frame.name));
    return select;
  });
  const panels = [0, 1].map(() => {
    const svg = make(pair, "svg", { class: "mix-matrix", viewBox: `0 0 ${length} ${length}`, "aria-hidden": "true" });
    const cells = make(svg, "g", { class: "mix-cells" });
    const band = make(svg, "rect", { class: "mix-mark", x: 0, height: 1, style: "stroke: var(--result); stroke-width: 2" });
    const spot = make(svg, "circle", { class: "mix-mark", r: clamp(length / 30, 0.5, 1.3), style: "stroke: var(--content); stroke-width: 2.5" });
    svg.addEventListener("pointerdown", (event) => point(event, svg));
    svg.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse" && event.buttons & 1) point(event, svg); });
    return { svg, cells, band, spot };
  });
  const entries = all(length, (t) => all(length, (j) => (j <= t
    ? make(panels[0].cells, "rect", { x: j, y: t, width: 1, height: 1, style: "fill: var(--ink)" }) : null)));
  const stripes = all(length, (k) => make(panels[1].cells, "path", {
    "fill-rule": "evenodd", style: "fill: var(--gate)" }));

  const sliders = make(el, "div", { class: "mix-sliders" });
  const { caption: rowName, slider: rows } = slide(sliders, {}, 0, length - 1);
  const { caption: columnName, slider: columns } = slide(sliders, {}, 0, length - 1);
  const lines = ["attention: weights of the row", "Fourier: weights of the row"].map((name) => {
    const room = make(el, "div", { class: "mix-room", style: `--tokens: ${length}` });
    make(room, "p", { class: "mix-name" }, name);
    const words = tokens.some((token) => token.trim().length > 1) ? " mix-words" : "";
    const line = make(room, "div", { class: `mix-text${words}`, "aria-hidden": "true" });
    return all(length, (k) => {
      const token = make(line, "span", { class: "mix-token" }), bar = make(token, "i");
      token.append(drawn(k));
      return { token, bar };
    });
  });
  legend(el, [["--c: var(--ink)", "attention"], ["--c: var(--gate)", "Fourier, positive"],
    ["--c: var(--paper); --e: 2px solid var(--gate)", "Fourier, negative"],
    ["--c: var(--paper); --e: 2px solid var(--content)", "picked content"],
    ["--c: color-mix(in srgb, var(--gate) 24%, transparent)", "its gate"]], "mix-key");
  const told = make(el, "div", { class: "mix-facts", "aria-live": "off" });
  const [byAttention, byFourier] = [make(told, "p"), make(told, "p")];

  function point(event, svg) {
    const box = svg.getBoundingClientRect();
    const [j, t] = [event.clientX - box.left, event.clientY - box.top].map(
      (far) => clamp(Math.floor((far / box.width) * length), 0, length - 1));
    pick(t, j);
  }
  function pick(t, j) { [row, column] = [t, Math.min(t, j)]; update(); }

  function show(given) {
    const within = (name, count) => clamp(given[name], 0, count - 1);
    [head, channel, row] = [within("head", attention.length), within("channel", fourier.length), within("row", length)];
    column = within("column", row + 1);
    frames();
  }
  function frames() {
    const weights = attention[head].rows, g = fourier[channel].g, most = Math.max(1e-9, peak(g));
    [heads.value, channels.value] = [head, channel];
    entries.forEach((line, t) => line.forEach((node, j) => {
      if (node) node.setAttribute("fill-opacity", Math.sqrt(weights[t][j] / 1000).toFixed(3));
    }));
    stripes.forEach((node, k) => move(node, { d: diagonal(k, length, g[k] < 0),
      "fill-opacity": (Math.abs(g[k]) / most).toFixed(3) }));
    update();
  }
  function update() {
    const weights = attention[head].rows[row].map((w) => w / 1000), g = fourier[channel].g;
    const mixed = toeplitzRow(g, row), gate = row - column;
    for (const { band, spot } of panels) {
      move(band, { y: row, width: row + 1 });
      move(spot, { cx: column + 0.5, cy: row + 0.5 });
    }
    [weights, mixed].forEach((numbers, kind) => {
      const most = Math.max(1e-9, peak(numbers));
      lines[kind].forEach(({ token, bar }, k) => {
        const size = k <= row ? Math.abs(numbers[k]) / most : 0, hollow = kind && numbers[k] < 0;
        token.className = ["mix-token", k > row && "mix-later", k === row && "mix-here", k === column && "mix-content",
          kind && k === gate && "mix-gate"].filter(Boolean).join(" ");
        bar.style.cssText = `--h: ${(20 * size).toFixed(1)}px; --b: var(--${hollow ? "paper" : kind ? "gate" : "ink"});` +
          (hollow && size > 0.05 ? "--e: 1.5px solid var(--gate)" : hollow ? "--b: var(--gate)" : "");
      });
    });
    rowName.textContent = `row t = ${row}`;
    columnName.textContent = `column j = ${column}`;
    rows.value = row;
    columns.value = column;
    rows.setAttribute("aria-valuetext", `row ${row}, output at ${quoted(row)}`);
    columns.setAttribute("aria-valuetext", `column ${column}, content of ${quoted(column)}`);
    byAttention.textContent = `Attention: output ${row} gives the content of ${quoted(column)} the weight ${said(weights[column], 3)}.`;
    byFourier.textContent = `Fourier: it gives it ${said(mixed[column], 3)}, which is g at lag ${row} − ${column} = ${gate}, ` +
      `made at ${quoted(gate)}.`;
    speak(el, `Row ${row}, column ${column}: attention ${said(weights[column], 3)}, Fourier ${said(mixed[column], 3)}.`);
    Object.assign(host.dataset, { row, column, head, channel, gate, attention: weights[column], fourier: mixed[column],
      attentionRow: JSON.stringify(weights), fourierRow: JSON.stringify(mixed) });
    state.tell({ head, channel, row, column });
  }

  heads.addEventListener("change", () => { head = Number(heads.value); frames(); });
  channels.addEventListener("change", () => { channel = Number(channels.value); frames(); });
  rows.addEventListener("input", () => pick(Number(rows.value), column));
  columns.addEventListener("input", () => pick(Math.max(row, Number(columns.value)), Number(columns.value)));
  state.restart();
}

export default { render };
