// The page at /, in headless Chromium: what a person does with it, and what it must not do. Writes build/page/*.png.
import assert from "node:assert/strict";
import { after, before, beforeEach, afterEach, test } from "node:test";
import { createRequire } from "node:module";
import { mkdirSync, readFileSync } from "node:fs";

import { root, startServer } from "../clients/reckoner_server.mjs";

const require = createRequire(`${process.env.RECKONER_NODE_MODULES ?? `${root}build/page/js/node_modules`}/`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const pictures = `${root}build/page`;
const lantern = "light in a transparent protective case";
const thought = "The word lantern is a noun.";
const tools = JSON.stringify([
  {
    type: "function",
    function: {
      name: "add",
      description: "Adds two integers.",
      parameters: { type: "object", properties: { a: { type: "integer" }, b: { type: "integer" } }, required: ["a", "b"] },
    },
  },
  { type: "function", function: { name: "now", description: "Current time.", parameters: { type: "object", properties: {} } } },
]);

let server;
let browser;
let page;
let complaints; // errors on the console, uncaught ones, and requests to other places
let bodies; // of requests to /v1/chat/completions

before(async () => {
  mkdirSync(pictures, { recursive: true });
  server = await startServer(["--context", "2048"]);
  const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args });
});
after(async () => {
  await browser?.close();
  if (server) assert.equal(await server.stop(), 0);
});

async function open(options = {}, url = server.url) {
  page = await browser.newPage({ viewport: { width: 1000, height: 720 }, colorScheme: "light", ...options });
  complaints = [];
  bodies = [];
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && complaints.push(message.text()));
  page.on("request", (request) => {
    if (request.url().startsWith("data:")) return;
    if (!request.url().startsWith(url)) complaints.push(`asked ${request.url()}`);
    if (request.url().endsWith("/v1/chat/completions")) bodies.push(request.postDataJSON());
  });
  await page.goto(`${url}/`);
}
beforeEach(() => open());
afterEach(async () => {
  await page.close();
  assert.deepEqual(complaints, []);
});

const picture = (name) => page.screenshot({ path: `${pictures}/${name}.png` });
const answers = () => page.locator("article.assistant");
const lastAnswer = () => answers().last();

// Types into the box and waits until the answer is complete.
async function ask(text) {
  const count = await answers().count();
  await page.fill("#prompt", text);
  await page.press("#prompt", "Enter");
  await answers().nth(count).waitFor();
  await page.locator("#stop").waitFor({ state: "hidden" });
}

// Opens the settings and fills in some of them.
async function settings(values) {
  await page.locator("details.settings").evaluate((details) => (details.open = true));
  for (const [id, value] of Object.entries(values)) {
    if (typeof value === "boolean") await page.setChecked(`#${id}`, value);
    else await page.fill(`#${id}`, String(value));
  }
}

// From here on answers do not end by themselves: the page offers no such setting, so the request is changed on its way.
async function makeAnswersEndless() {
  await page.route("**/v1/chat/completions", (route) => {
    const body = { ...route.request().postDataJSON(), ignore_eos: true, max_tokens: 1800, temperature: 1 };
    return route.continue({ postData: JSON.stringify(body) });
  });
}
const info = async () => (await fetch(`${server.url}/server_info`)).json();

async function waitUntil(condition, what) {
  for (let i = 0; i < 500; ++i) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.fail(`not in 10 seconds: ${what}`);
}

async function assertAccessible(where) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const bad = found.violations.filter((one) => ["serious", "critical"].includes(one.impact));
  assert.deepEqual(bad.map((one) => [one.id, one.nodes.map((node) => node.html)]), [], where);
}

async function assertFits(where) {
  const { wide, seen } = await page.evaluate(() => ({ wide: document.scrollingElement.scrollWidth, seen: window.innerWidth }));
  assert.ok(wide <= seen, `${where}: ${wide} px wide in a window of ${seen} px`);
}

test("says which model serves", async () => {
  await page.getByText("ready").waitFor();
  assert.equal(await page.textContent("#model"), "pocket");
  assert.equal(await page.title(), "Reckoner");
  await picture("start");
});

