// A model writes beyond its training length, with its gates as trained and cut there: what each token costs by the
// schedule of relaxed multiplication, how large the results are, and what must be remembered.
// model: name, text, folder, digest, bytes (as continuation.js), length (of training, in tokens), runs (recorded, as trained
// and cut: pieces, and sizes, of the last Fourier layer's results), own (tokens of the text), n (tokens that are shown),
// gate (0 as trained, 1 cut), width, fourier (layers), fixed (pairs of a count of tokens and the bytes for each of them that
// the other operations remember), temperature, seed.

const MOST = 1024;                       // tokens that a press on Write may add
const BASE = 32;                         // of the schedule, as in relaxed.js
const SEEN = 40;                         // tokens of the text that are shown
const [WIDE, TALL] = [400, 70];          // of a strip, in its own units

const lowest = (n) => n & -n;

// Multiplications of token n for each channel: its pairs within its own block, and the FFTs of the block that ends with it.
export function cost(n) {
  const first = (n - 1) - (n - 1) % BASE, m = lowest(n);
  return (n - first) * (first ? 2 : 1) + (m >= BASE ? (n === m ? 3 : 5) * 2 * m * Math.log2(2 * m) : 0);
}

export function render({ model, el }) {
  const [length, own, width, fourier, fixed] = ["length", "own", "width", "fourier", "fixed"].map((key) => model.get(key));
  const state = inStep(model, ["n", "gate"], (given) => show(given.n, given.gate));
  const written = [null, null];          // by the reader's computer: ids, pieces, sizes, times; by gate
  let n = own, gate = 0, writing = false, asked = "", frame = 0;
  const host = begin(el, "Let the text grow. What happens beyond the training length, and does cutting the gates help?");
  quote(el);
  const live = new Live(model, host, {
    question: (text) => {
      if (text !== asked) [written[0], written[1], asked] = [null, null, text];
      return { kind: "run", text, gates: gate ? length : null, ends: false, sampling: { temperature: model.get("temperature"), seed: model.get("seed") } };
    },
    answer: heard,
    update: () => {                      // tokens may come faster than a page is drawn
      writing &&= !live.trouble;
      if (!writing) draw();
      else frame ||= requestAnimationFrame(() => { frame = 0; draw(); });
    },
  });
  live.box(el, "Your beginning");
  const pick = picker(el, "gates", (to) => {
    stop();
    show(n, to);
    if (live.live && !written[gate]) live.ask();
  });
  const text = make(make(el, "div", { class: "rem-text" }), "p", { class: "ins-text" });
  const { caption, slider } = slide(el, {}, 1, own);
  const [work, size] = all(2, () => {
    const head = make(el, "p", { class: "rem-head" });
    const board = make(el, "svg", { class: "rem-strip", viewBox: `0 0 ${WIDE} ${TALL}`, "aria-hidden": "true" });
    const limit = make(board, "path", { fill: "none", stroke: "var(--muted)", "stroke-dasharray": "4 3" });
    const other = make(board, "path", { fill: "none", stroke: "var(--muted)", "stroke-width": 1.5 });
    const line = make(board, "path", { fill: "none", "stroke-width": 2 });
    const mark = make(board, "path", { fill: "none", stroke: "var(--ink)", "stroke-width": 1.5 });
    sweep(board, (across) => show(Math.ceil(across * longest()), gate));
    return { head, board, limit, other, line, mark };
  });
  const key = make(el, "p", { class: "ins-note rem-key" });
  const says = make(el, "p", { class: "rem-says", "aria-live": "off" });
  const buttons = make(el, "div", { class: "ins-buttons" });
  const [write, step, again] = ["Write", "Next token", "Start again"].map((name) => make(buttons, "button", { type: "button" }, name));
  live.button(buttons);
  live.of.push(text, work.board, size.board);

  const run = (k = gate) => (live.live ? written[k] ?? { ids: [], pieces: [], sizes: [], times: [] } : model.get("runs")[k]);
  const longest = () => Math.max(length, ...[0, 1].map((k) => run(k).pieces.length));

  function heard(message) {
    if (message.kind === "read") {
      const { ids, pieces, sizes } = message, kept = written[gate];
      written[gate] = { ids, pieces, sizes, times: ids.map((id, k) => (id === kept?.ids[k] ? kept.times[k] : null)) };
    }
    if (message.kind === "token") {
      const { ids, pieces, sizes, times } = written[gate];
      ids.push(message.drawn);
      pieces.push(message.piece);
      sizes.push(message.size);
      times.push(message.ms);
    }
    if (message.kind === "done") writing = false;
    n = run().pieces.length;
  }

  function stop() {
    if (!writing) return;
    writing = false;
    live.stop();
  }
  function goOn(count) {
    writing = Boolean(live.sentence.value);
    live.ask(written[gate] && asked === live.sentence.value ? { ids: written[gate].ids, count } : { count });
    draw();
  }

  function show(tokens, k) {
    gate = Math.round(k) ? 1 : 0;
    n = clamp(Math.round(tokens), 1, Math.max(1, run().pieces.length));
    state.tell({ n, gate });
    draw();
  }

  // Bytes that must be kept after some tokens, in float32.
  const remembered = (tokens) => fixed.reduce((sum, [most, each]) => sum + each * Math.min(most, tokens),
    fourier * 2 * 4 * width * Math.min(tokens, gate ? length : tokens));

  function draw() {
    const { pieces, sizes, times } = run(), end = longest(), x = (tokens) => WIDE * tokens / end;
    pick(["as trained", `cut after ${length}`], gate);
    const from = Math.max(0, n - SEEN);
    chips(text, pieces.slice(from, n), (k) => (from + k >= own && from + k === n - 1 ? "ins-result" : ""));
    caption.textContent = `tokens of the text: ${n}`;
    move(slider, { max: Math.max(1, pieces.length) });
    slider.value = n;
    const costs = pieces.map((_, k) => cost(k + 1)), ceiling = peak(costs) || 1;
    const tallest = Math.max(peak(sizes), peak(run(1 - gate).sizes)) || 1;
    const bars = costs.map((value, k) => `M${x(k + 0.5).toFixed(1)} ${TALL}v${(-TALL * value / ceiling).toFixed(1)}`).join("");
    const curve = (values) => values.map((value, k) => `${k ? "L" : "M"}${x(k + 0.5).toFixed(1)} ${(TALL - (TALL - 2) * value / tallest).toFixed(1)}`).join("");
    work.head.textContent = `multiplications for each token and channel (full height: ${ceiling.toLocaleString("en")})`;
    size.head.textContent = `size of the results of the last Fourier module (full height: ${said(tallest, 1)})`;
    move(work.line, { d: bars, stroke: "var(--ink)", "stroke-width": Math.max(1, 0.7 * x(1)) });
    move(size.line, { d: curve(sizes), stroke: `var(--${gate ? "result" : "wrapped"})` });
    move(size.other, { d: curve(run(1 - gate).sizes) });
    for (const { limit, mark } of [work, size]) {
      move(limit, { d: `M${x(length)} 0V${TALL}` });
      move(mark, { d: `M${x(n - 0.5)} 0V${TALL}` });
    }
    const compared = run(1 - gate).pieces.length;
    key.textContent = `Dashed: the training length. ${compared ? "Grey: the same with the other gates." : "Write with the other gates, too, to compare."}`;
    const m = lowest(n), bytes = remembered(n), where = n <= length ? "within the training length" : `${said(n / length, 1)} training lengths`;
    const block = m < BASE ? `The next block of tokens comes after ${Math.ceil(n / BASE) * BASE}` : `Now a block of ${m} tokens is added to results ${n} to ${n + m - 1}`;
    const spent = times?.[n - 1] ? ` This token took ${said(times[n - 1], 0)} ms.` : "";
    const sentence = `${n} token${n === 1 ? "" : "s"}, ${where}, gates ${gate ? "cut" : "as trained"}: ${said(bytes / 2 ** 20)} MiB to remember, results of size ${said(sizes[n - 1] ?? 0)}. ${block}.${spent}`;
    live.say(says, sentence);
    write.textContent = writing ? "Stop" : "Write";
    write.hidden = !live.live;
    step.disabled = writing || (!live.live && n >= pieces.length);
    if (!writing) speak(el, live.spoken(sentence).replace("MiB", "mebibytes"));
    Object.assign(host.dataset, { mode: writing ? "writing" : live.mode, n, gate, bytes });
    if (!writing) Object.assign(host.dataset, { ids: JSON.stringify(run().ids ?? []), sizes: JSON.stringify(sizes), costs: JSON.stringify(costs) });
  }

  slider.addEventListener("input", () => show(Number(slider.value), gate));
  write.addEventListener("click", () => {
    if (!writing) return goOn(MOST);
    stop();
    draw();
  });
  step.addEventListener("click", () => (live.live && n === run().pieces.length ? goOn(1) : show(n + 1, gate)));
  again.addEventListener("click", () => {
    stop();
    [written[0], written[1], live.sentence.value] = [null, null, model.get("text")];
    state.restart();
    live.ask();
  });
  state.restart();
}

export default { render };
