// What a change of the text or of the model does to each prediction: a row for each token, before and after.
// model: name, text, folder, digest, bytes (as continuation.js), help, measure ("moved": how much the prediction after a
// token moves; "bits": what it cost to predict the token), controls (name, options; an option has a label and an edit of
// model.js, with `last` the last word of the changed text, "" for the sentence's own, and `both` where the edit counts
// before the change, too), count (tokens that are written after the text, if any),
// results (recorded, by option of the first control and of the second), choices (what is chosen of each control).

const MOVES = 1e-3;          // of a probability: less is rounding

export function render({ model, el }) {
  const controls = model.get("controls"), moved = model.get("measure") === "moved";
  const state = inStep(model, ["choices"], (given) => show(given.choices));
  let choices = null, found = null;                 // found: an answer of the engine, with the question that it answers
  const host = begin(el, model.get("help"));
  quote(el);
  const live = new Live(model, host, {
    question: (text) => ({ kind: "compare", takes: takesOf(text), count: model.get("count") }),
    refuse: ({ pieces }) => (!moved && pieces.length < 2 ? "Write at least two tokens: the first is not predicted." : ""),
    answer: (message) => { found = message; },
    update: () => draw(),
  });
  live.box(el);
  const ownWord = () => (live.live ? live.sentence.value : model.get("text")).match(/\S+(?=\s*$)/)?.[0] ?? "";
  const label = ({ label, last }) => (last === "" ? ownWord() : label);
  const pickers = controls.map(({ name, options }, k) => {
    const choose = (at) => show(choices.map((old, place) => (place === k ? at : old)));
    if (options.length < 5) {
      const put = picker(el, name, choose);
      return (at) => put(options.map(label), at);
    }
    const { caption, slider } = slide(el, {}, 0, options.length - 1);
    slider.addEventListener("input", () => choose(Number(slider.value)));
    return (at) => {
      slider.value = at;
      slider.setAttribute("aria-valuetext", options[at].label);
      caption.textContent = `${name}: ${options[at].label}`;
    };
  });
  const rows = make(el, "div", { class: "cha-rows", "aria-live": "off", tabindex: 0, role: "group", "aria-label": "the text, token by token" });
  const more = scrolls(el, rows);
  legend(el, moved ? [["--c: var(--result)", "moves: prediction after the changed token"], ["--c: var(--wrapped)", "prediction that should not know of it"]]
    : [["--e: 1.5px solid var(--ink)", "bits as trained"], ["--c: var(--ink)", "bits as changed (bold: more)"]]);
  const says = make(el, "p", { class: "cha-says", "aria-live": "off" }), writes = make(el, "p", { class: "ins-more" });
  const buttons = make(el, "div", { class: "ins-buttons" }), again = make(buttons, "button", { type: "button" }, "Start again");
  live.button(buttons);
  live.of.push(rows, writes);

  // The two texts that are compared, each with its edit.
  function takesOf(text) {
    const options = choices.map((at, k) => controls[k].options[at]), last = lastWord();
    return [{ text, edit: Object.assign({}, ...options.filter(({ both }) => both).map(({ edit }) => edit)) },
      { text: !last ? text : text.replace(/\S+\s*$/, last), edit: Object.assign({}, ...options.map(({ edit }) => edit)) }];
  }

  function show(given) {
    choices = controls.map(({ options }, k) => clamp(Math.round(given[k]) || 0, 0, options.length - 1));
    state.tell({ choices });
    live.ask();
  }

  const lastWord = () => controls.map(({ options }, k) => options[choices[k]]).find((option) => option.last)?.last;

  function draw() {
    const [first, second = 0] = choices, { pieces, same, moved: share, written: [was, is] = [], bits: [before, after] } = (live.live && found) || model.get("results")[first][second];
    const reach = moved ? 1 : Math.max(...before, ...after), names = controls.map(({ name, options }, k) => `${name}: ${label(options[choices[k]])}`);
    pickers.forEach((put, k) => put(choices[k]));
    rows.replaceChildren();
    pieces.forEach((piece, t) => {
      const line = make(rows, "div");
      make(line, "span", { class: "ins-note" }, t);
      make(line, "b", {}, bare(piece));
      const bars = make(line, "span", { class: "cha-bars", "aria-hidden": "true" });
      const bar = (share, colour, hollow) => make(bars, "i", { style: `--w: ${100 * share}%; --b: ${hollow ? "none" : `var(--${colour})`}; --e: var(--${colour})` });
      if (moved) {
        if (share[t] > MOVES) bar(share[t], t < same ? "wrapped" : "result");
        make(line, "span", {}, t < share.length ? percent(share[t] > MOVES ? share[t] : 0) : "");
      } else if (!t) make(line, "span", { class: "ins-note cha-first" }, "not predicted");
      else {
        bar(before[t - 1] / reach, "ink", true);
        bar(after[t - 1] / reach, "ink");
        const [old, bits] = [before, after].map((values) => values[t - 1].toFixed(1));
        make(line, "span", Number(bits) > Number(old) ? { class: "cha-more" } : {}, `${old} → ${bits}`);
      }
    });
    const average = (values) => values.reduce((a, b) => a + b, 0) / values.length, many = share.filter((x) => x > MOVES).length;
    const last = lastWord(), how = last && last !== ownWord() ? ` when “${ownWord()}” became “${last}”; the last by ${percent(share.at(-1))}.` : ": no word is changed.";
    const sentence = moved ? `${many} of ${share.length} predictions moved${how}`
      : `Mean: ${average(after).toFixed(2)} bits a token; as trained, ${average(before).toFixed(2)}.`;
    writes.textContent = is === undefined ? "" : `The next prediction moves by ${percent(share.at(-1))}. Taking the likeliest token each time, ${model.get("name")} writes ${quoted(is)}; as trained, ${quoted(was)}.`;
    live.say(says, sentence);
    speak(el, live.spoken(`${names.join(", ")}. ${sentence}`).replaceAll(" %", " percent"));
    Object.assign(host.dataset, { choices: JSON.stringify(choices), pieces: JSON.stringify(pieces), moved: JSON.stringify(share), bits: JSON.stringify([before, after]), written: JSON.stringify([was, is]) });
    more(pieces.length);
  }

  again.addEventListener("click", () => {
    live.sentence.value = model.get("text");
    state.restart();
  });
  state.restart();
}

export default { render };
