// The token stands behind the #, so no address that is sent anywhere has it. It is exchanged for a cookie and removed.
import { call, say } from "./api.js";

async function enter() {
  const token = location.hash.slice(1);
  const status = document.querySelector(".status");
  history.replaceState(null, "", "/join");
  try {
    if (!token) throw new Error("This address has no invitation in it. Open the whole link, with the part behind the #.");
    await call("POST", "/api/session/participant", { token });
    location.replace("/answer");
  } catch (error) {
    say(status, error.message, true);
  }
}
addEventListener("hashchange", () => { if (location.hash) enter(); }); // another link, pasted over this page
enter();
