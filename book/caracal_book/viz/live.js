// A Python function behind controls.  On a page, where no Python runs, it shows what the function gave beforehand; in
// a kernel it asks for every new choice, so that a function that was edited answers.
// model: controls ({name, kind: "slider", "choice" or "text", options: what each says}), values (for each control the
// number of an option, or a text of the reader's own), answer ({values, parts}: what the function gave for them; a part
// is {text}, {image, alt, width, height}, {bars: [name, number] pairs} or {error}), frames (what it gave for every choice, each once, and
// null in a kernel), places (for every choice the number of its frame; the last control counts fastest), paints (pairs
// of colours: one of the light palette, in which plots are drawn on white, and the same of the dark one).

const rgb = (colour) => [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));

// Paint an image that is drawn on white in the colours of `paints`, more or less opaque, in those of the dark palette on
// nothing: of all of them the one that comes closest at some opacity.
export function darken(pixels, paints) {
  const words = new Uint32Array(pixels.buffer), known = new Map();
  const inks = paints.map(([light, dark]) => ({ lack: rgb(light).map((c) => 255 - c), dark: rgb(dark) }));
  const dot = (a, b) => a.reduce((sum, x, k) => sum + x * b[k], 0);
  words.forEach((word, at) => {
    if (!known.has(word)) {
      const lack = [0, 1, 2].map((k) => 255 - pixels[4 * at + k]);
      const found = inks.map((ink) => {
        const opacity = Math.min(1, dot(lack, ink.lack) / dot(ink.lack, ink.lack));
        return { dark: ink.dark, opacity, miss: peak(lack.map((x, k) => x - opacity * ink.lack[k])) };
      });
      const { dark, opacity } = found.reduce((best, next) => (next.miss < best.miss ? next : best));
      known.set(word, new Uint32Array(new Uint8Array([...dark, Math.round(255 * opacity)]).buffer)[0]);
    }
    words[at] = known.get(word);
  });
}

