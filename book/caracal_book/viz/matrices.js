// The matrix of a Fourier module's channel beside that of an attention head, for one text: who wrote a weight?
// model: name, text, folder, digest, bytes (as continuation.js), trace (of `caracal_book.viz.trace`), channels (pairs of a
// layer and its channels), other (of another text: its gates), and what is chosen: layer and channel, attention and head
// (places in their lists), t (output), lag.

export function render({ model, el }) {
  const channels = model.get("channels"), other = model.get("other");
  const state = inStep(model, ["layer", "channel", "attention", "head", "t", "lag"], show);
  const attends = [...model.get("trace").heads.keys()].filter((i) => model.get("trace").heads[i]);
  let trace = model.get("trace"), chosen = null;
  const host = begin(el, "Which token wrote a weight? Choose an entry, or use the sliders.");
  quote(el);
  const live = new Live(model, host, {
    question: (text) => ({ kind: "look", text, shown: 0, wanted: channels }),
    answer: (message) => { trace = message; choose({ ...chosen, t: trace.pieces.length - 1 }); },
    update: () => draw(),
  });
  live.box(el);
  const text = make(el, "div", { class: "ins-text", role: "group", "aria-label": "the text, token by token" });
  const tabs = picker(el, "matrix", (at) => turn(at));
  el.lastChild.classList.add("mat-tabs");
  const pair = make(el, "div", { class: "mat-pair" });
  const sides = ["layer", "attention"].map((name, k) => {
    const section = make(pair, "section"), title = make(section, "p", { class: "mat-title" });
    const row = make(section, "div", { class: "ins-pick" }), part = k ? "head" : "channel";
    const layers = chooser(row, "block", (at) => show({ ...chosen, [name]: at }));
    const parts = chooser(row, part, (at) => show({ ...chosen, [part]: at }));
    return { section, title, layers, parts, matrix: matrixOf(section, (t, j) => show({ ...chosen, t, lag: t - j }), fit(340, 230)) };
  });
  const sliders = make(el, "div", { class: "mat-sliders" }), outputs = slide(sliders, {}, 0, 1), lags = slide(sliders, {}, 0, 1);
  const says = make(el, "p", { class: "mat-says", "aria-live": "off" });
  const [W, H] = [fit(680, 340), fit(84, 60)], kernel = make(el, "svg", { viewBox: `0 0 ${W} ${H}`, "aria-hidden": "true" });
  legend(el, [["--c: var(--gate)", "its gates by lag"], ["--e: 1.5px solid var(--gate)", "hollow: negative"],
    ["--e: 1.5px solid var(--ink)", `gates of “${other.text}”`]]);
  const buttons = make(el, "div", { class: "ins-buttons" }), again = make(buttons, "button", { type: "button" }, "Start again");
  live.button(buttons);
  live.of.push(text, pair, kernel);

  // On a phone one of the matrices is shown.
  function turn(at) {
    tabs(["Fourier module", "attention"], at);
    sides.forEach(({ section }, k) => section.classList.toggle("mat-away", k !== at));
  }

  function choose(given) {
    const at = (key, count) => clamp(Math.round(given[key]) || 0, 0, count - 1);
    const layer = at("layer", channels.length), attention = at("attention", attends.length), t = at("t", trace.pieces.length);
    chosen = { layer, channel: at("channel", channels[layer][1].length), attention,
      head: at("head", trace.heads[attends[attention]].length), t, lag: at("lag", t + 1) };
    state.tell(chosen);
  }
  function show(given) {
    choose(given);
    draw();
  }

  const toeplitz = new WeakMap();
  function matrixOfGate(gate) {
    if (!toeplitz.has(gate)) toeplitz.set(gate, gate.map((_, t) => gate.slice(0, t + 1).reverse()));
    return toeplitz.get(gate);
  }

  function draw() {
    const { layer, channel, attention, head, t, lag } = chosen, { pieces, heads } = trace, j = t - lag;
    const gate = trace.gates[layer][channel], weights = heads[attends[attention]][head], name = channels[layer][1][channel];
    chips(text, pieces, (k) => [k === j && "ins-content", k === lag && "ins-gate", k === t && "ins-result"].filter(Boolean).join(" "));
    const drawn = [[matrixOfGate(gate), "gate", channels.map(([i]) => i), layer, channels[layer][1], channel, "Fourier module, in its own scale"],
      [weights, "other-1", attends, attention, [...heads[attends[attention]].keys()], head, "Attention, in its own scale"]];
    sides.forEach((side, k) => {
      const [rows, colour, layers, layerAt, parts, partAt, title] = drawn[k];
      side.title.textContent = title;
      side.layers(layers, layerAt);
      side.parts(parts, partAt);
      side.matrix(rows, pieces, colour, t, j);
    });
    for (const [{ slider, caption }, most, value, words] of [[outputs, pieces.length - 1, t, `output ${t}, ${quoted(pieces[t])}`],
      [lags, t, lag, `${lag} back: ${j}, ${quoted(pieces[j])}`]]) {
      Object.assign(slider, { max: most, value });
      slider.setAttribute("aria-valuetext", words);
      caption.textContent = words;
    }
    const third = lag === j || lag === t ? "" : ", which is neither of the two";
    live.say(says, `In output ${quoted(pieces[t])} (${t}), ${quoted(pieces[j])} (${j}) has the weight ${fine(gate[lag])} in channel ${name}. `
      + `${quoted(pieces[lag])} (${lag}) wrote it as its gate${third}. The head's ${fine(weights[t][j])} comes from the score of ${quoted(pieces[t])} and ${quoted(pieces[j])}, among all in the window.`);
    kernelOf(gate, other.gates[layer][channel], lag);
    speak(el, live.spoken(`block ${channels[layer][0]}, output ${t}: token ${j} has the weight ${fine(gate[lag])}, written by token ${lag}; in attention ${fine(weights[t][j])}.`));
    Object.assign(host.dataset, { ...chosen, pieces: JSON.stringify(pieces), gate: JSON.stringify(gate), weights: JSON.stringify(weights) });
  }

  // Gates by lag as bars, those of the other text as outlines.
  function kernelOf(own, theirs, lag) {
    const pitch = W / own.length, [most, least] = [Math.max(0, ...own, ...theirs), Math.min(0, ...own, ...theirs)];
    const y = (value) => 4 + (H - 24) * (most - value) / (most - least || 1);
    kernel.replaceChildren();
    const bar = (value, k, width, look) => make(kernel, "rect", { x: pitch * (k + 0.5 - width / 2), width: pitch * width,
      y: Math.min(y(0), y(value)), height: Math.abs(y(value) - y(0)), ...look });
    own.forEach((value, k) => {
      bar(value, k, 0.6, { fill: "var(--gate)" });
      if (k < theirs.length) bar(theirs[k], k, 0.75, { fill: "none", stroke: "var(--ink)", "stroke-width": 1.5 });
      if (pitch > 20 || k === lag || k % 5 === 0) make(kernel, "text", { x: pitch * (k + 0.5), y: H - 4, "text-anchor": "middle", "font-weight": k === lag ? 700 : 400 }, k);
    });
    make(kernel, "line", { x1: 0, x2: W, y1: y(0), y2: y(0), stroke: "var(--muted)" });
  }

  outputs.slider.addEventListener("input", () => show({ ...chosen, t: Number(outputs.slider.value) }));
  lags.slider.addEventListener("input", () => show({ ...chosen, lag: Number(lags.slider.value) }));
  again.addEventListener("click", () => {
    live.sentence.value = model.get("text");
    state.restart();
    live.ask();
  });
  turn(0);
  state.restart();
}

export default { render };
