// A Caracal: ids to logits.  Layers, tensors and intermediate results are named as in `caracal_min.model`; `note`, where
// it is given, hears every one of them with its name.
//
// A text may be read with an `edit` that changes the model, for a look at what it uses:
//   points    the convolution is cyclic, of so many points for each token, 1 or more: below 2 the end wraps around
//   ahead     attention sees as far ahead as back; with this, or with points, a text is read in one piece
//   off       mixers whose output is zeros
//   lags      gates from this lag on are 0
//   gates     for each layer's name other gates, in the place of the text's own

class Model {
  constructor(config, tensors) {
    const k = config.fourier_per_attention;
    Object.assign(this, { config, tensors, width: config.d_model });
    this.attends = Array.from({ length: config.n_layers }, (_, i) => k !== null && i % (k + 1) === k);
  }

  weight(name) { return this.tensors.get(name); }

  // What the layers keep of a text; `seen` are its ids.
  start(edit = {}) {
    const { width } = this;
    const layers = this.attends.map((attends) => (attends ? { edit, keys: new Rows(width), values: new Rows(width) }
      : { edit, inputs: new Rows(width), convolution: new CausalConvolution(width) }));
    return { seen: [], layers, last: null, whole: true };
  }

  // Make `text` hold these ids: what it has in common with them is kept, the rest is read anew.  Returns the hidden
  // states of what was read; `text.last` has the logits after the last id.  A reading that was given up is mended by
  // the next one.
  *read(text, ids, note = null) {
    let same = 0;
    while (same < Math.min(ids.length, text.seen.length) && ids[same] === text.seen[same]) same++;
    if (same === ids.length && same === text.seen.length && text.whole) return new Float32Array(0);
    same = Math.min(same, ids.length - 1);
    const mend = same < text.seen.length || !text.whole;
    text.whole = false;
    if (mend) yield* this.truncate(text, same);
    const hidden = yield* this.append(text, ids.slice(same), note);
    text.whole = true;
    return hidden;
  }

  *truncate(text, length) {
    text.seen.length = length;
    for (const { inputs, convolution, keys, values } of text.layers) {
      for (const rows of [inputs, keys, values]) if (rows) rows.length = length;
      if (convolution) yield* convolution.truncate(length);
    }
  }

  *append(text, ids, note = null) {
    const { width, config } = this, start = text.seen.length, embedding = this.weight("embedding.weight");
    let x = new Float32Array(ids.length * width);
    ids.forEach((id, t) => x.set(embedding.subarray(id * width, (id + 1) * width), t * width));
    const hear = (name, values) => { note?.(name, values); return values; };
    hear("embedding", x);
    if (config.positional_encoding === "learned") {
      const positions = this.weight("positions.weight").subarray(start * width, (start + ids.length) * width);
      x = add(x, hear("positions", positions));
    }
    for (const [i, kept] of text.layers.entries()) x = yield* this.block(`blocks.${i}`, x, kept, hear);
    text.seen.push(...ids);
    x = hear("norm", this.norm("norm", x));
    text.last = yield* product(x.subarray(x.length - width), embedding, width);
    return x;
  }

  // Logits of hidden states, a row each.
  logits(hidden) { return product(hidden, this.weight("embedding.weight"), this.width); }

  norm(name, x) { return layerNorm(x, this.weight(`${name}.weight`), this.weight(`${name}.bias`)); }

  linear(name, x, columns = this.width) {
    return product(x, this.weight(`${name}.weight`), columns, this.weight(`${name}.bias`));
  }

  *block(name, x, kept, hear) {
    const mixed = hear(`${name}.mixer_norm`, this.norm(`${name}.mixer_norm`, x));
    const mix = kept.keys ? this.attention : this.fourier, off = kept.edit.off?.includes(`${name}.mixer`);
    x = hear(`${name}.mixed`, add(x, off ? new Float32Array(x.length) : yield* mix.call(this, `${name}.mixer`, mixed, kept, hear)));
    const input = hear(`${name}.mlp_norm`, this.norm(`${name}.mlp_norm`, x));
    const value = hear(`${name}.mlp.to_value`, yield* this.linear(`${name}.mlp.to_value`, input));
    const gate = hear(`${name}.mlp.to_gate`, yield* this.linear(`${name}.mlp.to_gate`, input));
    const columns = this.weight(`${name}.mlp.to_out.weight`).length / this.width;
    const out = yield* this.linear(`${name}.mlp.to_out`, times(value, silu(gate)), columns);
    return hear(name, add(x, hear(`${name}.mlp`, out)));
  }

  *fourier(name, x, kept, hear) {
    const { width, config } = this, start = kept.inputs.length;
    kept.inputs.append(x);
    if (config.pre_conv) {
      const taps = this.weight(`${name}.pre_conv.weight`), first = Math.max(0, start - taps.length / width + 1);
      const before = kept.inputs.values.subarray(first * width, start * width);
      x = hear(`${name}.pre_conv`, shortConvolution(x, before, taps, width));
    }
    x = hear(`${name}.norm`, this.norm(`${name}.norm`, x));
    const v = hear(`${name}.to_value`, yield* this.linear(`${name}.to_value`, x));
    const gates = config.gate_length === null ? x.length : Math.max(0, config.gate_length - start) * width;
    let g = hear(`${name}.to_gate`, yield* this.linear(`${name}.to_gate`, x.subarray(0, gates)));
    if (config.gate === "two_stage") {
      const weight = this.weight(`${name}.gate_mix.weight`), bias = this.weight(`${name}.gate_mix.bias`);
      g = hear(`${name}.gate_mix`, mixHeads(silu(g), weight, bias, width, config.n_heads));
    }
    const all = new Float32Array(v.length), { points, gates: others, lags = Infinity } = kept.edit;
    const left = Math.max(0, Math.min(v.length, (lags - start) * width));
    all.set((others?.get(name).subarray(start * width) ?? g).subarray(0, left));
    const r = hear(`${name}.mixed`, points ? cyclicConvolution(v, all, width, points) : yield* kept.convolution.append(v, all));
    return hear(name, yield* this.linear(`${name}.to_out`, r));
  }

  *attention(name, x, kept, hear) {
    const { width, config } = this, start = kept.keys.length;
    const stacked = hear(`${name}.to_qkv`, yield* this.linear(`${name}.to_qkv`, x));
    const [q, k, v] = [0, 1, 2].map((part) => {
      const rows = new Float32Array(x.length);
      for (let t = 0; t < x.length; t += width) {
        rows.set(stacked.subarray(3 * t + part * width, 3 * t + (part + 1) * width), t);
      }
      return rows;
    });
    kept.keys.append(k);
    kept.values.append(v);
    const { y, weights } = attend(q, kept.keys, kept.values, start, config.n_heads, config.window_size, kept.edit.ahead);
    hear(`${name}.weights`, weights);
    hear(`${name}.mixed`, y);
    return hear(name, yield* this.linear(`${name}.to_out`, y));
  }
}
