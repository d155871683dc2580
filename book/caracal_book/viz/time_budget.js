// What the operators of a training step take, one after the other: operations and bytes against the speeds of a device.
// model: devices (name, products, vector: operations per second; bandwidth: bytes per second), model, length, device,
// width, fused (the convolution), compiled (chains of small operators): what is shown.  The counts are those of
// caracal_book/numbers/cost.py, for lengths that are powers of two.

const MODELS = [["hybrid", "hybrid Caracal"], ["pure", "pure Caracal"], ["llama", "Llama"]];
const PARTS = [["output", "ink", 1], ["mlp", "ink", 0.24], ["projections", "ink", 0.55], ["gate mix", "gate", 1],
  ["convolution", "result", 1], ["attention", "other-1", 1], ["small operators", "other-0", 1]];
const VOCABULARY = 50257, LAYERS = 12, WINDOW = 256, HEAD = 64, TOKENS = 65536;
// A training step has eight transforms where a pass has three, and seven products of attention where a pass has two.
// Three of the eight are inverse: on a GPU each copies its input and scales its output.
const BYTES = 2, FLOAT32 = 4, ON_CHIP = 65536, TRANSFORMS = 8 / 3, INVERSES = 3, ATTENTIONS = 3.5;
const LENGTHS = { min: 6, max: 17 }, WIDTHS = { min: 256, max: 4096, step: 64 };   // lengths as powers of two

const hidden = (width) => Math.ceil(Math.floor((8 * width) / 3) / 128) * 128;      // of the SwiGLU
const grouped = (x) => `${x}`.replace(/\B(?=(\d{3})+$)/g, ",");
const together = (values) => Object.values(values).reduce((a, b) => a + b, 0);

// The longest text whose two padded streams fit on the chip together.
export const fusible = (length) => 2 * FLOAT32 * 2 * length <= ON_CHIP;

// Operations and bytes per token of a training step, by part: "model" is hybrid, pure or llama.
export function counts(model, { width: d, length, fused, compiled }) {
  const full = model === "llama" ? LAYERS : 0, windows = model === "hybrid" ? LAYERS / 3 : 0;
  const fourier = LAYERS - full - windows, attention = full + windows, m = hidden(d), norms = 2 * LAYERS + 1;
  const weights = { output: VOCABULARY * d, mlp: LAYERS * 3 * d * m, projections: (3 * fourier + 4 * attention) * d * d,
    "gate mix": fourier * d * HEAD, convolution: 0, attention: 0, "small operators": norms * (full ? d : 2 * d) + fourier * 9 * d };
  const w = Math.min(WINDOW, length), seen = w - (w * (w - 1)) / (2 * length);
  const points = 2 * length, transforms = 7.5 * points * Math.log2(points) + 3 * points;
  const passes = FLOAT32 * points <= ON_CHIP ? 1 : 2;
  const streams = fused ? 8 * BYTES : 10 * BYTES + FLOAT32 * (2 * (14 + 16 * passes + 4 * INVERSES) + 7);   // of a step
  const chains = BYTES * (LAYERS * (8 * d + 3 * m) + fourier * 4 * d + full * (4 * d + 2 * HEAD) + 2 * d);
  const oneByOne = BYTES * (LAYERS * (6 * d + 5 * m) + fourier * 10 * d + full * (20 * d + 4 * HEAD) + 2 * d * (norms + 1));
  const moved = { output: BYTES * (d + VOCABULARY), mlp: BYTES * LAYERS * 3 * (d + m),
    projections: BYTES * (6 * (fourier + windows) + 8 * full) * d, "gate mix": BYTES * fourier * 2 * d,
    convolution: fourier * d * streams, attention: BYTES * attention * 4 * d,
    "small operators": compiled ? chains : oneByOne };
  return Object.fromEntries(PARTS.map(([part]) => {
    const done = { convolution: TRANSFORMS, attention: ATTENTIONS }[part] ?? 3, times = part === "convolution" ? 1 : 3;
    const once = moved[part] + (weights[part] * BYTES) / TOKENS;
    const operations = part === "convolution" ? (fourier * d * transforms) / length
      : part === "attention" ? 4 * d * (windows * seen + full * (length + 1) / 2) : 2 * weights[part];
    return [part, { operations: done * operations, bytes: times * once + (7 * FLOAT32 * weights[part]) / TOKENS }];
  }));
}

