import { at, busy, call, word } from "./api.js";

const section = document.getElementById("rotate").closest("section");
document.getElementById("rotate").addEventListener("click", () => busy(section, async (say) => {
  const { key } = await call("POST", "/api/curator/key");
  say(word("script.curator.key", { key }));
}));
document.getElementById("sign-out").addEventListener("click", () => busy(section, async () => {
  await call("DELETE", "/api/session/curator");
  location.assign(at("/"));
}));
