// Starts both views, switches between them, and says whether the server can be reached.
import { call } from "./api.js";
import { startChat } from "./chat.js";
import { startEngine } from "./engine.js";

const byId = (id) => document.getElementById(id);
const views = ["chat", "engine"];

function show(name) {
  for (const view of views) {
    const chosen = view === name;
    byId(`view-${view}`).hidden = !chosen;
    byId(`tab-${view}`).setAttribute("aria-selected", String(chosen));
    byId(`tab-${view}`).tabIndex = chosen ? 0 : -1;
  }
}

// Tabs by the arrow keys, as their role promises.
function moveBetweenTabs(event) {
  if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
  const other = byId("view-chat").hidden ? "chat" : "engine";
  show(other);
  byId(`tab-${other}`).focus();
}

async function sayWhoServes() {
  const state = byId("state");
  try {
    const models = await (await call("/v1/models")).json();
    byId("model").textContent = models.data[0].id;
    state.textContent = "ready";
    state.classList.remove("bad");
  } catch (error) {
    state.textContent = error.message;
    state.classList.add("bad");
  }
}

for (const view of views) {
  byId(`tab-${view}`).addEventListener("click", () => show(view));
  byId(`tab-${view}`).addEventListener("keydown", moveBetweenTabs);
}
byId("key").addEventListener("change", sayWhoServes);
show("chat");
sayWhoServes();
setInterval(sayWhoServes, 5000);
startChat();
startEngine(() => !byId("view-engine").hidden);
