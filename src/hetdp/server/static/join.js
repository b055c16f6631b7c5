// The token stands behind the #, so no address that is sent anywhere has it. It is exchanged for a cookie and removed.
import { at, call, say, word } from "./api.js";

async function enter() {
  const token = location.hash.slice(1);
  const status = document.querySelector(".status");
  history.replaceState(null, "", at("/join"));
  try {
    if (!token) throw new Error(word("script.join.none"));
    await call("POST", "/api/session/participant", { token });
    location.replace(at("/answer"));
  } catch (error) {
    say(status, error.message, true);
  }
}
addEventListener("hashchange", () => { if (location.hash) enter(); }); // another link, pasted over this page
enter();
