// Loss against training step, baselines, and a slider over the texts that the model wrote along the way.
// model: training, validation ([step, loss] pairs), training_name (as the key says it),
// baselines ({name, loss, label: height of the name}), samples ({step, text, at: the point that is quoted,
// measured, said}), prompt, unit, last (step), x_ticks, y_ticks ([value, name] pairs), plot_height, sample (the one that is shown, by number).

const LEFT = 38, RIGHT = 12, TOP = 30, BOTTOM = 38;   // margins of the plot, in pixels
const THIN = "stroke: var(--muted); stroke-width: 1; stroke-opacity: 0.6";
const DARK = "stroke: var(--ink); stroke-width: 2";
const DOTS = "stroke: var(--ink); stroke-width: 6";
const RULE = "stroke: var(--muted); stroke-width: 1.5; stroke-dasharray: 6 4";
const MARK = "stroke: var(--mark); stroke-width: 3";

function entry(key, name, ...strokes) {
  const line = make(key, "span"), drawing = make(line, "svg", { viewBox: "0 0 24 12", "aria-hidden": "true" });
  for (const [d, style] of strokes) make(drawing, "path", { d, style, "stroke-linecap": "round" });
  line.append(name);
}

export function render({ model, el }) {
  const get = (name) => model.get(name);
  const samples = get("samples"), prompt = get("prompt"), height = get("plot_height");
  const [low, high] = [get("y_ticks")[0][0], get("y_ticks").at(-1)[0]];
  const floor = TOP + height;
  const state = inStep(model, ["sample"], ({ sample }) => turn(clamp(Math.round(sample), 0, samples.length - 1)));
  let seen = -1, width = 0, chosen = clamp(get("sample"), 0, samples.length - 1);   // the width of the plot on the page, and the one drawn at
  const x = (step) => LEFT + (step / get("last")) * (width - LEFT - RIGHT);
  const y = (loss) => TOP + ((high - Math.min(loss, high)) / (high - low)) * height;
  const name = (step) => (step ? `step ${step.toLocaleString("en")}` : "before training");

  const host = begin(el, samples.length > 1
    ? "Move the slider: below it stands what the model wrote at that point of its training."
    : "Below the curves stands what the model wrote at one point of its training.");
  quote(el);
  const plot = make(el, "svg", { class: "run-plot", height: floor + BOTTOM, "aria-hidden": "true" });
  make(plot, "text", { x: 0, y: 14 }, `loss, ${get("unit")}`);
  const yTicks = get("y_ticks").map(([value, text]) => ({
    line: make(plot, "path", { style: "stroke: var(--rule)" }), value,
    text: make(plot, "text", { x: LEFT - 9, y: y(value) + 4, "text-anchor": "end", class: "muted" }, text) }));
  const xTicks = get("x_ticks").map(([value, text]) => ({
    value, text: make(plot, "text", { y: floor + 16, "text-anchor": "middle", class: "muted" }, text) }));
  const axis = make(plot, "text", { y: floor + 32, "text-anchor": "middle" }, "training step");
  const training = make(plot, "path", { style: THIN });
  const rules = get("baselines").map(() => make(plot, "path", { style: RULE }));
  const marks = make(plot, "path", { style: MARK });
  const hair = make(plot, "path", { d: `M0 ${TOP}V${floor}`, style: "stroke: var(--mark); stroke-width: 1.5" });
  const validation = make(plot, "path", { style: DARK });
  const dots = make(plot, "path", { style: DOTS });
  const names = get("baselines").map((rule) => make(plot, "text",
    { y: TOP + rule.label, "text-anchor": "end", class: "run-name" }, rule.name));
  const ring = make(plot, "circle", { r: 7, style: "fill: var(--mark); stroke: var(--ink); stroke-width: 2" });

  const key = make(el, "div", { class: "run-key" });
  entry(key, get("training_name"), ["M1 6H23", THIN]);
  entry(key, "validation loss", ["M1 6H23", DARK], ["M12 6h0", DOTS]);
  entry(key, samples.length > 1 ? "steps with a text" : "step with a text", ["M12 2V10", MARK]);
  const slider = make(el, "input", { type: "range", min: 0, max: samples.length - 1, step: 1, value: 0,
    "aria-label": "training step of the text" });
  slider.hidden = samples.length < 2;
  const line = make(el, "p", { class: "run-said", "aria-live": "off" });
  const text = make(el, "div", { class: "run-text", dir: "ltr" });
  const measure = make(make(el, "div", { class: "run-measure", "aria-hidden": "true" }), "p", { class: "run-said" });

  // One text, the prompt set apart from what the model wrote.
  function write(k) {
    text.textContent = "";
    if (prompt) make(text, "span", { class: "run-prompt" }, prompt);
    if (samples[k].text) make(text, "span", { class: "run-written" }, samples[k].text);
    else make(text, "span", { class: "run-nothing" }, prompt ? " (nothing)" : "(nothing)");
  }
  // Give the line and the window the height of their longest text, so that the page stands still as they change.
  function reserve() {
    const highest = new Map([[line, 0], [text, 0]]);
    for (const node of highest.keys()) node.style.minHeight = "";
    samples.forEach((sample, k) => {
      write(k);
      measure.textContent = sample.said;
      for (const [node, like] of [[line, measure], [text, text]]) {
        highest.set(node, Math.max(highest.get(node), like.getBoundingClientRect().height));
      }
    });
    measure.textContent = "";
    for (const [node, height] of highest) node.style.minHeight = `${height}px`;
  }
  function choose(k) {
    chosen = k;
    const { step, at, measured, said: words } = samples[k];
    write(k);
    text.scrollTop = 0;
    if (line.textContent !== words) line.textContent = words;
    speak(el, `${words}.`);
    slider.value = k;
    slider.setAttribute("aria-valuetext", name(step));
    Object.assign(host.dataset, { step, loss: at[1] });
    if (measured) host.dataset.validation = at[1];
    else delete host.dataset.validation;
    state.tell({ sample: k });
    // A text that is longer than its window can be scrolled by keyboard.
    if (text.scrollHeight > text.clientHeight + 1) {
      move(text, { tabindex: 0, role: "region", "aria-label": `text written, ${name(step)}` });
    } else for (const attribute of ["tabindex", "role", "aria-label"]) text.removeAttribute(attribute);
    fade();
    mark();
  }
  // An edge behind which there is more text fades.
  function fade() {
    const above = text.scrollTop, more = text.scrollHeight - text.clientHeight - above;
    text.classList.toggle("run-less", above > 1);
    text.classList.toggle("run-more", more > 1);
  }
  text.addEventListener("scroll", fade);
  function mark() {
    const { step, at } = samples[chosen];
    hair.style.transform = `translateX(${x(step)}px)`;
    ring.style.transform = `translate(${x(at[0])}px, ${y(at[1])}px)`;
  }
  function draw() {
    if (plot.clientWidth === seen) return;
    seen = plot.clientWidth;
    width = seen || 600;
    const right = width - RIGHT, curve = (points) => `M${points.map(([s, l]) => `${x(s)} ${y(l)}`).join("L")}`;
    for (const { line, value } of yTicks) move(line, { d: `M${LEFT} ${y(value)}H${right}` });
    for (const { value, text: node } of xTicks) move(node, { x: x(value) });
    move(axis, { x: (LEFT + right) / 2 });
    move(training, { d: curve(get("training")) });
    move(validation, { d: curve(get("validation")) });
    move(dots, { d: get("validation").map(([s, l]) => `M${x(s)} ${y(l)}h0`).join("") });
    dots.style.strokeWidth = clamp((0.6 * (right - LEFT)) / get("validation").length, 2, 6);
    get("baselines").forEach(({ loss }, k) => {
      move(rules[k], { d: `M${LEFT} ${y(loss)}H${right}` });
      move(names[k], { x: right - 6 });
    });
    move(marks, { d: samples.map(({ step }) => `M${x(step)} ${floor}v-9`).join("") });
    reserve();
    choose(chosen);
  }

  function turn(k) {
    for (const node of [hair, ring]) node.classList.add("run-moving");
    choose(k);
  }
  slider.addEventListener("input", () => turn(Number(slider.value)));
  plot.addEventListener("click", (event) => {
    const step = event.clientX - plot.getBoundingClientRect().left;
    const far = samples.map((sample) => Math.abs(x(sample.step) - step));
    turn(far.indexOf(Math.min(...far)));
  });
  draw();
  return follow(el, draw);
}

export default { render };