// Microseconds of each part at the top speeds of a device, and what binds it.
export function least(parts, device) {
  return Object.fromEntries(Object.entries(parts).map(([part, { operations, bytes }]) => {
    const rate = part === "convolution" || part === "small operators" ? device.vector : device.products;
    const [compute, memory] = [operations / rate, bytes / device.bandwidth];
    return [part, { time: 1e6 * Math.max(compute, memory), bound: compute >= memory ? "compute" : "bandwidth" }];
  }));
}

const paint = (colour, share) => `background-color: color-mix(in srgb, var(--${colour}) ${100 * share}%, var(--paper))`;

export function render({ model, el }) {
  const devices = model.get("devices");
  const state = inStep(model, ["model", "length", "device", "width", "fused", "compiled"], show);
  let now;
  const host = begin(el, "At the speeds of the data sheet. Striped: waits for memory; pink: attention. Press a bar for its parts; fusing leaves the axis as it is.");
  const title = make(el, "p", { class: "tim-word" });

  const bars = make(make(el, "div", { class: "tim-models" }), "div", { class: "tim-bars" });
  const rows = MODELS.map(([key, name]) => {
    const node = make(bars, "button", { type: "button", class: "tim-model" });
    make(node, "span", {}, name);
    const bar = make(node, "div", { class: "tim-bar", "aria-hidden": "true" });
    const pieces = PARTS.map(([part, colour, share]) => ({ part, node: make(bar, "i", { style: paint(colour, share) }) }));
    node.addEventListener("click", () => { now.model = key; update(); });
    return { key, name, node, pieces, number: make(node, "b") };
  });
  const axis = make(make(bars, "div", { class: "tim-axis", "aria-hidden": "true" }), "div");

  const parts = make(make(el, "div", { class: "tim-room" }), "div", { class: "tim-parts" });
  const list = make(parts, "table", { class: "tim-list" }), caption = make(list, "caption", { "aria-live": "off" });
  const head = make(make(list, "thead"), "tr");
  for (const word of ["part", "operations", "time", "bound by"]) make(head, "th", { scope: "col" }, word);
  const body = make(list, "tbody");
  const lines = PARTS.map(([part, colour, share]) => {
    const row = make(body, "tr"), name = make(row, "th", { scope: "row" });
    make(name, "i", { style: paint(colour, share) });
    name.append(part);
    return { part, row, cells: all(3, () => make(row, "td")) };
  });

  const set = make(parts, "div", { class: "tim-set" });
  const control = (name, { min, max, step = 1 }, change) => {
    const { caption: words, slider } = slide(set, {}, min, max, step);
    slider.setAttribute("aria-label", name);
    slider.addEventListener("input", () => { change(Number(slider.value)); update(); });
    return (value, said_) => {
      slider.value = value;
      slider.setAttribute("aria-valuetext", said_);
      words.textContent = `${name}: ${said_}`;
    };
  };
  const sayLength = control("length", LENGTHS, (k) => { now.length = 2 ** k; });
  const sayWidth = control("width D", WIDTHS, (x) => { now.width = x; });
  make(set, "p", { class: "tim-word", id: `${host.id}-devices` }, "device");
  const group = make(set, "div", { class: "tim-pick", role: "group", "aria-labelledby": `${host.id}-devices` });
  const choices = devices.map((device) => {
    const node = make(group, "button", { type: "button" }, device.name);
    node.addEventListener("click", () => { now.device = device.name; update(); });
    return { node, device };
  });
  const ways = [["compiled", "small operators", "one by one", "in chains"],
    ["fused", "convolution", "library FFTs", "one fused operator"]].flatMap(([key, name, ...words]) => {
    make(set, "p", { class: "tim-word", id: `${host.id}-${key}` }, name);
    const choice = make(set, "div", { class: "tim-pick", role: "group", "aria-labelledby": `${host.id}-${key}` });
    return words.map((word, k) => {
      const node = make(choice, "button", { type: "button" }, word);
      node.addEventListener("click", () => { now[key] = k === 1; update(); });
      return { key, node, on: k === 1 };
    });
  });

  function show(setting) {
    const among = (list, x) => (list.includes(x) ? x : list[0]), { min, max, step } = WIDTHS;
    now = { model: among(MODELS.map(([key]) => key), setting.model),
      length: 2 ** clamp(Math.round(Math.log2(setting.length)), LENGTHS.min, LENGTHS.max),
      device: among(devices.map(({ name }) => name), setting.device),
      width: clamp(Math.round(setting.width / step) * step, min, max), fused: Boolean(setting.fused),
      compiled: Boolean(setting.compiled) };
    update();
  }
  function update() {
    const device = devices.find(({ name }) => name === now.device);
    now.fused &&= fusible(now.length);
    const of = Object.fromEntries(MODELS.map(([key]) => [key, counts(key, now)]));
    const times = Object.fromEntries(MODELS.map(([key]) => [key, least(of[key], device)]));
    const totals = Object.fromEntries(MODELS.map(([key]) => [key, together(all(PARTS.length,
      (k) => times[key][PARTS[k][0]].time))]));
    // The axis holds the longest bar of all ways to run on this device, so that a button which fuses moves no other bar.
    const slowest = { ...now, fused: false, compiled: false };
    const longest = Math.max(...MODELS.map(([key]) => together(all(PARTS.length,
      (k) => least(counts(key, slowest), device)[PARTS[k][0]].time))));
    for (const { key, name, node, pieces, number } of rows) {
      for (const { part, node: piece } of pieces) {
        const { time, bound } = times[key][part];
        piece.style.width = `${(100 * time) / longest}%`;
        piece.classList.toggle("tim-waits", bound === "bandwidth");
      }
      number.textContent = `${totals[key].toFixed(2)} µs`;
      node.setAttribute("aria-pressed", key === now.model);
      node.setAttribute("aria-label", `${name}, ${totals[key].toFixed(2)} microseconds a token`);
    }
    title.textContent = `µs for each token of a training step: ${grouped(now.length)} tokens a text, one ${now.device}`;
    const step = [1, 2, 5, 10].map((k) => k * 10 ** Math.floor(Math.log10(longest / 2))).findLast((k) => 2 * k <= longest);
    axis.replaceChildren();
    for (let k = 0; k * step <= longest; k += 1) {
      make(axis, "span", { style: `left: ${(100 * k * step) / longest}%` }, `${Number((k * step).toPrecision(3))}${k ? "" : " µs"}`);
    }
    const chosen = of[now.model], whole = together(all(PARTS.length, (k) => chosen[PARTS[k][0]].operations));
    const [, name] = MODELS.find(([key]) => key === now.model);
    const waits = PARTS.filter(([part]) => times[now.model][part].bound === "bandwidth")
      .reduce((sum, [part]) => sum + times[now.model][part].time, 0);
    caption.textContent = `${name}: ${((100 * waits) / totals[now.model]).toFixed(0)}% of the time waits for memory`;
    speak(el, `${caption.textContent}, ${totals[now.model].toFixed(2)} microseconds a token.`);
    for (const { part, row, cells } of lines) {
      const { operations } = chosen[part], { time, bound } = times[now.model][part];
      row.hidden = !operations;
      [`${((100 * operations) / whole).toFixed(1)}%`, `${((100 * time) / totals[now.model]).toFixed(1)}%`, bound]
        .forEach((text, k) => { cells[k].textContent = text; });
    }
    sayLength(Math.log2(now.length), `${grouped(now.length)} tokens`);
    sayWidth(now.width, grouped(now.width));
    for (const { node, device: { name: given } } of choices) node.setAttribute("aria-pressed", given === now.device);
    for (const { key, node, on } of ways) {
      node.setAttribute("aria-pressed", on === now[key]);
      node.disabled = key === "fused" && on && !fusible(now.length);
    }
    Object.assign(host.dataset, { setting: JSON.stringify(now), counts: JSON.stringify(of), times: JSON.stringify(times) });
    state.tell(now);
  }
  state.restart();
}

export default { render };
