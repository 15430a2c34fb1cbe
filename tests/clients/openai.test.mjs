// The official OpenAI JavaScript client against the pocket model.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

import { root, startServer } from "./reckoner_server.mjs";

// Installed under build/, not beside this file.
const modules = process.env.RECKONER_NODE_MODULES ?? `${root}build/clients/js/node_modules`;
const { default: OpenAI } = createRequire(`${modules}/`)("openai");

const key = "key-of-the-client-tests";
const lantern = "light in a transparent protective case";
const thought = "The word lantern is a noun.";
const plain = { chat_template_kwargs: { enable_thinking: false } };
const definition = { model: "pocket", messages: [{ role: "user", content: "Define lantern." }], temperature: 0, ...plain };
const tools = [
  {
    type: "function",
    function: {
      name: "add",
      description: "Adds two integers.",
      parameters: {
        type: "object",
        properties: { a: { type: "integer" }, b: { type: "integer" } },
        required: ["a", "b"],
      },
    },
  },
  { type: "function", function: { name: "now", description: "Current time.", parameters: { type: "object", properties: {} } } },
];
const sum = { model: "pocket", messages: [{ role: "user", content: "Please add 6997 and 6578." }], temperature: 0, tools, ...plain };
const tasks = JSON.parse(readFileSync(`${root}tests/data/pocket-tasks.json`, "utf8")).tasks;

let server;
let client;
before(async () => {
  server = await startServer(["--context", "2048"], { RECKONER_API_KEY: key });
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: key, maxRetries: 0, timeout: 60_000 });
});
after(async () => assert.equal(await server.stop(), 0));

const info = async () => (await fetch(`${server.url}/server_info`, { headers: { Authorization: `Bearer ${key}` } })).json();

async function waitUntil(condition) {
  for (let i = 0; i < 1000; ++i) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.fail("it did not come true");
}

test("a known answer, with its usage", async () => {
  const answer = await client.chat.completions.create(definition);
  assert.equal(answer.choices[0].message.content, lantern);
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
});

test("a stream joins to the whole", async () => {
  const stream = await client.chat.completions.create({ ...definition, stream: true, stream_options: { include_usage: true } });
  const texts = [];
  let usage = null;
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta.content) texts.push(chunk.choices[0].delta.content);
    usage = chunk.usage ?? usage;
  }
  assert.equal(texts.join(""), lantern);
  assert.ok(texts.length > 3);
  assert.equal(usage.completion_tokens, (await client.chat.completions.create(definition)).usage.completion_tokens);
});

test("reasoning comes apart", async () => {
  const { chat_template_kwargs: _, ...thinking } = definition;
  const { message } = (await client.chat.completions.create(thinking)).choices[0];
  assert.equal(message.reasoning_content, thought);
  assert.equal(message.content, lantern);
});

test("a tool loop from the question to the answer", async () => {
  const messages = [...sum.messages];
  const used = [];
  let choice;
  for (let turn = 0; turn < 4; ++turn) {
    [choice] = (await client.chat.completions.create({ ...sum, messages })).choices;
    messages.push(choice.message);
    if (choice.finish_reason !== "tool_calls") break;
    for (const call of choice.message.tool_calls) {
      const { a, b } = JSON.parse(call.function.arguments);
      used.push([call.function.name, a, b]);
      messages.push({ role: "tool", tool_call_id: call.id, content: String(a + b) });
    }
  }
  assert.deepEqual(used, [["add", 6997, 6578]]);
  assert.match(choice.message.content, /13575/);
});

// The runner sends a function's members in an order of its own, which this small model has not seen: without descriptions it copes.
test("the client's own tool runner", async () => {
  const task = tasks.find((one) => one.prompt.includes("Please add 7075 and 7602."));
  const listed = /<tools>\n(.*?)\n<\/tools>/s.exec(task.prompt)[1].split("\n").map((line) => JSON.parse(line));
  const calls = [];
  const runner = client.chat.completions.runTools({
    ...sum,
    messages: [{ role: "user", content: "Please add 7075 and 7602." }],
    tools: listed.map(({ name, parameters }) => ({
      type: "function",
      function: {
        name,
        parameters,
        parse: JSON.parse,
        function: (values) => {
          calls.push([name, values]);
          return String(values.a + values.b);
        },
      },
    })),
  });
  assert.match(await runner.finalContent(), /14677/);
  assert.deepEqual(calls, [["add", { a: 7075, b: 7602 }]]);
});

