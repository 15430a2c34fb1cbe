// A `reckoner serve` of its own for a test in JavaScript: started, its address read, stopped.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { once } from "node:events";

export const root = fileURLToPath(new URL("../../", import.meta.url));

export async function startServer(options = [], environment = {}) {
  const program = process.env.RECKONER ?? `${root}build/release/reckoner`;
  const child = spawn(program, ["serve", `${root}models/pocket`, "--port", "0", ...options], {
    env: { ...process.env, RECKONER_API_KEY: "", ...environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let log = "";
  child.stderr.on("data", (data) => (log += data));
  const ended = once(child, "exit");
  const line = once(createInterface({ input: child.stdout }), "line");
  const first = await Promise.race([line.then(([text]) => text), ended.then(() => null)]);
  if (!first?.startsWith("http")) throw new Error(`reckoner serve printed no address: ${first}\n${log}`);
  return {
    url: first.trim(),
    // Ends it as an operator does; its exit status.
    async stop() {
      child.kill("SIGTERM");
      return (await ended)[0];
    },
  };
}
