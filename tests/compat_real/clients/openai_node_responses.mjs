// The official client: it names the response before, or with the argument `conversation` a conversation.
import OpenAI from "openai";
import { baseURL, model, run } from "./dialogue.mjs";

const client = new OpenAI({ baseURL, apiKey: "none" });
const conversation = process.argv[2] && (await client.conversations.create({ metadata: { topic: "weather" } })).id;
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const tools = [{ type: "function", name: "weather", description: "Weather of a city.", parameters, strict: true }];
let last;

function request(input) {
  return { model, input, tools, ...(conversation ? { conversation } : { previous_response_id: last }) };
}

function outputsOf(response) {
  return response.output
    .filter((item) => item.type === "function_call")
    .map((call) => ({
      type: "function_call_output",
      call_id: call.call_id,
      output: `Rain in ${JSON.parse(call.arguments).city}.`,
    }));
}

async function ask(question) {
  for (let input = question; ; ) {
    const response = await client.responses.create(request(input));
    last = response.id;
    input = outputsOf(response);
    if (!input.length) return response.output_text;
  }
}

async function* stream(question) {
  for (let input = question; input.length; ) {
    const events = client.responses.stream(request(input));
    let begun;
    let isStopped = true;
    try {
      for await (const event of events) {
        if (event.type === "response.created") begun = event.response.id;
        if (event.type === "response.failed") throw new Error(event.response.error.message);
        if (event.type === "response.output_text.delta") yield event.delta;
      }
      isStopped = false;
    } catch (error) {
      isStopped = false;
      throw error;
    } finally {
      if (isStopped) last = (await client.responses.cancel(begun)).id;
    }
    const response = await events.finalResponse();
    last = response.id;
    input = outputsOf(response);
  }
}

async function all(pages) {
  const found = [];
  for await (const each of pages) found.push(each);
  return found;
}

function check(isTrue, what) {
  if (!isTrue) throw new Error(what);
}

async function review() {
  const response = await client.responses.retrieve(last);
  const sent = await all(await client.responses.retrieve(last, { stream: true }));
  check(sent.every((event, number) => event.sequence_number === number), "numbers of events");
  check(sent.at(-1).response.output[0].id === response.output[0].id, "last event");
  const rest = await all(await client.responses.retrieve(last, { stream: true, starting_after: 3 }));
  check(JSON.stringify(rest) === JSON.stringify(sent.slice(4)), "resumed events");
  const resumed = await client.responses.stream({ response_id: last, starting_after: 3 }).finalResponse();
  check(resumed.output_text === response.output_text, "resumed stream");
  check((await all(client.responses.inputItems.list(last, { limit: 1 }))).length === 1, "input items");
  const place = response.conversation.id;
  const items = await all(client.conversations.items.list(place, { limit: 2, order: "asc" }));
  check(items.at(-1).id === response.output[0].id, "items of the conversation");
  const found = await client.conversations.items.retrieve(items[0].id, { conversation_id: place });
  check(JSON.stringify(found) === JSON.stringify(items[0]), "item");
  return conversation ?? last;
}

await run(ask, stream, review);