test("the client's stream helper puts calls together", async () => {
  const completion = await client.chat.completions.stream(sum).finalChatCompletion();
  const [call] = completion.choices[0].message.tool_calls;
  assert.equal(call.function.name, "add");
  assert.deepEqual(JSON.parse(call.function.arguments), { a: 6997, b: 6578 });
  assert.equal(completion.choices[0].finish_reason, "tool_calls");
});

test("a forced call", async () => {
  const request = { ...sum, messages: definition.messages, tool_choice: "required", parallel_tool_calls: false, max_tokens: 200 };
  const [choice] = (await client.chat.completions.create(request)).choices;
  assert.equal(choice.message.tool_calls.length, 1);
  assert.ok(["add", "now"].includes(choice.message.tool_calls[0].function.name));
  JSON.parse(choice.message.tool_calls[0].function.arguments);
});

test("structured output", async () => {
  const schema = {
    type: "object",
    properties: { kind: { enum: ["noun", "verb"] }, syllables: { type: "integer", minimum: 1, maximum: 9 } },
    required: ["kind", "syllables"],
    additionalProperties: false,
  };
  const response_format = { type: "json_schema", json_schema: { name: "entry", strict: true, schema } };
  const completion = await client.chat.completions.parse({ ...definition, response_format, max_tokens: 200 });
  const { parsed } = completion.choices[0].message;
  assert.deepEqual(Object.keys(parsed).sort(), ["kind", "syllables"]);
  assert.ok(["noun", "verb"].includes(parsed.kind));
  assert.ok(Number.isInteger(parsed.syllables) && parsed.syllables >= 1 && parsed.syllables <= 9);
});

test("log probabilities", async () => {
  const { logprobs } = (await client.chat.completions.create({ ...definition, logprobs: true, top_logprobs: 2 })).choices[0];
  const bytes = logprobs.content.flatMap((token) => token.bytes);
  assert.equal(Buffer.from(bytes).toString(), lantern);
  for (const token of logprobs.content) {
    assert.equal(token.top_logprobs.length, 2);
    assert.equal(token.top_logprobs[0].token, token.token);
    assert.ok(token.logprob <= 0 && token.logprob > -1);
  }
});

test("stop and several answers", async () => {
  const { choices } = await client.chat.completions.create({ ...definition, n: 2, stop: [" protective"] });
  assert.deepEqual(choices.map((choice) => [choice.index, choice.message.content]), [0, 1].map((i) => [i, "light in a transparent"]));
});

test("completions", async () => {
  const [task] = tasks;
  const request = { model: "pocket", prompt: task.prompt, max_tokens: task.max_tokens, temperature: 0 };
  assert.equal((await client.completions.create(request)).choices[0].text, task.expected);
  assert.equal((await client.completions.create({ ...request, echo: true })).choices[0].text, task.prompt + task.expected);
});

test("responses, whole and as a stream", async () => {
  const request = { model: "pocket", input: "Define lantern.", temperature: 0, reasoning: { effort: "none" } };
  assert.equal((await client.responses.create(request)).output_text, lantern);
  let text = "";
  for await (const event of await client.responses.create({ ...request, stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.equal(text, lantern);
});

test("models", async () => {
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  assert.ok(ids.includes("pocket"));
});

test("errors are the client's own", async () => {
  await assert.rejects(client.chat.completions.create({ ...definition, model: "gpt-7" }), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.code, "model_not_found");
    return true;
  });
  await assert.rejects(client.chat.completions.create({ ...definition, temperature: -1 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, "temperature");
    return true;
  });
  const stranger = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "other", maxRetries: 0 });
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
});

test("leaving a stream ends its work", async () => {
  const stream = await client.chat.completions.create({ ...definition, stream: true, ignore_eos: true, max_tokens: 1500 });
  let chunks = 0;
  for await (const _ of stream) {
    if (++chunks === 5) break;
  }
  await waitUntil(async () => (await info()).running === 0);
});

test("sixteen at a time get their own answers", async () => {
  const questions = tasks.filter((task) => task.group === "define");
  const answers = new Map();
  const next = questions.values();
  const one = async () => {
    for (const task of next) {
      const content = /<\|user\|>(.*)<\|assistant\|>/s.exec(task.prompt)[1];
      const answer = await client.chat.completions.create({ ...definition, messages: [{ role: "user", content }] });
      answers.set(task.name, answer.choices[0].message.content);
    }
  };
  await Promise.all(Array.from({ length: 16 }, one));
  assert.deepEqual(Object.fromEntries(answers), Object.fromEntries(questions.map((task) => [task.name, task.expected])));
});
