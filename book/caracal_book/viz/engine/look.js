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
// differ from those of the other at each token, as half the sum of |p - p'|.
function* compare(model, words, takes) {
  const size = model.weight("embedding.weight").length / model.width, p = [];
  for (const [k, { ids, edit }] of takes.entries()) {
    const logits = yield* model.logits(yield* model.read(model.start(yield* edited(model, words, edit)), ids));
    p[k] = ids.map((_, t) => softmax(logits.subarray(t * size, (t + 1) * size), 1));
    yield;
  }
  const both = Math.min(...p.map((rows) => rows.length)), differs = takes[0].ids.findIndex((id, t) => t < both && id !== takes[1].ids[t]);
  return { same: differs < 0 ? both : differs,
    moved: Array.from({ length: both }, (_, t) => p[0][t].reduce((sum, x, id) => sum + Math.abs(x - p[1][t][id]) / 2, 0)),
    bits: takes.map(({ ids }, k) => ids.slice(1).map((id, t) => -Math.log2(p[k][t][id]))) };
}

// An edit with the mean gates of its texts; those of a text are computed once, and beyond its end they are 0.
function* edited(model, words, { texts, ...edit }) {
  if (!texts) return edit;
  const names = model.attends.flatMap((attends, i) => (attends ? [] : [`blocks.${i}.mixer`]));
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
