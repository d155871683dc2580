// Weights as `caracal_min.export.web_scripts` writes them: bytes in parts, int8 with a float32 scale per row, or float32.

// Room for all tensors of a manifest, by name; where the share of a part begins is noted in it.
function room({ parts }) {
  const sizes = new Map();
  for (const tensor of parts.flatMap(({ tensors }) => tensors)) {
    tensor.size = tensor.shape.reduce((a, b) => a * b, 1);
    tensor.at = sizes.get(tensor.name) ?? 0;
    sizes.set(tensor.name, tensor.at + tensor.size);
  }
  return new Map([...sizes].map(([name, size]) => [name, new Float32Array(size)]));
}

// Check the bytes of a part and write its numbers into their place.
async function place({ parts }, index, data, tensors) {
  const bytes = decodeBase64(data), { sha256, tensors: described } = parts[index];
  if (globalThis.crypto?.subtle) {
    const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    const hex = Array.from(sum, (byte) => byte.toString(16).padStart(2, "0")).join("");
    if (hex !== sha256) throw new Error("it is damaged, or of another model");
  }
  const floats = (from, count) => new Float32Array(bytes.buffer.slice(from, from + 4 * count));
  let from = 0;
  for (const { name, shape, rows, size, at } of described) {
    const values = tensors.get(name).subarray(at, at + size);
    if (rows) {
      const scales = floats(from, shape[0]), columns = size / shape[0];
      const whole = new Int8Array(bytes.buffer, from + 4 * shape[0], size);
      for (let o = 0; o < shape[0]; o++) {
        for (let k = o * columns; k < (o + 1) * columns; k++) values[k] = whole[k] * scales[o];
      }
      from += 4 * shape[0] + size;
    } else {
      values.set(floats(from, size));
      from += 4 * size;
    }
  }
}

function decodeBase64(data) {
  const text = atob(data), bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
  return bytes;
}
