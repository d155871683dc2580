// Why a model finds a token likely: the parts of its logit by block, those of a mixer by token and by channel or head,
// and one product with its numbers.  First a recording; once the weights are loaded, the reader's own sentence.
// model: name, text, folder, digest, bytes (as continuation.js), trace (of `caracal_book.viz.trace`), and what is chosen:
// candidate, layer, unit (0: all of them), lag (of the token, from the last one).

export function render({ model, el }) {
  const state = inStep(model, ["candidate", "layer", "unit", "lag"], show);
  let trace = model.get("trace"), chosen = null, told = null;
  const host = begin(el, "Why this token? Choose a block, then a channel and a token that add to its logit; or another candidate.");
  quote(el);
  const live = new Live(model, host, {
    question: (text) => ({ kind: "look", text, shown: trace.next.length }),
    answer: (message) => {
      trace = message;
      live.sentence.value = trace.pieces.join("");  // the same, unless ids were given
      choose({ ...chosen, candidate: 0, lag: 0 });
    },
    update: () => draw(),
  });
  live.box(el);
  const text = make(el, "div", { class: "ins-text", role: "group", "aria-label": "the text, token by token" });
  const panels = make(el, "div", { class: "why-panels" });
  const panel = () => { const section = make(panels, "section"); return [section, make(section, "p", { class: "why-title" })]; };
  const [first, firstHead] = panel(), [second, secondHead] = panel(), [third, thirdHead] = panel(), [fourth, fourthHead] = panel();
  firstHead.textContent = "1. Likeliest next tokens (temperature 1)";
  const next = make(first, "div", { class: "why-next", role: "group", "aria-label": "likeliest next tokens" });
  const candidates = all(trace.next.length, (k) => {
    const button = make(next, "button", { type: "button" });
    button.addEventListener("click", () => show({ ...chosen, candidate: k }));
    return { button, word: make(button, "b"), bar: make(button, "i", { class: "why-bar", "aria-hidden": "true" }), share: make(button, "u") };
  });
  const buttons = make(first, "div", { class: "ins-buttons" });
  const onward = make(buttons, "button", { type: "button" }), again = make(buttons, "button", { type: "button" }, "Start again");
  live.button(buttons);
  const layers = make(second, "div", { class: "why-layers" });
  for (const title of ["block", "mixer", "MLP"]) make(layers, "span", { class: "ins-note" }, title);
  const sums = all(trace.next[0].parts.length, (k) => {
    if (k === 0) make(layers, "span", {}, "");
    else if (k % 2) make(layers, "span", {}, `${(k - 1) / 2} ${trace.heads[(k - 1) / 2] ? "A" : "F"}`);
    const cell = make(layers, k % 2 ? "button" : "div", k % 2 ? { type: "button" } : {});
    if (k % 2) cell.addEventListener("click", () => show({ ...chosen, layer: (k - 1) / 2, unit: 1 }));
    const one = { cell, bar: make(cell, "i", { class: "why-bar", "aria-hidden": "true" }), value: make(cell, "span") };
    if (k === 0) {
      const cell = make(layers, "div"), bar = make(cell, "i", { class: "why-bar", "aria-hidden": "true" });
      one.rest = { bar, value: make(cell, "span") };
    }
    return one;
  });
  make(second, "p", { class: "caracal-help" }, "F: Fourier module, A: attention. Top row: the token itself, and what every text gets. Hollow: negative. MLPs read only the last token and are not taken apart.");
  const units = picker(third, "part", (k) => show({ ...chosen, unit: k }));
  const terms = make(third, "div", { class: "why-terms", "aria-live": "off", tabindex: 0, role: "group", "aria-label": "parts by token" });
  const more = scrolls(third, terms);
  const { caption, slider } = slide(third, {}, 0, 1);
  const matrix = matrixOf(fourth, (t, j) => { if (t === trace.pieces.length - 1) show({ ...chosen, lag: t - j }); });
  make(fourth, "p", { class: "caracal-help" }, "Choose an entry of the last row: only that row adds to this logit.");
  const says = make(fourth, "p", { class: "why-says", "aria-live": "off" });

  live.of.push(text, panels);

  function choose(given) {
    const candidate = clamp(Math.round(given.candidate) || 0, 0, trace.next.length - 1), layer = clamp(Math.round(given.layer) || 0, 0, trace.heads.length - 1);
    chosen = { candidate, layer, unit: clamp(Math.round(given.unit) || 0, 0, of(candidate, layer).units.length),
      lag: clamp(Math.round(given.lag) || 0, 0, trace.pieces.length - 1) };
    state.tell(chosen);
  }
  function show(given) {
    choose(given);
    draw();
  }

  const of = (candidate, layer) => trace.next[candidate].layers[layer];
  const bar = (node, value, reach, low = 0) => {
    const zero = -low / (reach - low), share = value / (reach - low);
    for (const [key, x] of [["x", `${100 * (zero + Math.min(0, share))}%`], ["w", `${100 * Math.abs(share)}%`], ["b", value < 0 ? "none" : "var(--ink)"]]) node.style.setProperty(`--${key}`, x);
  };

  function draw() {
    const { pieces, heads } = trace, { candidate, layer, unit, lag } = chosen, best = trace.next[candidate];
    const attends = heads[layer], layerTerms = best.layers[layer], t = pieces.length - 1, token = t - lag;
    const one = layerTerms.units[Math.max(0, unit - 1)], kind = attends ? "head" : "channel", row = attends?.[one.name] ?? [];
    const weightOf = (j) => (attends ? row[t][j] : one.gate[t - j]);
    chips(text, pieces, (k) => [k === token && "ins-content", !attends && k === lag && "ins-gate", k === t && "ins-result"].filter(Boolean).join(" "));
    candidates.forEach(({ button, word: label, bar: drawn, share }, k) => {
      label.textContent = word(trace.next[k].piece);
      share.textContent = percent(trace.next[k].p);
      bar(drawn, trace.next[k].p, 1);
      button.setAttribute("aria-pressed", k === candidate);
    });
    secondHead.textContent = `2. The logit of ${quoted(best.piece)} is ${said(best.logit, 1)} above the average`;
    const [reach, low] = [Math.max(...best.parts, best.rest), Math.min(0, ...best.parts, best.rest)];
    sums.forEach(({ cell, bar: drawn, value, rest }, k) => {
      bar(drawn, best.parts[k], reach, low);
      value.textContent = signed(best.parts[k]);
      if (k % 2) {
        cell.setAttribute("aria-pressed", (k - 1) / 2 === layer);
        cell.setAttribute("aria-label", `block ${(k - 1) / 2}, ${heads[(k - 1) / 2] ? "attention" : "Fourier module"}: ${signed(best.parts[k])}`);
      }
      if (!rest) return;
      bar(rest.bar, best.rest, reach, low);
      rest.value.textContent = signed(best.rest);
    });
    thirdHead.textContent = `3. Block ${layer}, ${attends ? "attention" : "Fourier module"}: ${signed(best.parts[2 * layer + 1])} is a sum over tokens`;
    units(["all", ...layerTerms.units.map(({ name }) => `${kind} ${name}`)], unit);
    const values = unit ? one.content.map((v, j) => one.scale * v * weightOf(j)) : layerTerms.terms;
    const [most, least] = [Math.max(1e-12, ...values), Math.min(0, ...values)];
    terms.replaceChildren();
    const head = make(terms, "div", { class: "why-head" });
    for (const label of ["j", "", unit ? "v" : "", unit ? (attends ? "weight" : "g") : "", "", "adds"]) make(head, "span", {}, label);
    values.forEach((value, j) => {
      const line = make(terms, "div", j === token ? { class: "why-here" } : {});
      make(line, "span", { class: "ins-note" }, j);
      make(line, "b", {}, bare(pieces[j]));
      make(line, "span", { class: "why-v" }, unit ? said(one.content[j]) : "");
      make(line, "span", {}, unit ? said(weightOf(j)) : "");
      bar(make(line, "i", { class: "why-bar", "aria-hidden": "true" }), value, most, least);
      make(line, "span", {}, signed(value));
      line.addEventListener("click", () => show({ ...chosen, lag: t - j }));
    });
    slider.max = t;
    slider.value = lag;
    slider.setAttribute("aria-valuetext", `${lag}, token ${token}, ${bare(pieces[token])}`);
    caption.textContent = `${lag} tokens back: j = ${token}, ${quoted(pieces[token])}`;
    fourthHead.textContent = attends ? `4. The weights of head ${one.name}` : `4. The weights of channel ${one.name}: every diagonal is one gate`;
    const rows = attends ? row : matrices(one.gate);
    matrix(rows, pieces, attends ? "other-1" : "gate", t, token);
    const whole = values.reduce((a, b) => a + b, 0), product = unit && !attends
      ? `${quoted(pieces[token])} (${token}) has the content ${said(one.content[token])}, ${quoted(pieces[lag])} (${lag}) the gate ${fine(one.gate[lag])}. Their product ${fine(one.content[token] * one.gate[lag])}, times ${fine(one.scale)} (how channel ${one.name} counts for ${quoted(best.piece)}), adds ${signed(values[token])}.`
      : unit ? `Head ${one.name} gives ${quoted(pieces[token])} (${token}) the weight ${fine(weightOf(token))}, times ${said(one.content[token])}: it adds ${signed(values[token])}.`
        : `All ${kind}s together add ${signed(values[token])} from ${quoted(pieces[token])} (${token}).`;
    const mixers = best.parts.reduce((sum, part, k) => sum + (k % 2 ? part : 0), 0);
    live.say(says, `${product} ${unit ? `The ${kind} adds ${signed(whole)}, b` : "B"}lock ${layer}'s mixer adds ${signed(best.parts[2 * layer + 1])}, all mixers ${signed(mixers)} of ${said(best.logit, 1)}.`);
    onward.hidden = !live.live;
    onward.textContent = `Go on with ${quoted(best.piece)}`;
    speak(el, live.spoken(`${bare(best.piece)}, ${percent(best.p).replace("%", "percent").replace("<", "less than")}; block ${layer}, `
      + `${unit ? `${kind} ${one.name}` : `all ${kind}s`}: token ${token} adds ${signed(values[token])} of ${said(best.logit, 1)}.`));
    Object.assign(host.dataset, { ...chosen, values: JSON.stringify(values) });
    if (told !== trace) host.dataset.trace = JSON.stringify({ pieces, gates: trace.gates, heads, next: trace.next });
    told = trace;
    terms.scrollTop = terms.children[token + 1].offsetTop - terms.offsetTop - terms.clientHeight / 2;
    more(pieces.length);
  }

  // The matrix of one gate; of the same gate the same one, so that it is drawn once.
  const toeplitz = new WeakMap();
  function matrices(gate) {
    if (!toeplitz.has(gate)) toeplitz.set(gate, gate.map((_, t) => gate.slice(0, t + 1).reverse()));
    return toeplitz.get(gate);
  }

  slider.addEventListener("input", () => show({ ...chosen, lag: Number(slider.value) }));
  onward.addEventListener("click", () => {
    if (live.busy || live.trouble) return;
    live.ask({ ids: [...trace.ids, trace.next[chosen.candidate].id] });  // text would lose line ends and half characters
  });
  again.addEventListener("click", () => {
    live.sentence.value = model.get("text");
    state.restart();
    live.ask();
  });
  state.restart();
}

export default { render };
