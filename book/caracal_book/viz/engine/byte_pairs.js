// Byte-pair encoding as `caracal_min.data.byte_pairs` has it: ids 0 to 255 are bytes, the next ones the merges by rank,
// the last one the end of text.  `bytes` is the byte of each of the first 256 ids, `merges` two ids for each of the next.

const WORDS = new RegExp("'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+"
  + "|\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+", "gu");

class BytePairs {
  constructor({ bytes, merges }) {
    this.ids = new Uint16Array(256);
    bytes.forEach((byte, id) => { this.ids[byte] = id; });
    this.tokens = bytes.map((byte) => [byte]);
    this.merged = new Map();                        // the id of a pair; the lower, the earlier it is merged
    for (let k = 0; k < merges.length; k += 2) {
      this.merged.set(merges[k] * 65536 + merges[k + 1], this.tokens.length);
      this.tokens.push([...this.tokens[merges[k]], ...this.tokens[merges[k + 1]]]);
    }
    this.endOfText = this.tokens.length;
    this.tokens.push([...new TextEncoder().encode("<|endoftext|>")]);
  }

  encode(text) { return (text.match(WORDS) ?? []).flatMap((word) => this.merge(word)); }

  // Of the pairs of neighbours in a word the earliest merge is made, the leftmost first, until there is none.
  merge(word) {
    const ids = Array.from(new TextEncoder().encode(word), (byte) => this.ids[byte]);
    for (;;) {
      let first = Infinity, place = 0;
      for (let k = 0; k + 1 < ids.length; k++) {
        const id = this.merged.get(ids[k] * 65536 + ids[k + 1]) ?? Infinity;
        if (id < first) [first, place] = [id, k];
      }
      if (first === Infinity) return ids;
      ids.splice(place, 2, first);
    }
  }

  // The text of some ids; bytes that are no whole character become U+FFFD.
  decode(ids) {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(ids.flatMap((id) => this.tokens[id])));
  }

  // A function to be called with one id after the other: what each adds to the text, in whole characters.
  reader() {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return (id) => decoder.decode(Uint8Array.from(this.tokens[id]), { stream: true });
  }
}
