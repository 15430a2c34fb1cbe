// The pages that commands write (trace, report, bench serve), in headless Chromium: they stand alone, can be read in light and dark, on a small
// screen and by keyboard. Writes build/page/report-*.png.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, mkdirSync, cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";

import { root, startServer } from "../clients/reckoner_server.mjs";

const require = createRequire(`${process.env.RECKONER_NODE_MODULES ?? `${root}build/page/js/node_modules`}/`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const reckoner = process.env.RECKONER ?? `${root}build/release/reckoner`;
const pictures = `${root}build/page`;

let browser;
let folder;

// Runs the program; its exit status may be one of `statuses`.
async function run(args, statuses = [0]) {
  const status = await promisify(execFile)(reckoner, args, { cwd: root }).then(() => 0, (failure) => failure.code);
  assert.ok(statuses.includes(status), `reckoner ${args.join(" ")} ended with ${status}`);
}

before(async () => {
  mkdirSync(pictures, { recursive: true });
  folder = mkdtempSync(join(tmpdir(), "reports-"));
  const args = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args });
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

// Opens a page as a file; it may ask for nothing else.
async function open(file, options = {}) {
  const page = await browser.newPage({ viewport: { width: 1100, height: 900 }, colorScheme: "light", ...options });
  const complaints = [];
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => request.url() !== `file://${file}` && !request.url().startsWith("data:") && complaints.push(`asked ${request.url()}`));
  await page.goto(`file://${file}`);
  return { page, complaints };
}

// What every page must be: no serious accessibility violation in light and dark, nothing wider than a small screen, nothing from elsewhere.
async function checkPage(file, name) {
  for (const options of [{ colorScheme: "light" }, { colorScheme: "dark" }, { viewport: { width: 360, height: 740 } }]) {
    const { page, complaints } = await open(file, options);
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => axe.run());
    const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
    assert.deepEqual(serious.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 200)}`), []);
    const width = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
    assert.ok(width[0] <= width[1], `${name}: ${width[0]} wide in ${width[1]}`);
    await page.screenshot({ path: `${pictures}/report-${name}-${options.colorScheme ?? "small"}.png`, fullPage: true });
    assert.deepEqual(complaints, []);
    await page.close();
  }
}

test("trace: a heat map that the arrow keys walk through", async () => {
  const file = join(folder, "trace.html");
  await run(["trace", "models/pocket", "Define lantern.", "--html", file]);
  await checkPage(file, "trace");
  const { page } = await open(file);
  const cell = page.locator(".map td[tabindex='0']").first();
  await cell.focus();
  const readout = page.locator(".readout").first();
  const first = await readout.textContent();
  await page.keyboard.press("ArrowDown");
  const second = await readout.textContent();
  assert.notEqual(first, second);
  assert.match(second, /rms/);
  await page.close();
});

// The value is broken behind layer 1, by nobody: the next op is the first to read it.
test("trace: a value that is not finite is named and marked", async () => {
  const file = join(folder, "nan.html");
  await run(["trace", "models/pocket", "Define lantern.", "--html", file, "--inject-nan", "5:1.feed-forward"], [0, 1]);
  const { page } = await open(file);
  assert.match(await page.locator(".verdict").textContent(), /layer 2, input_norm/);
  assert.ok((await page.locator(".map td.bad").count()) > 0);
  await page.close();
});

test("report: the story, with links to its evidence", async () => {
  cpSync(`${root}examples/trials/story.toml`, join(folder, "story.toml"));
  const text = readFileSync(join(folder, "story.toml"), "utf8").replace('directory = "../.."', `directory = ${JSON.stringify(root)}`);
  writeFileSync(join(folder, "story.toml"), text);
  await run(["trials", "run", join(folder, "story.toml")], [1]);
  const file = join(folder, "story.html");
  await run(["report", join(folder, "story.ledger"), "--html", file]);
  await checkPage(file, "story");
  const { page } = await open(file);
  assert.match(await page.locator(".summary").textContent(), /fp4_gemm was never varied/);
  // Every link within the page leads somewhere, and every log is there.
  const targets = await page.locator("a[href^='#']").evaluateAll((links) => links.map((link) => link.getAttribute("href")));
  assert.ok(targets.length > 20);
  for (const target of new Set(targets)) assert.equal(await page.locator(target).count(), 1, target);
  const logs = await page.locator("td a[href$='.log']").evaluateAll((links) => links.map((link) => new URL(link.href).pathname));
  for (const log of new Set(logs)) assert.ok(readFileSync(log, "utf8").length > 0, log);
  await page.close();
});

test("bench serve: the load report", async () => {
  const server = await startServer(["--context", "2048"]);
  const file = join(folder, "load.html");
  await run(["bench", "serve", server.url, "--num-prompts", "8", "--random-input-len", "16", "--random-output-len", "8", "--html", file]);
  await checkPage(file, "load");
  assert.equal(await server.stop(), 0);
});
