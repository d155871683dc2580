// What one output of a stack of layers sees: tokens below, layers above, the cells that the output depends on.
// The reader changes the kind of a layer, the window and the output; cells are shaded by the number of paths.
// model: pattern ("FFA", the first letter reads the tokens), window, length, output (the position chosen).

const LEFT = 72, RIGHT = 26, TOP = 24; // margins of the drawing, in pixels
const STEP_UP = 44, TALL = 14;         // from one level to the next; height of a cell
const WIDEST = 10;                     // window
const FAINTEST = 0.25;                 // shade of a cell that one path leads from
const KIND = { F: "Fourier", A: "window" };
   /* room for the ring of the focus */

// Paths to output t from each cell of each level: level 0 are the tokens, the last level the outputs.
export function pathsTo(pattern, window, length, t) {
  const levels = [all(length, (j) => (j === t ? 1 : 0))];
  for (const kind of [...pattern].reverse()) {
    const above = levels[0], reached = new Array(length).fill(0);
    above.forEach((paths, i) => {
      const oldest = kind === "F" ? 0 : Math.max(0, i - window + 1);
      for (let j = oldest; j <= i && paths; j++) reached[j] += paths;
    });
    levels.unshift(reached);
  }
  return levels;
}

export function render({ model, el }) {
  const length = model.get("length"), first = model.get("pattern"), layers = first.length;
  const ready = { "all windows": "A".repeat(layers), "2 : 1": "FFA".repeat(layers).slice(0, layers),
    "all Fourier": "F".repeat(layers) };
  const height = TOP + STEP_UP * layers + TALL + 24;
  const state = inStep(model, ["pattern", "window", "output"], show);
  let pattern, window, output, levels;

  const host = begin(el, "Press a mixer to change its kind. Slide the window and the output, or drag in the drawing.");
  const presets = make(el, "div", { class: "sight-ready", role: "group", "aria-label": "stacks to start from" });
  const starts = Object.entries(ready).map(([name, stack]) => {
    const button = make(presets, "button", { type: "button" }, name);
    button.addEventListener("click", () => { pattern = stack; update(); });
    return button;
  });
  const room = make(el, "div", { class: "sight-stack" });
  const svg = make(room, "svg", { height, "aria-hidden": "true" });
  const top = (level) => TOP + STEP_UP * (layers - level);
  const buttons = all(layers, (k) => layers - 1 - k).map((k) => {   // the highest comes first
    const button = make(room, "button", { type: "button", class: "sight-layer",
      style: `top: ${top(k + 1) + (STEP_UP + TALL) / 2}px` });
    button.addEventListener("click", () => {
      pattern = pattern.slice(0, k) + (pattern[k] === "F" ? "A" : "F") + pattern.slice(k + 1);
      update();
    });
    const go = (by) => () => buttons[clamp(layers - 1 - k + by, 0, layers - 1)].focus();
    listen(button, { ArrowUp: go(-1), ArrowDown: go(1) });
    return button;
  });
  const text = (attributes, words) => make(svg, "text", attributes, words);
  text({ x: 0, y: top(layers) + 8, style: "font-weight: 600" }, "output");
  text({ x: 0, y: top(0) + 14, style: "font-weight: 600" }, "tokens");
  const cones = all(layers, () => make(svg, "path",
    { style: "fill: var(--ink); fill-opacity: 0.1" }));
  const cells = all(layers + 1, () => all(length, () => make(svg, "rect", { rx: 2, height: TALL })));
  const counts = cells.map((_, level) => text({ y: top(level) + 11, "text-anchor": "end" }));
  const heading = text({ y: 13, "text-anchor": "end", class: "muted" }, "cells seen");
  const numbers = all(length, (t) => (t % 5 ? null
    : text({ y: top(0) + TALL + 17, "text-anchor": "middle", class: "muted" }, t)));
  legend(el, [["--c: var(--content)", "tokens it sees"], ["--c: var(--ink)", "on the way"],
    ["--c: var(--result)", "the output"], ["--e: 1.5px solid var(--muted)", "not seen"],
    ["--e: 1px dashed var(--muted)", "later"]]);
  const sliders = make(el, "div", { class: "sight-sliders" });
  const { caption: windowName, slider: windows } = slide(sliders, {}, 1, WIDEST);
  const { caption: outputName, slider: outputs } = slide(sliders, {}, 0, length - 1);
  const [seen, oldest, fewest, most] = facts(el, 4);

  function tell() {
    const lit = levels[0].filter(Boolean).length, far = levels[0].findIndex(Boolean);
    Object.assign(host.dataset, { pattern, window, output, seen: lit, oldest: far, paths: JSON.stringify(levels) });
    speak(el, `Output ${output} sees ${lit} of ${length} tokens; the oldest is ${output - far} back.`);
    buttons.forEach((button, place) => {
      const k = layers - 1 - place, other = pattern[k] === "F" ? "A" : "F";
      button.textContent = KIND[pattern[k]];
      button.dataset.kind = pattern[k];
      button.setAttribute("aria-label", `mixer ${k}, ${KIND[pattern[k]]}; press for ${KIND[other]}`);
    });
    starts.forEach((button, k) => button.setAttribute("aria-pressed", Object.values(ready)[k] === pattern));
    [windowName.textContent, outputName.textContent] = [`window w = ${window}`, `output t = ${output}`];
    [windows.value, outputs.value] = [window, output];
    windows.setAttribute("aria-valuetext", `${window} keys`);
    seen.name.textContent = `tokens that output ${output} sees`;
    seen.value.textContent = `${lit} of ${length}`;
    oldest.name.textContent = "the oldest of them";
    oldest.value.textContent = `token ${far}, ${output - far} back`;
    fewest.name.textContent = "paths from the oldest";
    fewest.value.textContent = levels[0][far].toLocaleString("en");
    most.name.textContent = "most paths from one token";
    most.value.textContent = Math.max(...levels[0]).toLocaleString("en");
  }
  function draw() {
    const width = svg.clientWidth || 600, pitch = (width - LEFT - RIGHT) / length, gap = pitch > 16 ? 3 : 1.5;
    const left = (t) => LEFT + pitch * t + gap / 2, right = (t) => LEFT + pitch * (t + 1) - gap / 2;
    move(heading, { x: width });
    numbers.forEach((node, t) => { if (node) move(node, { x: LEFT + pitch * (t + 0.5) }); });
    levels.forEach((row, level) => {
      const most = Math.log1p(Math.max(...row)), from = row.findIndex(Boolean);
      const colour = level === layers ? "result" : level ? "ink" : "content";
      row.forEach((n, j) => {
        const shade = level === layers ? 1 : FAINTEST + (1 - FAINTEST) * (Math.log1p(n) / most);
        const style = n ? `fill: var(--${colour}); fill-opacity: ${shade.toFixed(3)}`
          : `fill: none; stroke: var(--${j > output ? "rule" : "muted"}); ${j > output ? "stroke-dasharray: 2 2" : ""}`;
        move(cells[level][j], { x: left(j), y: top(level), width: pitch - gap, style });
      });
      counts[level].textContent = row.filter(Boolean).length;
      move(counts[level], { x: width });
      if (level === layers) return;
      const above = levels[level + 1].findIndex(Boolean), [high, low] = [top(level + 1) + TALL + 2, top(level) - 2];
      cones[level].setAttribute("d",
        `M${left(above)} ${high}H${right(output)}V${low}H${left(from)}Z`);
    });
  }
  function show(given) {
    pattern = /^[FA]+$/.test(given.pattern) && given.pattern.length === layers ? given.pattern : first;
    [window, output] = [clamp(Math.round(given.window), 1, WIDEST), clamp(Math.round(given.output), 0, length - 1)];
    update();
  }
  function update() {
    levels = pathsTo(pattern, window, length, output);
    state.tell({ pattern, window, output });
    tell();
    draw();
  }
  function point(event) {
    const box = svg.getBoundingClientRect(), pitch = (box.width - LEFT - RIGHT) / length;
    output = clamp(Math.floor((event.clientX - box.left - LEFT) / pitch), 0, length - 1);
    update();
  }
  hold(svg, (event) => { point(event); return true; }, point);
  windows.addEventListener("input", () => { window = Number(windows.value); update(); });
  outputs.addEventListener("input", () => { output = Number(outputs.value); update(); });
  state.restart();
  return follow(el, draw);
}

export default { render };
