// The schedule of relaxed multiplication: the triangle of pairs (j, i), j + i < L, as tokens arrive one by one.
// At every step the pairs that are added are lit; below, how full each result is, and what each step costs.
// model: length (L, a whole number), n (tokens that have arrived at the start, 1 to L).

const LABEL = 30, CEILING = 34;              // room for the row numbers, and for the column numbers
const TALL = fit(44, 28), FOOT = TALL + 6;   // height of a strip, and where its bars stand

const lowest = (n) => n & -n;

// After how many tokens the pair (j, i) is counted: as they arrive with an index 0, otherwise in a block.
export function when(j, i) {
  const late = Math.max(j, i), t = j + i;
  if (Math.min(j, i) === 0) return late + 1;
  const bit = 2 ** Math.floor(Math.log2(late ^ t));
  return Math.floor(t / bit) * bit;
}

// Multiplications of the block after n tokens, by the count of the chapter; none once the text is complete.
export function cost(n, length) {
  const m = lowest(n);
  return n < length ? (n === m ? 3 : 5) * 2 * m * Math.log2(2 * m) : 0;
}

export function render({ model, el }) {
  const length = model.get("length");
  const pairs = all(length, (j) => all(length, (i) => i).slice(0, length - j).map((i) => ({ j, i, n: when(j, i) }))).flat();
  const costs = all(length, (k) => cost(k + 1, length)), most = Math.max(...costs, 1);
  const state = inStep(model, ["n"], (given) => go(Math.round(given.n)));
  let n;

  const host = begin(el, "Let tokens arrive. A click on a pair goes to the moment at which it is added.");
  const parts = make(make(el, "div", { class: "sch-room" }), "div", { class: "sch-parts" });
  const [steps, square, words, strips] = ["steps", "pairs", "words", "strips"]
    .map((name) => make(parts, "div", { class: `sch-${name}` }));

  const { caption, slider } = slide(steps, { class: "sch-slider" }, 1, length);
  const buttons = make(steps, "div", { class: "sch-buttons" });
  const [back, next, again] = ["Back", "Next token", "Start again"]
    .map((text) => make(buttons, "button", { type: "button" }, text));

  const picture = make(square, "svg", { role: "img" });
  const cells = pairs.map((pair) => {
    const node = make(picture, "rect", { class: "sch-pair" });
    node.addEventListener("click", () => go(pair.n));
    return node;
  });
  const cores = pairs.map(() => make(picture, "rect", { class: "sch-still" }));
  const outline = make(picture, "path", { class: "sch-still", style: "fill: none; stroke: var(--result); stroke-width: 2.5" });
  const across = make(picture, "text", { y: 12 }, "gate, index k →");
  const down = make(picture, "text", { x: 0, y: 12 }, "content, index j ↓");
  const columns = all(length, (i) => make(picture, "text", { y: CEILING - 6, "text-anchor": "middle", class: "muted" }, `${i}`));
  const rows = all(length, (j) => make(picture, "text", { x: LABEL - 8, "text-anchor": "end", class: "muted" }, `${j}`));

  const told = make(words, "div", { class: "sch-facts", "aria-live": "off" });
  const [arrived, binary, block, fed, full] = [0, 1, 2, 3, 4]
    .map((k) => make(told, "p", k === 2 ? { class: "sch-block" } : {}));
  legend(parts, [["--c: var(--content)", "new content, older gate"], ["--c: var(--gate)", "new gate, older content"],
    ["--c: var(--gate); --e: 3px solid var(--content)", "one product: t is a power of two"], ["--c: var(--muted); --o: 0.55", "added earlier"],
    ["--e: 1.5px solid var(--muted)", "known, still waiting"], ["--e: 2.5px solid var(--result)", "the result read now"]],
    "sch-key");

  const titles = ["share of each result that is already there", "multiplications of each step's block"];
  const [done, work] = titles.map((title) => {
    make(strips, "p", { class: "sch-head" }, title);
    return make(strips, "svg", { height: FOOT + 16, class: "sch-time" });
  });
  const column = (svg, style) => all(length, () => make(svg, "rect", { style, class: "sch-still" }));
  const ground = column(done, "fill: var(--shade)"), old = column(done, "fill: var(--result); fill-opacity: 0.5");
  const fresh = column(done, "fill: var(--result)"), spent = column(work, "fill: var(--muted)");
  const now = [done, work].map((svg) => make(svg, "path", { class: "sch-still", style: "fill: var(--ink)" }));
  const marks = [done, work].map((svg, k) => all(length, (t) => make(svg, "text",
    { y: FOOT + 15, "text-anchor": "middle", class: "muted sch-still" }, `${t + k}`)));
  for (const svg of [done, work]) sweep(svg, (across) => go(1 + Math.floor(across * length)));

  function go(to) { n = clamp(to, 1, length); update(); }

  function update() {
    const m = lowest(n), l = n - m, last = Math.min(n + m, length) - 1, t = n - 1;
    const lit = pairs.filter((pair) => pair.n === n);
    const share = all(length, (r) => pairs.filter((pair) => pair.j + pair.i === r && pair.n <= n).length);
    const before = all(length, (r) => pairs.filter((pair) => pair.j + pair.i === r && pair.n < n).length);
    caption.textContent = `tokens that have arrived: t = ${n}`;
    slider.value = n;
    [back.disabled, next.disabled] = [n === 1, n === length];
    const alone = n > last;
    arrived.textContent = `Token ${t} arrives. One by one: ${t ? `v${below(t)}g₀ and v₀g${below(t)}` : "v₀g₀"}.`;
    binary.textContent = `t = ${n} is ${n.toString(2)} in binary: lowest bit `;
    for (const [name, value, end] of [["b", m, ", "], ["a", l, "."]]) {
      const equation = make(binary, "span");
      make(equation, "i", {}, name);
      equation.append(` = ${value}${end.trim()}`);
      if (end === ", ") binary.append(" ");
    }
    block.textContent = "";
    const product = (text, colour) => make(block, "span", { style: `text-decoration-color: var(--${colour})` }, text);
    if (alone) block.textContent = "no block: the text ends here";
    else if (l) {
      product(`v[${l}:${n}]∗g[0:${2 * m}]`, "content");
      block.append(" + ");
      product(`g[${l}:${n}]∗v[0:${2 * m}]`, "gate");
    } else {
      product(`v[0:${n}]`, "content");
      block.append("∗");
      product(`g[0:${n}]`, "gate");
    }
    fed.textContent = alone ? "" : last > n ? `for results ${n} to ${last}` : `for result ${n}`;
    full.textContent = `r${below(t)} is read: ${share[t]} of ${n} pairs are in.`;
    slider.setAttribute("aria-valuetext", `${n} tokens, block of ${m}`);
    picture.setAttribute("aria-label", `${lit.length} pairs are added at this step, ${share.reduce((a, b) => a + b)} of `
      + `${pairs.length} have been added.`);
    speak(el, `${n} of ${length} tokens: ${lit.length === 1 ? "1 pair is" : `${lit.length} pairs are`} added at this step.`);
    Object.assign(host.dataset, { n, m, l, first: alone ? -1 : n, last: alone ? -1 : last,
      lit: JSON.stringify(lit.map(({ j, i }) => [j, i])), share: JSON.stringify(share), costs: JSON.stringify(costs) });
    state.tell({ n });
    draw(share, before);
  }

  function draw(share, before) {
    const total = picture.clientWidth || 330, cell = (total - LABEL - 2) / length, gap = cell > 9 ? 1 : 0.6;
    const x = (i) => LABEL + i * cell, y = (j) => CEILING + j * cell, t = n - 1;
    move(picture, { height: y(length) + 4 });
    move(across, { x: total - 2, "text-anchor": "end" });
    pairs.forEach((pair, k) => {
      const { j, i } = pair, known = Math.max(j, i) < n, lit = pair.n === n, counted = pair.n < n;
      const both = lit && (j === i || (lowest(n) === n && Math.min(j, i) > 0));
      const fill = both ? "var(--content)" : lit ? (j > i ? "var(--content)" : "var(--gate)")
        : counted ? "var(--muted)" : known ? "var(--paper)" : "var(--shade)";
      move(cells[k], { x: x(i) + gap / 2, y: y(j) + gap / 2, width: cell - gap, height: cell - gap,
        style: `fill: ${fill}; fill-opacity: ${counted ? 0.55 : 1}` });
      const inset = both ? 0.25 : 0.12, hollow = known && !lit && !counted;
      move(cores[k], { x: x(i + inset), y: y(j + inset), width: cell * (1 - 2 * inset), height: cell * (1 - 2 * inset),
        style: both ? "fill: var(--gate)" : hollow ? "fill: none; stroke: var(--muted); stroke-width: 1" : "fill: none" });
    });
    let path = `M${x(t)} ${y(0)}`;           // down the stairs of the anti-diagonal j + i = t, and back up
    for (let j = 0; j <= t; j++) path += `V${y(j + 1)}H${x(t - j - (j < t ? 1 : 0))}`;
    path += `V${y(t)}`;
    for (let j = t; j >= 0; j--) path += `H${x(t - j + 1)}V${y(j)}`;
    move(outline, { d: path + "z" });
    const every = cell > 13 ? 2 : 4;
    all(length, (k) => {
      move(columns[k], { x: x(k + 0.5), visibility: k % every ? "hidden" : "visible" });
      move(rows[k], { y: y(k + 0.5) + 4, visibility: k % every ? "hidden" : "visible" });
    });
    const wide = done.clientWidth || 330, pitch = wide / length;
    all(length, (k) => {
      const box = { x: pitch * (k + 0.12), width: pitch * 0.76 };
      const put = (node, start, end) => move(node, { ...box, y: FOOT - TALL * end, height: Math.max(0, TALL * (end - start)) });
      const [earlier, filled] = [before[k] / (k + 1), share[k] / (k + 1)];
      put(ground[k], 0, 1);
      put(old[k], 0, k < t ? filled : earlier);
      put(fresh[k], k < t ? filled : earlier, filled);
      put(spent[k], 0, costs[k] ? Math.max(0.03, costs[k] / most) : 0);
      spent[k].style.fill = k === t ? "var(--ink)" : "var(--muted)";
      spent[k].style.fillOpacity = k === t ? 1 : 0.55;
      marks.forEach((line, first) => move(line[k], { x: pitch * (k + 0.5),
        visibility: (k + first) % 4 && pitch < 30 ? "hidden" : "visible" }));
    });
    for (const pointer of now) move(pointer, { d: `M${pitch * (t + 0.1)} ${FOOT + 1}h${pitch * 0.8}v2.5h${-pitch * 0.8}z` });
  }

  slider.addEventListener("input", () => go(Number(slider.value)));
  back.addEventListener("click", () => go(n - 1));
  next.addEventListener("click", () => go(n + 1));
  again.addEventListener("click", state.restart);
  state.restart();
  return follow(el, update);
}

export default { render };
