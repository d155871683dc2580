// Which letters of a text meet in r_t = sum over j of v_j g_{t-j}: an arc joins every two positions that add up to t.
// Bars: for every t, the share of the products that join equal letters; it is 1 where the text up to t is a palindrome.
// model: text (letters a to z, one a token), t (the chosen result).

const PITCH = 60;                      // largest distance of two letters, in pixels
const ARCS = fit(150, 112);            // height of the highest arc
const BARS = fit(72, 52), RING = 7;    // height of a full bar; radius of the ring at a letter that meets itself
const LETTERS = "abcdefgh";            // that a click goes through; typing gives every letter

// For every t, how many j from 0 to t have the same letter at j and at t - j.
export const equalAt = (text) => all(text.length, (t) => all(t + 1, (j) => text[j] === text[t - j]).filter(Boolean).length);

// The first two positions of the second half that are an even distance apart and hold different letters.
export function swappable(text) {
  for (let i = Math.ceil(text.length / 2); i < text.length; i++) {
    for (let j = i + 2; j < text.length; j += 2) if (text[i] !== text[j]) return [i, j];
  }
  return null;
}

export function render({ model, el }) {
  const first = model.get("text"), length = first.length, last = length - 1;
  const state = inStep(model, ["text", "t"], show);
  let text, t, active = 0;             // the letter that Tab comes to

  const host = begin(el, "Move t: letters whose positions add up to t meet in the sum r. Press a letter to change it. By keyboard: Tab to the letters, ← → choose one, ↑ ↓ or a letter key change it.");
  quote(el);
  legend(el, [["--c: var(--result); --h: 5px", "equal letters meet"], ["--c: var(--muted); --h: 1.5px", "different letters"],
    ["--e: 1.5px dashed var(--muted)", "later than t"]]);
  const room = make(el, "div", { class: "meet-room", style: `max-width: ${Math.max(PITCH * length, 300)}px` });
  const drawing = make(room, "svg", { class: "meet-arcs", "aria-hidden": "true" });
  const arcs = all(Math.floor(length / 2), () => make(drawing, "path"));
  const ring = make(drawing, "circle", { r: RING, style: "stroke: var(--result); stroke-width: 4" });
  const row = make(room, "div", { class: "meet-letters", role: "group", "aria-label": "the text",
    style: `grid-template-columns: repeat(${length}, minmax(0, 1fr))` });
  const letters = all(length, letter);
  const label = make(room, "label", { class: "meet-t" });
  const slider = make(label, "input", { type: "range", min: 0, max: last, step: 1,
    style: `width: calc(100% - 100% / ${length} + 24px); margin-left: calc(50% / ${length} - 12px)` });
  const caption = make(label, "span");
  const head = make(room, "p", { class: "meet-head" });
  make(head, "b", {}, "Share of equal products in r, at every t.");
  head.append(" A full bar: up to there, a palindrome.");
  const chart = make(room, "svg", { height: BARS + 26, "aria-hidden": "true" });
  const bars = all(length, () => ({
    full: make(chart, "rect", { y: 3, height: BARS, style: "fill: var(--rule); fill-opacity: 0.6" }),
    bar: make(chart, "rect", { style: "fill: var(--result)" }),
    number: make(chart, "text", { y: BARS + 21, "text-anchor": "middle" }),
  }));
  const mark = make(chart, "rect", { y: 1, height: BARS + 4, rx: 3, style: "fill: none; stroke: var(--ink); stroke-width: 2" });
  const field = make(chart, "rect", { class: "meet-bars", x: 0, y: 0, height: BARS + 26 });
  const [equal, mirror] = facts(el, 2);
  const swapping = make(el, "div", { class: "meet-swap" });
  const swap = make(swapping, "button", { type: "button" }, "Swap two letters"), where = make(swapping, "span");
  const again = make(el, "button", { type: "button" }, "Start again");

  function letter(k) {
    const node = make(row, "button", { type: "button", class: "meet-letter" });
    const [shown] = [make(node, "b"), make(node, "i", {}, k)];
    const turn = (by) => () => {
      const at = LETTERS.indexOf(text[k]);
      put(k, at < 0 ? LETTERS.at(by > 0 ? 0 : -1) : LETTERS.at((at + by) % LETTERS.length));
    };
    const go = (to) => () => letters[clamp(to, 0, last)].node.focus();
    node.addEventListener("focus", () => { active = k; reach(); });
    node.addEventListener("click", turn(1));
    listen(node, { ArrowUp: turn(1), ArrowDown: turn(-1), ArrowLeft: go(k - 1), ArrowRight: go(k + 1), Home: go(0), End: go(last) });
    node.addEventListener("keydown", (event) => {
      if (!/^[a-z]$/i.test(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation();         // in a notebook, letters are commands
      put(k, event.key.toLowerCase());
    });
    return { node, shown };
  }
  function reach() {
    letters.forEach(({ node }, k) => { node.tabIndex = k === active ? 0 : -1; });
  }
  function put(k, to) {
    text = text.slice(0, k) + to + text.slice(k + 1);
    update(`Letter ${k} is ${to}. `);
  }
  function choose(to) {
    t = clamp(to, 0, last);
    update();
  }
  function show(given) {
    text = /^[a-z]+$/.test(given.text) && given.text.length === length ? given.text : first;
    choose(Math.round(given.t));
  }

  function update(what = "") {
    const counts = equalAt(text), whole = counts[t] > t, pair = swappable(text);
    slider.value = t;
    slider.setAttribute("aria-valuetext", `t = ${t}, ${counts[t]} of ${t + 1} equal`);
    caption.textContent = `t = ${t}: letter j meets letter ${t}\u00a0−\u00a0j`;
    letters.forEach(({ node, shown }, k) => {
      shown.textContent = text[k];
      node.dataset.meets = k > t ? "later" : text[k] === text[t - k] ? "equal" : "other";
      node.setAttribute("aria-label", `letter ${k}, ${text[k]}`);
    });
    equal.name.textContent = `equal in r at t = ${t}`;
    equal.value.textContent = `${counts[t]} of ${t + 1} ${t ? "products" : "product"}`;
    mirror.name.textContent = `the text up to t = ${t} is a palindrome`;
    mirror.value.textContent = whole ? "yes" : "no";
    swap.disabled = !pair;
    where.textContent = pair ? `at ${pair[0]} and ${pair[1]}` : "no two fit";
    Object.assign(host.dataset, { text: JSON.stringify(text), t, counts: JSON.stringify(counts), equal: counts[t], palindrome: whole });
    speak(el, `${what}At t = ${t}, ${counts[t]} of ${t + 1} products are of equal letters; ${whole ? "" : "not "}a palindrome up to t.`);
    state.tell({ text, t });
    reach();
    draw(counts);
  }
  function draw(counts = equalAt(text)) {
    const pitch = (drawing.clientWidth || 600) / length, most = (pitch * last) / 2, rise = Math.min(1, ARCS / most);
    const base = 4 + rise * most, x = (j) => pitch * (j + 0.5), wide = pitch * 0.62;
    move(drawing, { height: base + 2 });
    arcs.forEach((arc, j) => {
      const half = (pitch * (t - 2 * j)) / 2, same = text[j] === text[t - j];
      arc.style.display = half > 0 ? "" : "none";
      if (half > 0) move(arc, { d: `M${x(j)} ${base}A${half} ${half * rise} 0 0 1 ${x(t - j)} ${base}`,
        style: `stroke: var(--${same ? "result" : "muted"}); stroke-width: ${same ? 4 : 1.3}` });
    });
    ring.style.display = t % 2 ? "none" : "";
    move(ring, { cx: x(t / 2), cy: base - RING });
    bars.forEach(({ full, bar, number }, s) => {
      const tall = (BARS * counts[s]) / (s + 1);
      move(full, { x: x(s) - wide / 2, width: wide });
      move(bar, { x: x(s) - wide / 2, width: wide, y: 3 + BARS - tall, height: tall, "fill-opacity": s === t ? 1 : 0.55 });
      move(number, { x: x(s), style: s === t ? "font-weight: 700" : "fill: var(--muted)" });
      number.textContent = s;
    });
    move(mark, { x: x(t) - wide / 2 - 2, width: wide + 4 });
    move(field, { width: pitch * length });
  }

  sweep(field, (across) => choose(Math.floor(across * length)));
  slider.addEventListener("input", () => choose(Number(slider.value)));
  swap.addEventListener("click", () => {
    const [i, j] = swappable(text), placed = [...text];
    [placed[i], placed[j]] = [text[j], text[i]];
    text = placed.join("");
    update(`Letters ${i} and ${j} are swapped. `);
  });
  again.addEventListener("click", state.restart);
  state.restart();
  return follow(el, () => draw());
}

export default { render };
