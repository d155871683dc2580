// A sentence and the tokens that a model finds likeliest after it.  First a recording: the reader chooses a word, sees
// what the model makes of it, and steps through what it wrote.  Once the weights are loaded, the reader's own sentence.
// model: name (of the model), text, pieces (its tokens), steps (of the recording, from before the first token it wrote:
// {piece, next: pairs of a token and its probability}), n (tokens written that are shown), temperature, folder, digest,
// bytes (of the weights, from where the page's book begins).

const LIKELIEST = 5, MOST = 40;                     // candidates; tokens of one press

export function render({ model, el }) {
  const [name, steps, folder, digest] = ["name", "steps", "folder", "digest"].map((key) => model.get(key));
  const size = `${(model.get("bytes") / 1e6).toFixed(1)} MB`;
  const state = inStep(model, ["n"], (given) => go(given.n));
  let mode = "recorded", n = 0, chosen = null, revealed = false, trouble = "", part = [0, 1];
  // What is shown: tokens, how many of them the reader wrote, the likeliest next ones; and of the live text ids and times.
  let pieces = [], own = 0, next = [], ids = [], run = 0, times = [];
  // The chips that stand there; whether the sentence is not read yet, its timer, and whether anything is asked that is not
  // answered yet; tokens that are not the reader's.
  let shown = [], typed = false, typing = 0, busy = false, written = 0;

  const host = begin(el, "Which word comes next? Choose one. A + joins it to the word before.");
  quote(el);
  const box = make(el, "div", { class: "con-own" });
  const sentence = make(make(box, "label", {}, "Your beginning"), "input", { type: "text", maxlength: LONGEST, spellcheck: "false", autocomplete: "off" });
  const text = make(el, "div", { class: "con-text", tabindex: 0, role: "group", "aria-label": "the text, token by token" });
  const choices = make(el, "div", { class: "con-next", role: "group", "aria-label": "likeliest next tokens" });
  const rows = all(LIKELIEST, (k) => {
    const button = make(choices, "button", { type: "button" });
    button.addEventListener("click", () => choose(k));
    return { button, word: make(button, "b"), bar: make(make(button, "span"), "i", { "aria-hidden": "true" }), share: make(button, "u") };
  });
  const says = make(el, "p", { class: "con-says", "aria-live": "off" });
  const { caption, slider } = slide(el, { class: "con-time" }, 0, steps.length - 1);
  const draws = make(box, "div", { class: "con-draws" });
  const heat = slide(draws, {}, 0, 1.5, 0.1);
  const seed = make(make(draws, "label", {}, "seed"), "input", { type: "number", min: 0, max: 999999, value: 1 });
  const buttons = make(el, "div", { class: "con-buttons" });
  const [onward, back, write, again, load] = ["Next token", "Back", "", "Start again", ""]
    .map((label) => make(buttons, "button", { type: "button" }, label));
  const note = make(buttons, "span", { class: "con-note" }, SENDS_NOTHING);
  heat.slider.value = model.get("temperature");
  const temperature = () => Number(heat.slider.value);

  const engine = new Engine({ folder, digest }, hear);
  const live = () => mode === "live" || mode === "writing";

  // The recording after `to` tokens.
  function go(to) {
    n = clamp(Math.round(to), 0, steps.length - 1);
    [own, next, chosen] = [model.get("pieces").length, steps[n].next, null];
    pieces = [...model.get("pieces"), ...steps.slice(1, n + 1).map(({ piece }) => piece)];
    update();
    state.tell({ n });
  }

  function choose(k) {
    if (live()) ask(0, [next[k].id]);
    else {
      [chosen, revealed] = [k, true];
      update();
    }
  }

  // Read the sentence if it is new, else what stands there and some ids more; then draw some tokens.
  function ask(count = 0, more = []) {
    stop();
    if (!sentence.value) return refuse();
    const what = typed ? { text: sentence.value } : { ids: [...ids, ...more] };
    [written, busy] = [typed ? 0 : pieces.length - own + more.length, typed || busy];
    [times, mode] = [[], count > 1 ? "writing" : "live"];
    const sampling = { temperature: temperature(), seed: Number(seed.value) || 0 };
    engine.post({ kind: "run", id: run, ...what, count, shown: LIKELIEST, sampling });
    update();
  }
  function askSoon() {
    stop();
    if (!sentence.value) return refuse();
    [busy, trouble, typing] = [true, "", setTimeout(() => ask(), WAIT)];
    update();
  }
  function refuse() {
    [busy, trouble] = [false, EMPTY];
    update();
  }
  // Hear no more of what was asked.
  function stop() {
    clearTimeout(typing);
    run += 1;
    engine.post({ kind: "stop" });
    mode = "live";
  }

  function hear(message) {
    if (message.kind === "ready") {
      const keyed = load.matches(":focus-visible");
      [mode, revealed] = ["live", true];
      startOver();
      if (keyed) sentence.focus();
      return;
    }
    if (message.id !== run) return;
    busy = false;
    if (message.kind === "failed") [trouble, mode] = [message.why, "live"];
    if (message.kind === "read") {
      [ids, pieces, next] = [message.ids, message.pieces, message.next];
      [own, trouble, typed] = [pieces.length - written, "", false];
    }
    if (message.kind === "token") {
      ids.push(message.drawn);
      pieces.push(message.piece);
      next = message.next;
      times.push(message.ms);
    }
    if (message.kind === "done") [mode, trouble] = ["live", message.ended ? `Here ${name} ends its text. Choose a token, or take another seed.` : trouble];
    update();
  }

  function startOver() {
    [sentence.value, typed] = [model.get("text"), true];
    ask();
  }

  async function loads() {
    [mode, trouble] = ["loading", ""];
    update();
    try {
      await engine.load((at, of) => { part = [at, of]; update(); });
    } catch (error) {
      [mode, trouble] = ["failed", error.message];
      update();
    }
  }

  function status() {
    if (mode === "loading") return `Loading part ${part[0]} of ${part[1]}.`;
    if (mode === "failed") return `${trouble[0].toUpperCase()}${trouble.slice(1)}. The recording still works.`;
    if (busy) return COMPUTING;
    if (live() && trouble) return trouble;
    const speed = times.length ? Math.round(1000 * times.length / times.reduce((a, b) => a + b)) : 0;
    if (live()) return `${here(engine)}${long(sentence)}${speed ? ` ${speed} tokens a second.` : ""} Choose a token, or let it write.`;
    const best = next[0], took = steps[n + 1]?.piece;
    const guess = chosen === null ? "" : `You chose “${word(next[chosen].piece)}”, ${percent(next[chosen].p)}. `;
    if (!revealed) return `Recorded with ${name}. Which one would you choose?`;
    return `${guess}Likeliest is “${word(best.piece)}”, ${percent(best.p)}${took === undefined ? "" : `; the recording goes on with “${word(took)}”`}.`;
  }

  // The text by tokens; those that stand there already are kept.
  function chips() {
    const wanted = pieces.map((piece, k) => `${k < own ? "" : "con-new"} ${k && piece.startsWith(" ") ? "con-apart" : ""}|${piece}`);
    let same = wanted.findIndex((chip, k) => chip !== shown[k]);
    if (same < 0) same = wanted.length;
    while (text.childNodes.length > same) text.lastChild.remove();
    for (const [k, chip] of wanted.entries()) {
      if (k >= same) make(text, "span", { class: chip.split("|", 1)[0] }, word(pieces[k]).replace(/^\+/, "") || "·");
    }
    shown = wanted;
    text.scrollTop = text.scrollHeight;
  }

  function update() {
    chips();
    rows.forEach(({ button, word: label, bar, share }, k) => {
      const candidate = next[k];
      button.hidden = !candidate;
      if (!candidate) return;
      button.disabled = live() && typed;  // these are not of what is typed
      label.textContent = word(candidate.piece);
      bar.style.setProperty("--w", revealed ? `${100 * candidate.p}%` : "0");
      bar.hidden = !revealed;
      share.textContent = revealed ? percent(candidate.p) : "";
      button.classList.toggle("con-chosen", k === chosen);
    });
    says.textContent = status();
    for (const node of [text, choices]) node.setAttribute("aria-busy", Boolean(live() && (busy || trouble === EMPTY)));
    caption.textContent = `tokens that ${name} has written: ${n}`;
    heat.caption.textContent = `temperature: ${temperature().toFixed(1)}${temperature() ? "" : ", always the likeliest"}`;
    slider.value = n;
    slider.parentNode.hidden = live();
    box.hidden = !live();
    back.hidden = live();
    [back.disabled, onward.disabled] = live() ? [true, mode === "writing"] : [n === 0, n === steps.length - 1];
    write.hidden = !live();
    write.textContent = mode === "writing" ? "Stop" : `Write ${MOST} tokens`;
    load.hidden = note.hidden = live();
    load.setAttribute("aria-disabled", mode === "loading");
    load.textContent = mode === "failed" ? "Try again" : `Load ${name} (${size})`;
    const best = next[0];
    const spoken = `${live() ? "" : "Recorded: "}${pieces.length} tokens read${mode === "loading" ? ", loading" : mode === "failed" ? ", loading has failed" : ""}; `
      + (revealed && best ? `next: ${word(best.piece)}, ${percent(best.p).replace("%", "percent").replace("<", "less than")}.` : "the next one is yours to choose.");
    if (mode !== "writing") speak(el, busy ? COMPUTING : spoken);
    Object.assign(host.dataset, { mode, n, own, pieces: JSON.stringify(pieces), next: JSON.stringify(next.map(({ piece, p }) => [piece, p])), ids: JSON.stringify(ids) });
  }

  sentence.addEventListener("input", () => { typed = true; askSoon(); });
  slider.addEventListener("input", () => { revealed = true; go(Number(slider.value)); });
  heat.slider.addEventListener("input", askSoon);
  back.addEventListener("click", () => { revealed = true; go(n - 1); });
  onward.addEventListener("click", () => {
    if (live()) ask(1);
    else { revealed = true; go(n + 1); }
  });
  write.addEventListener("click", () => {
    if (mode !== "writing") return ask(MOST);
    stop();
    update();
  });
  again.addEventListener("click", () => {
    revealed = live();
    if (!live()) state.restart();
    else startOver();
  });
  load.addEventListener("click", () => { if (mode !== "loading") loads(); });
  state.restart();
}

export default { render };
