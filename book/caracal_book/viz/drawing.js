// What the figures share: elements, numbers in words, sliders, and bars that a reader moves.
// `Figure` puts this file in front of every figure's own module, so that no figure imports anything.

const SVG = "http://www.w3.org/2000/svg";
const STEP = 0.1;                      // one press of an arrow key
const LEAP = 0.5;                      // one press of a page key
const REST = 700;                      // milliseconds after a change that a reader is taken to rest
const SNAP = 0.05;                     // grid of a dragged value

const tidy = (x) => Math.round(x * 1000) / 1000 || 0;
const clamp = (x, low, high) => Math.min(high, Math.max(low, x));
const peak = (values) => Math.max(0, ...values.map(Math.abs));
const minus = (x) => `${x}`.replace("-", "−");
const said = (x, digits = 2) => minus(x.toFixed(digits).replace(/^-(?=[0.]*$)/, ""));
const niceLimit = (x) => [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 50].find((limit) => limit >= x) ?? Math.ceil(x);
const all = (count, build) => Array.from({ length: count }, (_, k) => build(k));
const below = (x) => `${x}`.replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);

function move(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
}

function make(parent, name, attributes = {}, text = "") {
  const drawing = name === "svg" || parent.namespaceURI === SVG;
  const node = drawing ? document.createElementNS(SVG, name) : document.createElement(name);
  move(node, attributes);
  node.textContent = text;
  return parent.appendChild(node);
}

// A measure of a drawing, and what it is on a phone, so that a figure and its controls stand on one screen.
const fit = (tall, low) => (window.matchMedia("(max-width: 480px)").matches ? low : tall);