test("a question is asked and answered by keyboard alone, as a stream", async () => {
  await page.evaluate(() => {
    window.seen = new Set();
    const look = () => document.querySelectorAll("article.assistant").forEach((node) => window.seen.add(node.innerText));
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
  });
  await page.keyboard.type("Define lantern."); // the box has the focus from the start
  await page.keyboard.press("Enter");
  await page.getByText(lantern, { exact: true }).waitFor();
  await page.locator("#stop").waitFor({ state: "hidden" });
  const seen = await page.evaluate(() => [...window.seen]);
  assert.ok(seen.filter((text) => lantern.startsWith(text.trim()) && text.trim() !== lantern).length > 1, `grew in steps: ${seen}`);
  assert.equal(await page.inputValue("#prompt"), "");
  assert.equal(await page.evaluate(() => document.activeElement.id), "prompt");
  assert.match(await lastAnswer().innerText(), /\d+ tokens read .*\d+ written/);
  assert.equal(await lastAnswer().locator("details").isVisible(), false, "no reasoning was asked for");
  await page.keyboard.type("Define");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("thermometry.");
  assert.equal(await page.inputValue("#prompt"), "Define\nthermometry.");
  await page.keyboard.press("Enter");
  await answers().nth(1).waitFor();
  await page.locator("#stop").waitFor({ state: "hidden" });
  assert.deepEqual(bodies[1].messages.map((message) => message.role), ["user", "assistant", "user"]);
  assert.equal(bodies[1].messages[1].content, lantern);
});

test("everything is reached with the tab key, and the tabs with arrows", async () => {
  const reached = new Set();
  for (let i = 0; i < 24; ++i) {
    await page.keyboard.press("Tab");
    reached.add(await page.evaluate(() => document.activeElement.id || document.activeElement.tagName));
    if (await page.evaluate(() => document.activeElement.tagName === "SUMMARY")) await page.keyboard.press("Enter");
  }
  for (const id of ["tab-chat", "send", "clear", "temperature", "top_p", "max_tokens", "seed", "thinking", "system", "tools", "key"]) {
    assert.ok(reached.has(id), `${id} among ${[...reached]}`);
  }
  await page.focus("#tab-chat");
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.isVisible("#view-engine"), true);
  assert.equal(await page.isVisible("#view-chat"), false);
  assert.equal(await page.evaluate(() => document.activeElement.id), "tab-engine");
});

test("reasoning is shown apart", async () => {
  await settings({ thinking: true, temperature: 0 });
  await ask("Define lantern.");
  const details = lastAnswer().locator("details");
  assert.equal(await details.isVisible(), true);
  await details.evaluate((node) => (node.open = true));
  assert.equal(await details.locator("div").innerText(), thought);
  assert.equal(await page.getByText(lantern, { exact: true }).count(), 1);
  await picture("reasoning");
});

test("a tool call is shown, and its result leads to the answer", async () => {
  await settings({ tools, temperature: 0 });
  await ask("Please add 6997 and 6578.");
  const call = lastAnswer().locator(".call");
  assert.match(await call.innerText(), /add\(\{"a": ?6997, ?"b": ?6578\}\)/);
  const result = call.getByRole("textbox", { name: "Result of add" });
  assert.equal(await result.evaluate((node) => node === document.activeElement), true);
  await picture("tool-call");
  await page.keyboard.type("13575");
  await page.keyboard.press("Enter");
  await answers().nth(1).waitFor();
  await page.locator("#stop").waitFor({ state: "hidden" });
  assert.match(await lastAnswer().innerText(), /13575/);
  const sent = bodies[1].messages.at(-1);
  assert.deepEqual([sent.role, sent.content], ["tool", "13575"]);
  assert.equal(sent.tool_call_id, bodies[1].messages.at(-2).tool_calls[0].id);
  await picture("tool-answer");
});

test("tools that are not JSON are refused with a sentence, and can be put right", async () => {
  await settings({ tools: "[oops", temperature: 0 });
  await page.fill("#prompt", "Please add 6997 and 6578.");
  await page.press("#prompt", "Enter");
  assert.match(await page.getByRole("alert").innerText(), /tools are not valid JSON/);
  assert.equal(bodies.length, 0);
  await settings({ tools });
  await page.getByRole("button", { name: "Try again" }).press("Enter");
  await lastAnswer().locator(".call input").waitFor();
  assert.equal(await page.getByRole("alert").count(), 0);
  assert.deepEqual(bodies[0].messages, [{ role: "user", content: "Please add 6997 and 6578." }]);
});

test("an answer that breaks off says so, and half a call is not sent back", async () => {
  const delta = (value) => `data: ${JSON.stringify({ choices: [{ index: 0, delta: value }] })}\n\n`;
  const half = { index: 0, id: "call_1", type: "function", function: { name: "add", arguments: '{"a": 69' } };
  await page.route("**/v1/chat/completions", (route) =>
    route.fulfill({ contentType: "text/event-stream", body: delta({ content: "One moment." }) + delta({ tool_calls: [half] }) }),
  );
  await page.fill("#prompt", "Please add 6997 and 6578.");
  await page.press("#prompt", "Enter");
  assert.match(await page.getByRole("alert").innerText(), /ended before the answer did/);
  assert.equal(await lastAnswer().locator("input").count(), 0);
  await page.unroute("**/v1/chat/completions");
  await ask("Define lantern.");
  assert.deepEqual(bodies[1].messages[1], { role: "assistant", content: "One moment." });
});

