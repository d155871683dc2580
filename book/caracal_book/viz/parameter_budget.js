// Where the parameters of a Caracal are: one bar, divided by part, that sliders change, and those of the presets.
// model: presets (name, vocabulary, width, layers, heads, ratio: Fourier layers per attention layer or null,
// paper: millions in the paper's Table 2 or null), vocabulary, width, layers, heads, ratio (those shown).

const VOCABULARIES = [256, 1024, 4096, 16384, 32000, 50257, 50304, 65536, 128256];
const RATIOS = [null, 5, 3, 2, 1];
const WIDTHS = { min: 64, max: 2048, step: 64 }, MOST_HEADS = 64, MOST_LAYERS = 48;
const PARTS = [["embedding", "embedding", "ink", 1], ["value", "value projections", "content", 1],
  ["gate", "gate projections", "gate", 1], ["mix", "gate mix", "gate", 0.45],
  ["output", "output projections", "result", 1], ["attention", "attention", "ink", 0.55],
  ["mlp", "SwiGLU", "ink", 0.24], ["rest", "norms, short convolutions", "ink", 0.75]];

const round = (x) => Math.ceil(Math.floor((8 * x) / 3) / 128) * 128;      // width of the SwiGLU
const digits = (x) => (x < 99.995e6 ? 2 : 1);
const millions = (x) => `${(x / 1e6).toFixed(digits(x))}M`;
const grouped = (x) => `${x}`.replace(/\B(?=(\d{3})+$)/g, ",");
const divisors = (x) => all(MOST_HEADS, (k) => k + 1).filter((k) => x % k === 0);
const nearest = (list, x) => list.reduce((best, k) => (Math.abs(k - x) < Math.abs(best - x) ? k : best));

// The parameters of Caracal by part; an attention layer after every `ratio` Fourier layers, none if it is null.
export function parameters({ vocabulary, width, layers, heads, ratio }) {
  const attention = ratio === null ? 0 : Math.floor(layers / (ratio + 1)), fourier = layers - attention;
  const projection = fourier * (width * width + width);
  return { embedding: vocabulary * width, value: projection, gate: projection,
    mix: fourier * ((width * width) / heads + width), output: projection, attention: attention * 4 * width * width,
    mlp: layers * 3 * width * round(width), rest: fourier * 5 * width + layers * 4 * width + 2 * width };
}

const sum = (counts) => Object.values(counts).reduce((a, b) => a + b, 0);
const paint = (colour, share) => `background: color-mix(in srgb, var(--${colour}) ${100 * share}%, var(--paper))`;

