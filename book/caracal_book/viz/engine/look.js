// What a model makes of a text, as `caracal_book.viz.trace` computes it: why tokens are likely, and what an edit changes.

const UNITS = 4;             // channels or heads of a layer that are told

// The sums that make up the scores of the `shown` likeliest tokens after a text, and gates: `wanted` has pairs of a layer
// and its channels.
function* look(model, words, ids, shown, wanted = []) {
  const { width, config } = model, heard = new Map(), text = model.start();
  yield* model.read(text, ids, (name, values) => heard.set(name, values));
  const last = (name) => heard.get(name).subarray(-width), embedding = model.weight("embedding.weight");
  const parts = [heard.has("positions") ? add(last("embedding"), last("positions")) : last("embedding")];
  for (let i = 0; i < config.n_layers; i++) parts.push(last(`blocks.${i}.mixer`), last(`blocks.${i}.mlp`));
  const x = parts.reduce(add), average = mean(x);
  const scale = 1 / Math.sqrt(mean(x.map((value) => (value - average) ** 2)) + EPSILON);
  const [gamma, beta] = [model.weight("norm.weight"), model.weight("norm.bias")], level = mean(text.last);
  const middle = model.middle ??= Float32Array.from({ length: width }, (_, c) => {
    let sum = 0;
    for (let k = c; k < embedding.length; k += width) sum += embedding[k];
    return sum * width / embedding.length;
  });
  const layers = model.attends.map((attends, i) => (attends ? heads : channels)(model, `blocks.${i}.mixer`, heard));
  const next = likeliest(text.last, shown).map(({ id, p }) => {
    const direction = middle.map((value, c) => embedding[id * width + c] - value), a = times(direction, gamma);
    const off = mean(a);
    a.forEach((value, c) => { a[c] = (value - off) * scale; });
    return { id, p, piece: words.decode([id]), logit: text.last[id] - level, parts: parts.map((part) => dot(a, part)),
      rest: dot(direction, beta), layers: layers.map((layer, i) => termsOf(model, `blocks.${i}.mixer`, a, layer)) };
  });
  const gates = wanted.map(([i, names]) => names.map((name) => gateOf(layers[i], name, width)));
  return { gates, heads: layers.map(({ matrices }) => matrices ?? null), next };
}

// Two readings of texts, each { ids, edit }: what every token cost in bits, and by how much the predictions of one
// differ from those of the other at each token, as half the sum of |p - p'|; and the likeliest `count` tokens after each.
// The first is kept for the next time.
function* compare(model, words, takes, count = 0) {
  const first = JSON.stringify([takes[0], count]);
  if (model.first !== first) Object.assign(model, { reading: yield* reading(model, words, takes[0], count), first });
  const readings = [model.reading, yield* reading(model, words, takes[1], count)];
  const [one, other] = readings, both = Math.min(one.ids.length, other.ids.length), differs = one.ids.findIndex((id, t) => t < both && id !== other.ids[t]);
  return { same: differs < 0 ? both : differs, written: readings.map(({ written }) => written),
    moved: Array.from({ length: both }, (_, t) => one.p[t].reduce((sum, x, id) => sum + Math.abs(x - other.p[t][id]) / 2, 0)),
    bits: readings.map(({ ids, p }) => ids.slice(1).map((id, t) => -Math.log2(p[t][id]))) };
}

function* reading(model, words, { ids, edit }, count) {
  const text = model.start(yield* edited(model, words, edit)), logits = yield* model.logits(yield* model.read(text, ids));
  const size = logits.length / ids.length, p = ids.map((_, t) => softmax(logits.subarray(t * size, (t + 1) * size), 1));
  yield;
  while (text.seen.length < ids.length + count) yield* model.append(text, [draw(text.last, { temperature: 0 })]);
  return { ids, p, written: words.decode(text.seen.slice(ids.length)) };
}