export function render({ model, el }) {
  const controls = model.get("controls"), frames = model.get("frames");
  const state = inStep(model, ["values"], show);
  let values, reach = frames ? Math.max(0, ...frames.map(tallest)) : 0;

  const host = begin(el, frames
    ? "Here it shows what Python computed beforehand. In a notebook it asks Python, which runs your own code."
    : "Every change runs the Python function again, with what you made of it.");
  quote(el);
  const set = make(el, "div", { class: "live-set" });
  const inputs = controls.map((control, k) => (control.kind === "slider" ? sliderOf : control.kind === "choice" || frames ? choiceOf : textOf)(control, k));
  const answer = make(el, "div", { class: "live-answer", "aria-live": "off" });
  if (frames) el.append(el.querySelector(".caracal-help"));   // first the figure, then what a notebook would do

  function sliderOf({ name, options }, k) {
    const { caption, slider } = slide(set, {}, 0, options.length - 1);
    slider.addEventListener("input", () => choose(k, Number(slider.value)));
    return (value) => {
      slider.value = value;
      slider.setAttribute("aria-valuetext", options[value]);
      caption.textContent = `${name} = ${options[value]}`;
    };
  }
  function choiceOf({ name, options }, k) {
    const select = make(make(set, "label", roomy(options), name), "select");
    options.forEach((option, number) => make(select, "option", { value: number }, option));
    select.addEventListener("change", () => choose(k, Number(select.value)));
    return (value) => { select.value = value; };
  }
  // A line of its own for texts that a part of the width would cut.
  function roomy(options) { return { class: options.some((option) => option.length > 24) ? "live-long" : "" }; }
  // The reader's own text: it counts when it is finished, by Enter or by leaving the box.
  function textOf({ name, options }, k) {
    const id = `live-${Math.random().toString(36).slice(2)}`, list = make(set, "datalist", { id });
    for (const option of options) make(list, "option", { value: option });
    const box = make(make(set, "label", roomy(options), name), "input", { type: "text", list: id, spellcheck: "false", autocomplete: "off" });
    box.addEventListener("change", () => { const known = options.indexOf(box.value); choose(k, known < 0 ? box.value : known); });
    return (value) => { box.value = typeof value === "string" ? value : options[value]; };
  }

  function choose(k, value) { show({ values: values.map((old, place) => (place === k ? value : old)) }); }
  function show(given) {
    values = controls.map(({ kind, options }, k) => {
      const value = given.values[k], own = kind === "text" && !frames && typeof value === "string";
      return own ? value : clamp(Math.round(value) || 0, 0, options.length - 1);
    });
    inputs.forEach((put, k) => put(values[k]));
    state.tell({ values });
    host.dataset.values = JSON.stringify(values);
    if (frames) {
      const place = controls.reduce((count, { options }, k) => count * options.length + values[k], 0);
      draw(frames[model.get("places")[place]]);
    } else hear();
  }
  // An answer to a choice that was made before the last one is not drawn: the next one is on its way.
  function hear() {
    const { values: asked, parts } = model.get("answer"), waits = JSON.stringify(asked) !== JSON.stringify(values);
    answer.setAttribute("aria-busy", waits);
    if (!waits) draw(parts);
  }
  function tallest(parts) {
    return Math.max(0, ...parts.flatMap(({ bars = [] }) => bars.map(([, number]) => Math.abs(number))));
  }
  function draw(parts) {
    reach = Math.max(reach, tallest(parts)) || 1;
    answer.replaceChildren();
    for (const { text, error, image, alt, width, height, bars } of parts) {
      if (image !== undefined) plot(image, alt, width, height);
      else if (bars) chart(bars);
      else make(answer, "pre", error === undefined ? {} : { class: "live-error" }, text ?? error);
    }
    host.dataset.answer = JSON.stringify(parts.map(({ image, ...rest }) => rest));
    speak(el, `${inWords(parts)}.`);
  }
  // Both are there, and the theme shows one.
  function plot(src, alt, width, height) {
    const light = make(answer, "img", { class: "live-plot dark-light", src, alt, width, height });
    const dark = make(answer, "canvas", { class: "live-plot", role: "img", "aria-label": alt, style: `width: ${width}px` });
    light.addEventListener("load", () => {
      Object.assign(dark, { width: light.naturalWidth, height: light.naturalHeight });
      const board = dark.getContext("2d");
      board.drawImage(light, 0, 0);
      const drawn = board.getImageData(0, 0, dark.width, dark.height);
      darken(drawn.data, model.get("paints"));
      board.putImageData(drawn, 0, 0);
    });
  }
  // What is chosen and what came of it, short enough to be heard again and again.
  function inWords([{ text, error, bars } = {}]) {
    const chosen = controls.map(({ name, options }, k) => `${name} ${typeof values[k] === "string" ? values[k] : options[values[k]]}`);
    const longest = bars && bars.reduce((most, bar) => (Math.abs(bar[1]) > Math.abs(most[1]) ? bar : most), bars[0]);
    const came = bars ? `${bars.length} bars, the longest ${longest?.[0]}` : text ?? error ?? "a new plot";
    return `${chosen.join(", ")}: ${came}`.replace(/\s+/g, " ").slice(0, 150).replace(/[.\s]+$/, "");
  }
  function chart(bars) {
    const grid = make(answer, "div", { class: "live-bars" }), digits = reach < 0.095 ? 4 : reach < 9.5 ? 2 : 1;
    for (const [name, number] of bars) {
      make(grid, "b", {}, name);
      make(grid, "i", { style: `--w: ${(100 * Math.abs(number)) / reach}%`, class: number < 0 ? "below" : "", "aria-hidden": "true" });
      make(grid, "span", {}, said(number, digits));
    }
  }

  if (!frames) model.on("change:answer", hear);
  state.restart();
}

export default { render };
