// The words of a script come from its page, in the page's language; it has none of its own.
const words = JSON.parse(document.getElementById("words").textContent);
export const language = document.documentElement.lang;
export function word(key, facts = {}) {
  return words[key].replace(/\{(\w+)\}/g, (_, name) => facts[name]);
}
export function counted(key, n, facts = {}) {
  return word(`${key}.${n === 1 ? "one" : "other"}`, { n: whole(n), ...facts });
}

// Every address of this site goes through here: the site may lie under a path of its own.
export const at = (path) => `${document.documentElement.dataset.root}${path}`;

// Ask the API. Changes carry the CSRF token of the page; an error is the server's sentence.
export async function call(method, path, body, headers = {}) {
  const options = { method, headers: { Accept: "application/json", "Accept-Language": language, ...headers }, credentials: "same-origin" };
  const csrf = document.querySelector('meta[name="csrf"]').content;
  if (method !== "GET") options.headers["X-CSRF-Token"] = csrf;
  if (body !== undefined) {
    options.headers["Content-Type"] ??= "application/json";
    options.body = typeof body === "string" || body instanceof Blob ? body : JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(at(path), options);
  } catch {
    throw new Error(word("script.api.unreachable"));
  }
  const text = await response.text();
  if (!response.ok) {
    let said = { message: word("script.api.wrong") };
    try { said = JSON.parse(text).error; } catch { /* not JSON: keep the general sentence */ }
    throw Object.assign(new Error(words[`error.${said.code}`] ?? said.message), { code: said.code, field: said.field, facts: said.facts });
  }
  return JSON.parse(text);
}

// Do something once for a button or form: it is disabled meanwhile, and what goes wrong is said beside it.
export async function busy(where, action) {
  const status = where.querySelector(".status");
  const buttons = where.querySelectorAll("button");
  buttons.forEach((button) => { button.disabled = true; });
  say(status, "");
  try {
    await action((text) => say(status, text));
  } catch (error) {
    say(status, error.message, true);
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
}

export function say(status, text, bad = false) {
  if (!status) return;
  status.textContent = text;
  status.classList.toggle("bad", bad);
}

// What cannot be taken back asks once more, in the button itself: true at the second press.
export function twice(button, text) {
  if (button.dataset.sure) return true;
  Object.assign(button.dataset, { sure: "yes", before: button.textContent });
  button.textContent = text;
  button.removeAttribute("aria-label");
  return false;
}
export function once(button) {
  if (!button.dataset.sure) return;
  button.textContent = button.dataset.before;
  delete button.dataset.sure;
}

// Parts of this page as the server has them now, by their ids; without an answer they stay as they are.
export async function renew(...ids) {
  const response = await fetch(location.href, { credentials: "same-origin" }).catch(() => ({}));
  if (!response.ok || response.redirected) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  ids.forEach((id) => { const now = page.getElementById(id); if (now) document.getElementById(id)?.replaceWith(now); });
}

// An error stands beside its field, belongs to it, and is announced (its paragraph is an alert).
export function complain(field, problem, text) {
  problem.textContent = text;
  field.setAttribute("aria-invalid", String(Boolean(text)));
}

// Numbers for reading: a whole one, and one with about three digits.
export const whole = (n) => n.toLocaleString(language);
export function short(x, way = "halfExpand") {
  if (x === null || x === undefined) return "–";
  if (x === "inf") return "∞";
  return Number(x).toLocaleString(language, { maximumSignificantDigits: 3, roundingMode: way });
}