export function render({ model, el }) {
  const presets = model.get("presets"), state = inStep(model, ["vocabulary", "width", "layers", "heads", "ratio"], show);
  const FIELDS = ["vocabulary", "width", "layers", "heads", "ratio"];
  const pick = (from) => Object.fromEntries(FIELDS.map((field) => [field, from[field]]));
  const same = (a, b) => FIELDS.every((field) => a[field] === b[field]);
  let now;

  const host = begin(el, "Move a slider, or take a preset.");
  const parts = make(make(el, "div", { class: "bud-room" }), "div", { class: "bud-parts" });
  const [total, list, set, sizes] = ["total", "list", "set", "all"].map((name) => make(parts, "div", { class: `bud-${name}` }));
  const line = make(total, "p", { class: "bud-sum", "aria-live": "off" });
  const [number, beside] = [make(line, "b"), make(line, "span")];
  const bar = segments(total);
  const rows = PARTS.map(([, name, colour, share]) => {
    make(list, "i", { style: paint(colour, share) });
    make(list, "span", {}, name);
    return { count: make(list, "b"), share: make(list, "span") };
  });

  // A slider over whole numbers, or over the entries of a list; `shown` puts the value in words.
  const sliders = {
    width: control("width D", WIDTHS.min, WIDTHS.max, WIDTHS.step, (x) => ({ width: x, heads: nearest(divisors(x), now.heads) })),
    layers: control("layers", 1, MOST_LAYERS, 1, (x) => ({ layers: x })),
    heads: control("heads", 0, 1, 1, (k) => ({ heads: divisors(now.width)[k] })),
    vocabulary: control("vocabulary", 0, VOCABULARIES.length - 1, 1, (k) => ({ vocabulary: VOCABULARIES[k] })),
    ratio: control("Fourier to attention", 0, RATIOS.length - 1, 1, (k) => ({ ratio: RATIOS[k] })),
  };
  function control(name, min, max, step, change) {
    const { caption, slider } = slide(set, {}, min, max, step);
    slider.setAttribute("aria-label", name);
    slider.addEventListener("input", () => { Object.assign(now, change(Number(slider.value))); update(); });
    return { slider, say(value, words) {
      slider.value = value;
      slider.setAttribute("aria-valuetext", words);
      caption.textContent = `${name}: ${words}`;
    } };
  }

  make(sizes, "p", { class: "bud-head" }, "the presets");
  const buttons = presets.map((preset) => {
    const counts = parameters(preset), { name } = preset, title = preset.paper ? name[0].toUpperCase() + name.slice(1) : name;
    const node = make(sizes, "button", { type: "button", class: "bud-preset",
      "aria-label": `${title}, ${millions(sum(counts))}` });
    make(node, "span", { class: "bud-name" }, title);
    divide(segments(node), counts);
    make(node, "span", { class: "bud-count" }, millions(sum(counts)));
    node.addEventListener("click", () => { now = pick(preset); update(); });
    return { node, preset };
  });

  function segments(parent) {
    const node = make(parent, "div", { class: "bud-bar", "aria-hidden": "true" });
    return PARTS.map(([part, , colour, share]) => ({ part, node: make(node, "i", { style: paint(colour, share) }) }));
  }
  function divide(bars, counts) {
    const whole = sum(counts), shown = bars.filter(({ part }) => counts[part]).length;
    for (const { part, node } of bars) {
      node.style.width = counts[part] ? `calc((100% - ${shown - 1}px) * ${counts[part] / whole})` : "0";
      node.hidden = !counts[part];
    }
  }

  function show(config) {
    const within = (list, x) => (list.includes(x) ? x : nearest(list.filter((k) => k !== null), x ?? Infinity));
    const width = clamp(Math.round(config.width / WIDTHS.step) * WIDTHS.step, WIDTHS.min, WIDTHS.max);
    now = { vocabulary: within(VOCABULARIES, config.vocabulary), width, heads: within(divisors(width), config.heads),
      layers: clamp(Math.round(config.layers), 1, MOST_LAYERS), ratio: within(RATIOS, config.ratio) };
    update();
  }
  function update() {
    const counts = parameters(now), whole = sum(counts), preset = presets.find((p) => same(p, now)) ?? null;
    const heads = divisors(now.width);
    sliders.width.say(now.width, grouped(now.width));
    sliders.layers.say(now.layers, `${now.layers}`);
    sliders.heads.slider.max = heads.length - 1;
    sliders.heads.say(heads.indexOf(now.heads), `${now.heads} of ${now.width / now.heads} channels`);
    sliders.vocabulary.say(VOCABULARIES.indexOf(now.vocabulary), grouped(now.vocabulary));
    sliders.ratio.say(RATIOS.indexOf(now.ratio), now.ratio === null ? "no attention" : `${now.ratio} : 1`);
    number.textContent = `${(whole / 1e6).toFixed(digits(whole))} million`;
    beside.textContent = preset?.paper ? `the paper says ${preset.paper} million`
      : preset ? "a size of this book, not the paper's" : "none of the paper's sizes";
    speak(el, `${number.textContent} parameters, ${beside.textContent}.`);
    divide(bar, counts);
    PARTS.forEach(([part], k) => {
      rows[k].count.textContent = millions(counts[part]);
      rows[k].share.textContent = `${((100 * counts[part]) / whole).toFixed(1)}%`;
    });
    for (const { node, preset: p } of buttons) node.setAttribute("aria-pressed", p === preset);
    Object.assign(host.dataset, { config: JSON.stringify(pick(now)), counts: JSON.stringify(counts), total: whole,
      preset: preset?.name ?? "", paper: preset?.paper ?? "" });
    state.tell(now);
  }
  state.restart();
}

export default { render };
