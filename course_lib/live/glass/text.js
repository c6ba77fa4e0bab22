// Text into ids and back: words, or bytes that are joined in pairs.

const LETTER = "[\\p{L}\\p{N}_]";
const WORDS = new RegExp(`<${LETTER}+>|(?<!${LETTER})${LETTER}'|${LETTER}+|[^\\p{L}\\p{N}_\\s]`, "gu");

/**
 * A tokenizer from what `pack` says of it. `encode` gives {ids, unknown}, `decode` a text, `show` one token as it is
 * shown; `leftOut` gives [word, the number of ids before it] of what is unknown; `ends` says whether a token ends the text.
 */
export function tokenizerOf({kind, ...told}) {
  return kind === "words" ? words(told) : bytePairs(told);
}

/** One token per word, `<bos>` before them; unknown words are listed, and stand for nothing. */
function words({tokens, bos, eos}) {
  const known = new Map(tokens.map((token, id) => [token, id]));
  return {
    size: tokens.length,
    encode(text) {
      const all = text.toLowerCase().match(WORDS) ?? [];
      return {ids: [bos, ...all.filter((word) => known.has(word)).map((word) => known.get(word))],
              unknown: all.filter((word) => !known.has(word))};
    },
    leftOut(text) {
      let before = 1;  // <bos>
      return (text.toLowerCase().match(WORDS) ?? []).map((word) => [word, known.has(word) ? before++ : before]).filter(([word]) => !known.has(word));
    },
    decode: (ids) => ids.filter((id) => id > eos).map((id) => tokens[id]).join(" "),
    show: (id) => tokens[id],
    ends: (id) => id === eos,
  };
}

/** The character that GPT-2's vocabulary writes for each byte: itself where it can be seen, else one from 256 on. */
function alphabet() {
  let hidden = 256;
  const seen = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  return Array.from({length: 256}, (_, byte) => String.fromCodePoint(seen(byte) ? byte : hidden++));
}

const PIECES = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;  // GPT-2's

/**
 * Byte-pair encoding as in GPT-2: of the bytes, those neighbours are joined first that were joined first in training. Or,
 * where there are no `merges`, as in SentencePiece: of the characters, those that make the earliest token; what is in no
 * token is written in bytes. begin: the ids before every text.
 */
function bytePairs({tokens, merges, special, digits, begin}) {
  const known = new Map(tokens.map((token, id) => [token, id])), rank = new Map((merges ?? []).map((pair, at) => [pair, at]));
  const letters = alphabet(), byteOf = new Map(letters.map((letter, byte) => [letter, byte]));
  const names = special.map((id) => tokens[id].replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).sort((a, b) => b.length - a.length);
  const cut = names.length ? new RegExp(`(${names.join("|")})`) : /(?!)/, isSpecial = new Set(special), found = new Map();
  const bytes = (text) => [...new TextEncoder().encode(text)];
  const order = merges ? (a, b) => rank.get(`${a} ${b}`) : (a, b) => known.get(a + b);

  function merge(piece) {
    const parts = merges ? bytes(piece).map((byte) => letters[byte]) : [...piece];
    while (parts.length > 1) {
      let best = -1, first = Infinity;
      for (let i = 0; i + 1 < parts.length; i++) {
        const at = order(parts[i], parts[i + 1]) ?? Infinity;
        if (at < first) [best, first] = [i, at];
      }
      if (best < 0) break;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
    return parts.flatMap((part) => known.get(part) ?? bytes(part).map((byte) => known.get(inHex(byte))));
  }

  /** What a text is cut into before anything is joined: nothing is joined across a cut. */
  function pieces(text) {
    if (!merges) return text ? `▁${text.replaceAll(" ", "▁")}`.match(/▁*[^▁]+|▁+/g) : [];
    return (digits ? text.split(/(\p{N})/u) : [text]).flatMap((each) => each.match(PIECES) ?? []);
  }

  function bytesOf(id) {
    if (isSpecial.has(id)) return bytes(tokens[id]);
    if (merges) return [...tokens[id]].map((letter) => byteOf.get(letter));
    return /^<0x..>$/.test(tokens[id]) ? [parseInt(tokens[id].slice(1, -1))] : bytes(tokens[id].replaceAll("▁", " "));
  }

  /** The bytes of some tokens as text; half a character is �. */
  const read = (ids) => new TextDecoder().decode(Uint8Array.from(ids.flatMap(bytesOf)));
  return {
    size: tokens.length,
    encode(text) {
      const ids = text.split(cut).flatMap((part, i) => i % 2 ? [known.get(part)] : pieces(part).flatMap((piece) => {
        if (!found.has(piece)) found.set(piece, merge(piece));
        return found.get(piece);
      }));
      return {ids: text ? [...begin, ...ids] : [], unknown: []};
    },
    leftOut: () => [],
    decode: (ids) => read(ids.slice(begin.length)).replace(merges ? "" : /^ /, ""),  // the space that SentencePiece sets first
    show: (id) => read([id]).replace(/^ /, "·").replaceAll("\n", "↵") || "∅",  // a space before a word can be seen
    ends: (id) => isSpecial.has(id),
  };
}

const inHex = (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