test("a reader who has scrolled up stays there", async () => {
  await page.setViewportSize({ width: 1000, height: 400 });
  await settings({ temperature: 0 });
  await page.locator("details.settings").evaluate((details) => (details.open = false));
  for (const word of ["lantern", "thermometry", "marketing", "navel"]) await ask(`Define ${word}.`);
  const top = () => page.evaluate(() => document.getElementById("messages").scrollTop);
  assert.ok((await top()) > 0, "the end is in view");
  await makeAnswersEndless();
  await page.fill("#prompt", "Say something.");
  await page.press("#prompt", "Enter");
  await waitUntil(async () => (await answers().count()) === 5 && (await lastAnswer().innerText()).length > 20, "an answer begins");
  await page.evaluate(() => (document.getElementById("messages").scrollTop = 0));
  const length = (await lastAnswer().innerText()).length;
  await waitUntil(async () => (await lastAnswer().innerText()).length > length + 20, "the answer grows");
  assert.equal(await top(), 0);
  await page.keyboard.press("Escape");
});

for (const [name, stop] of [
  ["the stop button", () => page.click("#stop")],
  ["the escape key", () => page.keyboard.press("Escape")],
]) {
  test(`${name} ends the answer`, async () => {
    await makeAnswersEndless();
    await page.fill("#prompt", "Say something.");
    await page.press("#prompt", "Enter");
    await page.locator("#stop").waitFor();
    await waitUntil(async () => (await answers().count()) > 0 && (await lastAnswer().innerText()).length > 20, "an answer begins");
    assert.equal((await info()).running, 1);
    if (name === "the stop button") await picture("stop");
    await stop();
    await page.locator("#stop").waitFor({ state: "hidden" });
    await waitUntil(async () => (await info()).running === 0, "the server stops too");
    const kept = await lastAnswer().innerText();
    await page.unroute("**/v1/chat/completions");
    await ask("Define lantern.");
    assert.ok(kept.trim().startsWith(bodies[1].messages[1].content.trim().slice(0, 20)), "what was said stays in the conversation");
  });
}

test("a new chat forgets the old one, even while it is being answered", async () => {
  await ask("Define thermometry.");
  await makeAnswersEndless();
  await page.fill("#prompt", "Say something.");
  await page.press("#prompt", "Enter");
  await waitUntil(async () => (await answers().count()) === 2, "the second answer begins");
  await page.click("#clear");
  await page.locator("#stop").waitFor({ state: "hidden" });
  await page.unroute("**/v1/chat/completions");
  await settings({ temperature: 0 });
  await ask("Define lantern.");
  assert.deepEqual(bodies.at(-1).messages, [{ role: "user", content: "Define lantern." }]);
  assert.equal(await page.locator("article").count(), 2);
});

test("settings change the sampling", async () => {
  await settings({ max_tokens: 2, temperature: 0 });
  await ask("Define lantern.");
  assert.match(await lastAnswer().locator(".figures").innerText(), /, 2 written/);
  const draw = async (seed) => {
    await page.click("#clear");
    await settings({ max_tokens: 24, temperature: 2, top_p: 1, seed });
    await ask("Say something.");
    return (await lastAnswer().innerText()).split("\n")[0];
  };
  const first = await draw(1);
  assert.equal(await draw(1), first);
  const others = [await draw(2), await draw(3)];
  assert.ok(others.some((text) => text !== first), `${first} | ${others}`);
  await page.click("#clear");
  await settings({ system: "You are a dictionary." });
  await ask("Define lantern.");
  assert.deepEqual(bodies.at(-1).messages[0], { role: "system", content: "You are a dictionary." });
  assert.deepEqual([bodies.at(-1).temperature, bodies.at(-1).top_p, bodies.at(-1).max_tokens], [2, 1, 24]);
  await picture("settings");
});

test("what the server refuses is said", async () => {
  await settings({ max_tokens: 1000000 });
  await page.fill("#prompt", "Define lantern.");
  await page.press("#prompt", "Enter");
  assert.match(await page.getByRole("alert").innerText(), /2048/);
  assert.match(complaints.join(), /400/); // the browser's own line about the status
  complaints = [];
  await picture("refused");
});

