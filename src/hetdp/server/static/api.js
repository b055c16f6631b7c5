// Ask the API. Changes carry the CSRF token of the page; an error is the server's sentence.
export async function call(method, path, body, headers = {}) {
  const options = { method, headers: { Accept: "application/json", ...headers }, credentials: "same-origin" };
  const csrf = document.querySelector('meta[name="csrf"]').content;
  if (method !== "GET") options.headers["X-CSRF-Token"] = csrf;
  if (body !== undefined) {
    options.headers["Content-Type"] ??= "application/json";
    options.body = typeof body === "string" || body instanceof Blob ? body : JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server cannot be reached. It is not known whether this was done: look again before you repeat it.");
  }
  const text = await response.text();
  if (!response.ok) {
    let said = { message: "Something went wrong." };
    try { said = JSON.parse(text).error; } catch { /* not JSON: keep the general sentence */ }
    throw Object.assign(new Error(said.message), { code: said.code });
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

// A number for reading, with about three digits.
export function short(x) {
  if (x === null || x === undefined) return "–";
  if (x === "inf") return "∞";
  return Number(x).toLocaleString(undefined, { maximumSignificantDigits: 3 });
}
