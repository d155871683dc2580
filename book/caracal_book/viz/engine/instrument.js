// What the figures with a model share, beside words.js: tokens, a matrix, the reader's own sentence and the button that
// loads.

// A text by tokens; `marks` gives the classes of each.
function chips(parent, pieces, marks = () => "") {
  parent.replaceChildren();
  pieces.forEach((piece, k) => make(parent, "span", { class: `${k && piece.startsWith(" ") ? "ins-apart" : ""} ${marks(k)}` }, bare(piece)));
}

// A row of buttons of which one is pressed.
function picker(parent, label, picked) {
  const row = make(parent, "div", { class: "ins-pick", role: "group", "aria-label": label });
  make(row, "span", { "aria-hidden": "true" }, label);
  return (names, at) => {
    while (row.children.length - 1 > names.length) row.lastChild.remove();
    names.forEach((name, k) => {
      const button = row.children[k + 1] ?? make(row, "button", { type: "button" });
      button.onclick = () => picked(k);
      button.textContent = name;
      button.setAttribute("aria-pressed", k === at);
    });
  };
}

// The same as a list that opens, for a row with several of them.
function chooser(row, label, picked) {
  const select = make(make(row, "label", {}, label), "select");
  select.addEventListener("change", () => picked(Number(select.value)));
  return (names, at) => {
    if (names.join() !== select.names) {
      select.names = names.join();
      select.replaceChildren();
      names.forEach((name, value) => make(select, "option", { value }, name));
    }
    select.value = at;
  };
}

// A matrix of a text: row t has a square for each token j, whose area is the size; hollow is negative.  A press on one
// calls `pick(t, j)`.  The function that is returned draws rows, with one of them, and a column of it, in a frame.
function matrixOf(parent, pick, W = 340) {
  const LEFT = 62, board = make(parent, "svg", { class: "ins-matrix", viewBox: `0 0 ${W} ${W - LEFT}`, "aria-hidden": "true" });
  const cells = make(board, "g"), frame = make(board, "rect", { fill: "none", stroke: "var(--ink)", "stroke-width": 1.5 });
  const mark = make(board, "rect", { fill: "none", stroke: "var(--ink)", "stroke-width": 2.5 });
  let drawn = null, pitch = 1, lit = null;
  board.addEventListener("click", (event) => {
    const box = board.getBoundingClientRect(), unit = W / box.width / pitch;
    const [t, j] = [(event.clientY - box.top) * unit, (event.clientX - box.left) * unit - LEFT / pitch].map(Math.floor);
    if (j >= 0 && j <= t && t < drawn.length) pick(t, j);
  });
  return (rows, names, colour, t, j) => {
    pitch = (W - LEFT) / rows.length;
    if (rows !== drawn) {
      drawn = rows;
      const largest = peak(rows.flat()) || 1;
      cells.replaceChildren();
      rows.forEach((row, at) => row.slice(0, at + 1).forEach((value, column) => {
        const side = (pitch - 2) * Math.sqrt(Math.abs(value) / largest);
        if (side < 0.4) return;
        const inset = value < 0 ? Math.min(0.75, side / 3) : 0;
        make(cells, "rect", { x: LEFT + pitch * (column + 0.5) - side / 2 + inset, y: pitch * (at + 0.5) - side / 2 + inset,
          width: side - 2 * inset, height: side - 2 * inset, fill: value < 0 ? "none" : `var(--${colour})`, stroke: `var(--${colour})`,
          "stroke-width": value < 0 ? 2 * inset : 0 });
      }));
      lit = rows.map((_, at) => make(cells, "text", { x: LEFT - 5, y: pitch * (at + 0.5) + 4, "text-anchor": "end" }, bare(names[at]).slice(0, 9)));
    }
    lit.forEach((label, at) => move(label, { visibility: at === t || pitch > 12 ? "visible" : "hidden", "font-weight": at === t ? 700 : 400 }));
    move(frame, { x: LEFT, y: pitch * t, width: pitch * (t + 1), height: pitch });
    move(mark, { x: LEFT + pitch * j, y: pitch * t, width: pitch, height: pitch });
  };
}

// Below a list: how many rows it has, where not all are seen.  It measures, so a figure calls it when all is drawn.
function scrolls(parent, list) {
  const note = make(parent, "p", { class: "ins-note ins-more" });
  return (rows) => {
    note.textContent = list.scrollHeight > list.clientHeight + 1 ? `${rows} tokens: scroll the list` : "";
  };
}

