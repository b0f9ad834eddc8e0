// The Vercel AI SDK with the default model of its OpenAI provider. It refers to the items of earlier answers;
// with the argument `conversation`, it names a conversation and leaves them out.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { baseURL, model, run } from "./dialogue.mjs";

const tools = {
  weather: tool({
    description: "Return the weather of a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `Rain in ${city}.`,
  }),
};
let conversation;
if (process.argv[2]) {
  const created = await fetch(`${baseURL}/conversations`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: "{}",
  });
  conversation = (await created.json()).id;
}
let references = 0;

function counted(url, init) {
  const { input } = JSON.parse(init.body);
  references += input.filter((item) => item.type === "item_reference").length;
  return fetch(url, init);
}

const options = {
  model: createOpenAI({ baseURL, apiKey: "none", fetch: counted })(model),
  tools,
  stopWhen: stepCountIs(5),
  ...(conversation && {
    providerOptions: { openai: { conversation } },
    // It would send the question again, before the result of the tool.
    prepareStep: ({ messages, stepNumber }) => (stepNumber ? { messages: messages.slice(-1) } : {}),
  }),
};
const history = [];
let last;

function asked(question) {
  const user = { role: "user", content: question };
  // The provider leaves out answers that the conversation has, but not questions.
  return conversation ? [user] : [...history, user];
}

function remember(question, response) {
  history.push({ role: "user", content: question }, ...response.messages);
  last = response.id;
}

async function ask(question) {
  const { text, response } = await generateText({ ...options, messages: asked(question) });
  remember(question, response);
  return text;
}

async function* stream(question) {
  const stopping = new AbortController();
  const result = streamText({ ...options, messages: asked(question), abortSignal: stopping.signal, onError() {} });
  let text = "";
  let isEnded = false;
  try {
    for await (const part of result.fullStream) {
      if (part.type === "error") {
        isEnded = true;
        throw new Error(JSON.stringify(part.error?.message ?? part.error));
      }
      if (part.type === "text-delta") {
        text += part.text;
        yield part.text;
      }
    }
    isEnded = true;
    remember(question, await result.response);
  } finally {
    stopping.abort();
    if (!isEnded) history.push({ role: "user", content: question }, { role: "assistant", content: text });
  }
}

async function review() {
  if (conversation) return conversation;
  if (!references) throw new Error("it referred to no item");
  return last;
}

await run(ask, stream, review);
