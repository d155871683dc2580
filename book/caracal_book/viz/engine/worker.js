// The engine behind messages, in a worker or, where a page may have none, on the page's own thread in slices.
//
// In:  { kind: "open", manifest }                        what `caracal_min.export.web_scripts` says of a model
//      { kind: "part", index, data }                     the base64 of one of its parts
//      { kind: "run", id, text | ids, count, sampling, shown, gates, ends }   read a text, then draw `count` ids that
//                                                        continue it; `gates` cuts gates from there on (null: none; left
//                                                        out: as the manifest says); a text ends at its end unless `ends` is false
//      { kind: "look", id, text | ids, shown, wanted }   why the `shown` likeliest ids are likely; gates of channels
//      { kind: "compare", id, takes, count }             two texts or ids, each with an edit of look.js, and how many
//                                                        tokens are to be written after each
//      { kind: "stop" }
// Out: { kind: "part", index }, { kind: "ready" }        when its numbers are in place, and when all are
//      { kind: "read", id, ids, pieces, next, ms, sizes }   the text by ids, the `shown` likeliest ids after it, and how large
//                                                        the results of the last Fourier layer are, by token
//      { kind: "token", id, drawn, piece, next, ms, size }   an id drawn, and what may follow it
//      { kind: "trace", id, ids, pieces, gates, heads, next }   what `look` returns
//      { kind: "comparison", id, ids, pieces, same, written, moved, bits }   of `compare`; ids and pieces are those of the second text
//      { kind: "done", id, ended }, { kind: "failed", id | index, why }
// A run is `ended` where the end of text was drawn, which is no part of it.  The newest run ends the one before
// it, of which nothing more is heard.

const SLICE = 10;            // milliseconds on the page's thread between two pauses
const SPREAD = 0x9E3779B9;   // a seed and a position decide a draw: in one run or in several, the text is the same

function serve(post) {
  let tensors = new Map(), manifest = null, missing = null, model = null, words = null, text = null, sizes = [], current = 0;
  const channel = new MessageChannel(), waiting = [];
  channel.port1.onmessage = () => waiting.shift()();
  const pause = () => new Promise((go) => { waiting.push(go); channel.port2.postMessage(0); });

  // Run a generator to its end, pausing so that the page, or a newer message, is heard; null if a newer run came.
  async function finish(steps, run) {
    for (let rest = performance.now() + SLICE; ;) {
      const { done, value } = steps.next();
      if (done) return value;
      if (performance.now() < rest) continue;
      await pause();
      if (run !== current) return null;
      rest = performance.now() + SLICE;
    }
  }

  const next = ({ shown = 0, sampling = {} }) => likeliest(text.last, shown, sampling.temperature)
    .map(({ id, p }) => ({ id, p, piece: words.decode([id]) }));

  function idsOf({ ids, text: given }) {
    const found = ids ?? words.encode(given);
    if (!found.length) throw new Error("there is no text to read");
    return found;
  }

  // Answer with what a generator returns, unless a newer run came.
  async function answer(kind, id, steps, ids) {
    const found = await finish(steps, ++current);
    if (found) post({ kind, id, ids, pieces: ids.map(words.reader()), ...found });
  }

  async function run(request) {
    const { id, count = 0, sampling = {}, gates = manifest.config.gate_length, ends = true } = request, mine = ++current;
    let ids = idsOf(request), began = performance.now();
    if (gates !== model.config.gate_length) {
      model = new Model({ ...manifest.config, gate_length: gates }, tensors);
      [text, sizes] = [model.start(), []];
    }
    const results = `blocks.${model.attends.lastIndexOf(false)}.mixer.mixed`;
    const note = (name, values) => {
      if (name === results) sizes.splice(ids.length - values.length / model.width, Infinity, ...rootMeanSquares(values, model.width));
    };
    const read = words.reader();
    const spent = () => { const from = began; began = performance.now(); return began - from; };
    if (await finish(model.read(text, ids, note), mine) === null) return;
    post({ kind: "read", id, ids, pieces: ids.map(read), next: next(request), ms: spent(), sizes });
    for (let k = 0; k < count; k++) {
      const drawn = draw(text.last, sampling, seeded((sampling.seed ?? 0) + SPREAD * ids.length));
      if (ends && drawn === words.endOfText) return post({ kind: "done", id, ended: true });
      ids = [...ids, drawn];
      if (await finish(model.read(text, ids, note), mine) === null) return;
      post({ kind: "token", id, drawn, piece: read(drawn), next: next(request), ms: spent(), size: sizes.at(-1) });
      await pause();
      if (mine !== current) return;
    }
    post({ kind: "done", id });
  }

  const kinds = {
    open: ({ manifest: given }) => {
      manifest = given;
      tensors = room(manifest);
      missing = new Set(manifest.parts.keys());
    },
    part: async ({ index, data }) => {
      await place(manifest, index, data, tensors);
      missing.delete(index);
      post({ kind: "part", index });
      if (missing.size) return;
      words = new BytePairs(manifest.tokenizer);
      model = new Model(manifest.config, tensors);
      text = model.start();
      post({ kind: "ready" });
    },
    run,
    look: async ({ id, shown, wanted, ...request }) => {
      const ids = idsOf(request);
      await answer("trace", id, look(model, words, ids, shown, wanted), ids);
    },
    compare: async ({ id, takes, count }) => {
      const read = takes.map((take) => ({ ids: idsOf(take), edit: take.edit ?? {} }));
      await answer("comparison", id, compare(model, words, read, count), read[1].ids);
    },
    stop: () => { current += 1; },
  };
  return async (message) => {
    try {
      await kinds[message.kind](message);
    } catch (error) {
      post({ kind: "failed", id: message.id, index: message.index, why: error.message });
    }
  };
}
