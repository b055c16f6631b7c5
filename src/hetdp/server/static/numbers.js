// Read a number that a person typed, with a decimal comma or a decimal point, in every language alike.
// Returns {number}, or {problem: "none" | "unclear" | "two-ways", larger, smaller}. Nothing is guessed: "1.234" and "1,234"
// can be a thousand and some, or one and a bit, so the person is asked to write it so that it means one thing.
export function parse(typed) {
  const text = typed.trim().replace(/[−–]/g, "-").replace(/[\u00a0\u2009\u202f]/g, " ");
  if (!text) return { problem: "none" };
  const sign = /^[-+]/.test(text) ? text[0] : "";
  const body = text.slice(sign.length).trim();
  const made = (whole, part = "") => ({ number: Number(`${sign}${whole.replace(/[ '’.,]/g, "") || "0"}.${part || "0"}`) });
  if (/^\d+$/.test(body)) return made(body);
  const two = /^([1-9]\d{0,2})([.,])(\d{3})$/.exec(body);
  if (two) return { problem: "two-ways", larger: `${sign}${two[1]}${two[3]}`, smaller: `${sign}${two[1]}${two[2]}${two[3]}0` };
  const plain = /^(\d*)[.,](\d+)$/.exec(body) ?? /^(\d+)[.,]()$/.exec(body);
  if (plain) return made(plain[1], plain[2]);
  const grouped = /^(\d{1,3}(?:([ '’.,])\d{3})(?:\2\d{3})*)(?:([.,])(\d+))?$/.exec(body); // 1.234.567, 1 234,5 or 1,234.5
  if (grouped && grouped[2] !== grouped[3]) return made(grouped[1], grouped[4]);
  return { problem: "unclear" };
}

// Write a number so that it can be read in one way only: no comma or point between thousands, but narrow spaces.
export function written(number, decimal) {
  const text = new Intl.NumberFormat("en", { useGrouping: false, maximumSignificantDigits: 17 }).format(number);
  const [, sign, before, after] = /^(-?)(\d+)(?:\.(\d+))?$/.exec(text);
  const groups = before.length > 4 ? before.replace(/\B(?=(\d{3})+$)/g, "\u202f") : before;
  return `${sign === "-" ? "−" : ""}${groups}${after ? decimal + after : ""}`;
}