// The keys that figures use.  Around them are notebooks with shortcuts of their own: what a figure may use it keeps.
const KEYS = new Set(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End", "PageUp", "PageDown", "Enter", " "]);

// Begin a figure in `el` with a line of help; return its host, whose data say what the figure shows.
// What the help says of keys is left out on a phone.
function begin(el, help) {
  el.classList.add("caracal-live");
  el.addEventListener("keydown", (event) => {
    if (KEYS.has(event.key) && !event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
  });
  const [pointer, keys] = help.split(/ (?=By keyboard|Or use Tab)/), line = make(el, "p", { class: "caracal-help" }, pointer);
  if (keys) make(line, "span", { class: "caracal-keys" }, ` ${keys}`);
  return el.closest(".caracal-figure") ?? el;
}

// The page quotes a text that may hold anything: no script of the page shall read TeX into it or translate it.
function quote(el) {
  el.classList.add("tex2jax_ignore", "mathjax_ignore");
  el.translate = false;
}

// What the colours stand for: pairs of a style, such as "--c: var(--ink)", and words.
function legend(parent, entries, name = "") {
  const key = make(parent, "div", { class: `caracal-key ${name}` });
  for (const [style, text] of entries) make(key, "span", { class: "caracal-sign", style }, text);
}

// Say in one short sentence what a figure shows, to those who hear it: when the reader rests, not on the way there.
function speak(el, sentence) {
  if (!el.said) {
    el.said = make(el, "p", { class: "caracal-said", role: "status" }, sentence);
    return;
  }
  clearTimeout(el.wait);
  el.wait = setTimeout(() => { if (el.said.textContent !== sentence) el.said.textContent = sentence; }, REST);
}

// Rows of a name and a value.
function facts(parent, count) {
  const list = make(parent, "div", { class: "caracal-facts", "aria-live": "off" });
  return all(count, () => {
    const row = make(list, "div");
    return { row, name: make(row, "span"), value: make(row, "b") };
  });
}

// A slider under its caption.
function slide(parent, attributes, min, max, step = 1) {
  const label = make(parent, "label", attributes), caption = make(label, "span");
  return { caption, slider: make(label, "input", { type: "range", min, max, step }) };
}

// The place of the thumb at a share of a slider, in CSS; a track that is coloured up to there and from there on.
const along = (share) => `calc(12px + (100% - 24px) * ${share})`;
function track(slider, share, before, after) {
  slider.style.setProperty("--track", "linear-gradient(to right, "
    + `var(--${before}) ${along(share)}, var(--${after}) ${along(share)})`);
}

function listen(node, keys) {
  node.addEventListener("keydown", (event) => {
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
}

// What a pointer does between going down, where `start` says what is held, and up.
function hold(node, start, during) {
  let held = null;
  node.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    node.focus({ preventScroll: true });
    node.setPointerCapture(event.pointerId);
    held = start(event);
  });
  node.addEventListener("pointermove", (event) => { if (held) during(event, held); });
  for (const end of ["pointerup", "pointercancel"]) node.addEventListener(end, () => { held = null; });
}

// Where a pointer is that went down on a node, as shares of its width and height, until it goes up.
function sweep(node, at) {
  const place = (event) => {
    const box = node.getBoundingClientRect();
    at((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  };
  node.addEventListener("pointerdown", (event) => { node.setPointerCapture(event.pointerId); place(event); });
  node.addEventListener("pointermove", (event) => { if (node.hasPointerCapture(event.pointerId)) place(event); });
}

// A cell that a click or the focus picks, and that a mouse may look at: `look` hears whether it does.
function pickable(node, pick, look) {
  node.addEventListener("focus", pick);
  node.addEventListener("click", () => { node.focus({ preventScroll: true }); pick(); });
  node.addEventListener("pointerenter", (event) => {
    if (event.pointerType === "mouse" && !event.buttons) look(true);
  });
  node.addEventListener("pointerleave", () => look(false));
}

// What a reader takes hold of to move a bar, invisible, and the ring around it when it has the focus.
function gripping(parent, name, low, high) {
  const node = make(parent, "rect", { class: "caracal-grip", role: "slider", "aria-orientation": "vertical",
    "aria-label": name, "aria-valuemin": low, "aria-valuemax": high, tabindex: -1 });
  node.ring = make(parent, "rect", { class: "caracal-ring", rx: 3 });
  return node;
}

// Entry k of a row: dragged up and down, `pixels` for a unit, or changed with ↑ ↓; ← → go to its neighbours.
function raisable(node, k, { row, value, change, pixels, step = STEP, leap = LEAP, snap = SNAP }) {
  hold(node, (event) => ({ y: event.clientY, value: value() }), (event, held) => {
    change(Math.round((held.value + (held.y - event.clientY) / pixels) / snap) * snap);
  });
  const raise = (by) => () => change(value() + by);
  const go = (to) => () => { const nodes = row(); nodes[clamp(to, 0, nodes.length - 1)].focus(); };
  listen(node, { ArrowUp: raise(step), ArrowDown: raise(-step), PageUp: raise(leap), PageDown: raise(-leap),
    ArrowLeft: go(k - 1), ArrowRight: go(k + 1), Home: go(0), End: go(Infinity) });
}

// Lists of numbers on their way to a goal, two thirds of it in `pace` milliseconds and at the end when all are
// `near`; a reader who wants less motion sees the goal at once.
class Motion {
  constructor(draw, pace, near) {
    Object.assign(this, { draw, pace, near, shown: null, frame: 0, last: 0 });
    this.calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  }
  to(goal) {
    this.goal = goal;
    if (this.calm.matches || !this.shown) this.shown = structuredClone(goal);
    this.draw();
    this.next();
  }
  next() { this.frame ||= requestAnimationFrame((time) => this.ease(time)); }
  ease(time) {
    const share = 1 - Math.exp(-Math.min(time - (this.last || time - 16), 50) / this.pace);
    let far = 0;
    for (const [name, values] of Object.entries(this.goal)) {
      this.shown[name] = this.shown[name].map((x, k) => x + (values[k] - x) * share);
      far = Math.max(far, peak(values.map((x, k) => x - this.shown[name][k])));
    }
    [this.last, this.frame] = [time, 0];
    if (far < this.near) [this.shown, this.last] = [structuredClone(this.goal), 0];
    this.draw();
    if (this.last) this.next();
  }
  stop() { cancelAnimationFrame(this.frame); }
}

// Keep what a reader changes in step with the model, both ways.  `show` shows a state, an object with these names: the
// first one again on `restart()`, another one when somebody else gives it to the model, such as a Python kernel or a
// second view.  `tell` hands the state that is shown to the model.
function inStep(model, names, show) {
  const read = () => structuredClone(Object.fromEntries(names.map((name) => [name, model.get(name)])));
  const first = read(), same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
  let telling = false;
  for (const name of names) model.on(`change:${name}`, () => { if (!telling) show(read()); });
  function tell(state) {
    const changed = names.filter((name) => !same(state[name], model.get(name)));
    if (!changed.length) return;
    telling = true;
    for (const name of changed) model.set(name, structuredClone(state[name]));
    telling = false;
    model.save_changes();
  }
  return { restart: () => show(structuredClone(first)), tell };
}

// Draw again whenever the width changes; return what ends that.
function follow(el, draw) {
  const watch = new ResizeObserver(() => draw());
  watch.observe(el);
  return () => watch.disconnect();
}
