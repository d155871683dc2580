// How the figures with a model write tokens and shares, and how a sentence is typed.

const WAIT = 150;            // milliseconds after a key
const LONGEST = 300;         // characters of a sentence

const COMPUTING = "Computing …";
const EMPTY = "Write at least one character.";
const SENDS_NOTHING = "Runs on this computer, and sends nothing.";
const here = ({ slow }) => `Live on this computer${slow ? ", on the page's own thread" : ""}.`;
const long = ({ value }) => (value.length < LONGEST ? "" : ` ${LONGEST} characters at most.`);
const percent = (p) => (p && p < 0.01 ? "< 1 %" : `${Math.round(100 * p)} %`);
// A number with two decimals, or two significant digits if it is small.
const fine = (x) => said(x, x && Math.abs(x) < 0.1 ? Math.min(6, 1 - Math.floor(Math.log10(Math.abs(x)))) : 2);
const signed = (x, digits = 2) => `${x > 0 && Number(x.toFixed(digits)) ? "+" : ""}${said(x, digits)}`;
// A token as a word: + joins it to the word before, and signs stand for what cannot be seen.  `_word` does the same.
export function word(piece) {
  if (piece === "<|endoftext|>") return "(end)";
  const seen = piece.replace(/\n/g, "↵").replace(/\t/g, "⇥");
  return piece.startsWith(" ") ? seen.slice(1) || "␣" : `+${seen}`;
}
const bare = (piece) => word(piece).replace(/^\+/, "") || "·";
const quoted = (piece) => `“${bare(piece)}”`;