test("the engine's numbers follow what happens", async () => {
  await page.click("#tab-engine");
  const value = (name) => page.locator(".gauge", { has: page.getByText(name, { exact: true }) }).locator(".value").innerText();
  await waitUntil(async () => (await value("Requests being answered")) === "0", "no request is being answered");
  const body = JSON.stringify({
    messages: [{ role: "user", content: "Say something." }],
    max_tokens: 1900,
    ignore_eos: true,
    stream: true,
  });
  const controllers = Array.from({ length: 3 }, () => new AbortController());
  const post = () => Promise.all(controllers.map((one) => fetch(`${server.url}/v1/chat/completions`, { method: "POST", body, signal: one.signal })));
  await post();
  await waitUntil(async () => (await value("Requests being answered")) === "3", "three requests are being answered");
  await waitUntil(async () => Number((await value("Tokens computed a second")).replaceAll(",", "")) > 0, "tokens are computed");
  assert.match(await value("KV cache in use"), /^\d+ %$/);
  assert.ok(Number((await value("Resident memory, MB")).replaceAll(",", "")) > 10);
  await waitUntil(async () => (await page.locator("#layers tr").count()) > 3, "the layers are measured");
  assert.match(await page.locator("#layers tr").first().innerText(), /the embedding\s+[\d.]+ – [\d.]+/);
  assert.match(await page.locator("#layers tr").last().innerText(), /layer \d+, feed-forward\s+[\d.]+ – [\d.]+/);
  assert.ok((await page.getAttribute(".gauge polyline", "points")).split(" ").length >= 2);
  await picture("engine");
  controllers.forEach((one) => one.abort());
  await waitUntil(async () => (await value("Requests being answered")) === "0", "they have ended");
  assert.match(await page.locator("#effective").innerText(), /models\/pocket/);
});

test("light and dark are both readable", async () => {
  const luminance = (selector, property) =>
    page.evaluate(
      ([chosen, name]) => {
        const [r, g, b] = getComputedStyle(document.querySelector(chosen))[name].match(/[\d.]+/g).map(Number);
        return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
      },
      [selector, property],
    );
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    const ground = await luminance("body", "backgroundColor");
    const text = await luminance("body", "color");
    assert.ok(scheme === "light" ? ground > 0.8 && text < 0.3 : ground < 0.2 && text > 0.7, `${scheme}: ${ground}, ${text}`);
  }
});

for (const scheme of ["light", "dark"]) {
  test(`no serious accessibility violation: ${scheme}`, async () => {
    await page.emulateMedia({ colorScheme: scheme });
    await assertAccessible("empty");
    await settings({ thinking: true, tools, temperature: 0 });
    await ask("Define lantern.");
    await ask("Please add 6997 and 6578.");
    await settings({ tools: "[oops" });
    await page.fill("#prompt", "x");
    await page.press("#prompt", "Enter");
    await page.getByRole("alert").waitFor();
    await assertAccessible("a conversation, with the settings open");
    await picture(`chat-${scheme}`);
    await page.click("#tab-engine");
    await page.locator("#effective tbody tr").first().waitFor();
    await page.waitForTimeout(1200);
    await assertAccessible("engine");
    await picture(`engine-${scheme}`);
  });
}

test("a narrow screen needs no scrolling sideways", async () => {
  await page.setViewportSize({ width: 360, height: 740 });
  await assertFits("empty");
  await settings({ thinking: true, tools, temperature: 0 });
  await assertFits("settings");
  await picture("narrow-settings");
  await page.locator("details.settings").evaluate((details) => (details.open = false));
  await ask(`Define lantern.`);
  await ask("Please add 6997 and 6578.");
  await page.fill("#prompt", `https://example.org/${"long".repeat(60)}`);
  await page.press("#prompt", "Enter");
  await page.locator("article.user").nth(2).waitFor();
  await page.locator("#stop").waitFor({ state: "hidden" });
  await assertFits("conversation");
  assert.equal(await page.isVisible("#prompt"), true);
  const box = await page.locator("#messages").boundingBox();
  assert.ok(box.height > 200, `the conversation has ${box.height} px`);
  await picture("narrow-chat");
  await page.click("#tab-engine");
  await page.locator("#effective tbody tr").first().waitFor();
  await page.waitForTimeout(1200);
  await assertFits("engine");
  await picture("narrow-engine");
});

test("a server with a key asks for it", async () => {
  await page.close();
  const guarded = await startServer(["--context", "1024"], { RECKONER_API_KEY: "secret" });
  try {
    await open({}, guarded.url);
    await page.locator("#state.bad").waitFor();
    assert.match(await page.textContent("#state"), /key/);
    await settings({ key: "secret", temperature: 0 });
    await page.press("#key", "Tab");
    await page.getByText("ready").waitFor();
    await ask("Define lantern.");
    assert.match(await lastAnswer().innerText(), new RegExp(lantern));
    assert.ok(complaints.every((line) => line.includes("401")), complaints.join());
    complaints = [];
  } finally {
    await guarded.stop();
  }
});

test("a server that is gone is said to be gone", async () => {
  await page.close();
  const other = await startServer(["--context", "1024"]);
  await open({}, other.url);
  await page.getByText("ready").waitFor();
  await other.stop();
  await page.fill("#prompt", "Define lantern.");
  await page.press("#prompt", "Enter");
  assert.match(await page.getByRole("alert").innerText(), /cannot be reached/);
  await page.locator("#state.bad").waitFor();
  complaints = [];
});