// The reader's own sentence and the button that loads the model.  `question(sentence)` is what the engine is asked of a
// sentence, `refuse(message)` says what the sentence lacks, `answer(message)` hears what the engine says of the newest
// question, `update()` draws the state anew.  What the nodes `of` show is dimmed while it is not of what is asked.
class Live {
  constructor(model, host, { question, answer, update, refuse = () => "" }) {
    const [name, folder, digest] = ["name", "folder", "digest"].map((key) => model.get(key));
    Object.assign(this, { name, host, question, answer, update, refuse, of: [], first: model.get("text"), mode: "recorded", trouble: "", run: 0, part: [0, 1] });
    this.size = `${(model.get("bytes") / 1e6).toFixed(1)} MB`;
    this.engine = new Engine({ folder, digest }, (message) => this.hear(message));
  }

  // Where the sentence is typed, and where the button stands, beside those of the figure.
  box(parent, label = "Your sentence") {
    this.own = make(parent, "label", { class: "ins-own" }, label);
    this.sentence = make(this.own, "input", { type: "text", maxlength: LONGEST, spellcheck: "false", autocomplete: "off" });
    this.sentence.value = this.first;
    this.sentence.addEventListener("input", () => {
      this.stop();
      [this.busy, this.trouble] = [true, ""];
      this.wait = setTimeout(() => this.ask(), WAIT);
      this.say();
    });
  }
  button(row) {
    this.load = make(row, "button", { type: "button" });
    this.note = make(row, "span", { class: "ins-note" });
    this.load.addEventListener("click", () => { if (this.mode !== "loading") this.loads(); });
  }

  get live() { return this.mode === "live"; }

  async loads() {
    [this.mode, this.trouble] = ["loading", ""];
    this.say();
    try {
      await this.engine.load((at, of) => { this.part = [at, of]; this.say(); });
    } catch (error) {
      [this.mode, this.trouble] = ["failed", `${error.message[0].toUpperCase()}${error.message.slice(1)}. The recording still works.`];
      this.say();
    }
  }

  ask(more = {}) {
    if (!this.live) return this.update();
    this.stop();
    const sentence = this.sentence.value;
    [this.busy, this.trouble] = [Boolean(sentence) && !(more.ids && more.count), sentence ? "" : EMPTY];
    if (sentence) this.engine.post({ id: this.run, ...this.question(sentence), ...more });
    this.update();
  }

  // Hear no more of what was asked.
  stop() {
    clearTimeout(this.wait);
    this.run += 1;
    this.busy = false;
    this.engine.post?.({ kind: "stop" });
  }

  hear(message) {
    if (message.kind === "ready") {
      const keyed = this.load.matches(":focus-visible");
      this.mode = "live";
      this.ask();
      if (keyed) this.sentence.focus();
    } else if (message.id === this.run) {
      this.busy = false;
      this.trouble = message.kind === "failed" ? message.why : this.refuse(message);
      if (!this.trouble) this.answer(message);
      this.update();
    }
  }

  // What is said to those who hear a sentence of the figure.
  spoken(sentence) {
    return this.busy ? COMPUTING : !this.live ? `Recorded: ${sentence}` : this.trouble || sentence;
  }

  // Say in a node of the figure what the state is, or a sentence; draws the button, too.  Without a sentence, while the
  // figure stands as it was drawn: the same again.
  say(node = this.node, sentence = this.said) {
    [this.node, this.said] = [node, sentence];
    this.host.dataset.mode = this.mode;
    this.own.hidden = !this.live;
    this.load.hidden = this.live;
    this.note.textContent = this.live ? here(this.engine) + long(this.sentence) : SENDS_NOTHING;
    this.load.setAttribute("aria-disabled", this.mode === "loading");
    this.load.textContent = this.mode === "failed" ? "Try again" : `Load ${this.name} (${this.size})`;
    for (const shown of this.of) shown.setAttribute("aria-busy", Boolean(this.live && (this.busy || this.trouble)));
    node.textContent = this.mode === "loading" ? `Loading part ${this.part[0]} of ${this.part[1]}.` : this.busy ? COMPUTING : this.trouble || sentence;
  }
}