// An edit of model.js with its `gates`: from `texts`, the mean of theirs, which are computed once for each and are 0 beyond
// its end; or from `weights`, so many of the mean gate of training text, and one constant for later lags.
function* edited(model, words, { texts, weights, ...edit }) {
  const names = model.attends.flatMap((attends, i) => (attends ? [] : [`blocks.${i}.mixer`]));
  if (weights) return { ...edit, gates: new Map(names.map((name) => [name, weightsAndSum(model, `${name}.mean_gate`, weights)])) };
  if (!texts) return edit;
  const known = model.gatesOf ??= new Map(), sums = new Map(names.map((name) => [name, new Float32Array(0)]));
  for (const text of texts) {
    if (!known.has(text)) {
      const heard = new Map();
      yield* model.read(model.start(), words.encode(text), (name, values) => heard.set(name, values));
      known.set(text, new Map(names.map((name) => [name, channels(model, name, heard).g])));
    }
    for (const [name, g] of known.get(text)) {
      const before = sums.get(name), sum = new Float32Array(Math.max(before.length, g.length));
      sum.set(before);
      g.forEach((value, k) => { sum[k] += value / texts.length; });
      sums.set(name, sum);
    }
  }
  return { ...edit, gates: sums };
}

// Gates, a row for each lag, from mean gates, a row for each channel, whose last number stands for all later lags.
function weightsAndSum({ width, config, tensors }, name, weights) {
  const means = tensors.get(name), held = means.length / width, length = config.max_positions, g = new Float32Array(length * width);
  for (let c = 0; c < width; c++) {
    const m = Float64Array.from({ length }, (_, k) => means[c * held + Math.min(k, held - 1)]), constant = mean(m.subarray(weights));
    for (let k = 0; k < length; k++) g[k * width + c] = k < weights ? m[k] : constant;
  }
  return g;
}

const mean = (x) => x.reduce((sum, value) => sum + value, 0) / x.length;

function dot(x, y) {
  let sum = 0;
  for (let c = 0; c < x.length; c++) sum += x[c] * y[c];
  return sum;
}

// What a Fourier layer made of the tokens: contents and gates, a row for each.
function channels({ width, config }, name, heard) {
  const v = heard.get(`${name}.to_value`), g = new Float32Array(v.length);
  g.set(heard.get(`${name}.${config.gate === "two_stage" ? "gate_mix" : "to_gate"}`));
  return { v, g, tokens: v.length / width };
}

// What an attention layer did: contents, and the matrix of each head.
function heads({ width, config }, name, heard) {
  const stacked = heard.get(`${name}.to_qkv`), tokens = stacked.length / width / 3, v = new Float32Array(tokens * width);
  for (let t = 0; t < tokens; t++) v.set(stacked.subarray((3 * t + 2) * width, 3 * (t + 1) * width), t * width);
  const { n_heads, window_size } = config, weights = heard.get(`${name}.weights`);
  const matrices = Array.from({ length: n_heads }, (_, head) => Array.from({ length: tokens }, (_, t) =>
    Array.from({ length: tokens }, (_, j) =>
      (j > t || t - j >= window_size ? 0 : weights[(t * n_heads + head) * window_size + t - j]))));
  return { v, matrices, tokens };
}

// The parts of tokens, and of the units whose parts are largest, of what a mixer adds along a direction.
function termsOf(model, layer, a, { v, g, matrices, tokens }) {
  const { width } = model, out = model.weight(`${layer}.to_out.weight`), q = new Float32Array(width);
  for (let o = 0; o < width; o++) for (let c = 0; c < width; c++) q[c] += out[o * width + c] * a[o];
  const size = matrices ? width / matrices.length : 1, terms = Array(tokens).fill(0), units = [];
  for (let name = 0; name < width / size; name++) {
    const content = [], scale = matrices ? 1 : q[name];
    let whole = 0;
    for (let j = 0; j < tokens; j++) {
      content[j] = matrices ? 0 : v[j * width + name];
      if (matrices) for (let c = name * size; c < (name + 1) * size; c++) content[j] += q[c] * v[j * width + c];
      const part = scale * content[j] * (matrices ? matrices[name][tokens - 1][j] : g[(tokens - 1 - j) * width + name]);
      terms[j] += part;
      whole += part;
    }
    units.push({ name, scale, content, whole });
  }
  units.sort((one, other) => Math.abs(other.whole) - Math.abs(one.whole));
  return { terms, units: units.slice(0, UNITS).map(({ name, scale, content }) => ({ name, scale, content,
    ...(matrices ? {} : { gate: gateOf({ g, tokens }, name, width) }) })) };
}

const gateOf = ({ g, tokens }, name, width) => Array.from({ length: tokens }, (_, i) => g[i * width + name]);
