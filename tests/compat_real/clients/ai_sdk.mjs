// The Vercel AI SDK with either provider: `openai-compatible`, or `openai` and its `.chat()`.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import { baseURL, headers, model, run } from "./dialogue.mjs";

const options = { baseURL, apiKey: "none", headers };
const chosen =
  process.argv[2] === "openai"
    ? createOpenAI(options).chat(model)
    : createOpenAICompatible({ name: "turnledger", ...options })(model);
const history = [];

function remember(question, answer) {
  history.push({ role: "user", content: question }, { role: "assistant", content: answer });
}

async function ask(question) {
  const { text } = await generateText({ model: chosen, messages: [...history, { role: "user", content: question }] });
  remember(question, text);
  return text;
}

async function* stream(question) {
  const stopping = new AbortController();
  const { fullStream } = streamText({
    model: chosen,
    messages: [...history, { role: "user", content: question }],
    abortSignal: stopping.signal,
    onError() {},
  });
  let text = "";
  let isFailed = false;
  try {
    for await (const part of fullStream) {
      if (part.type === "error") throw part.error;
      if (part.type === "text-delta") {
        text += part.text;
        yield part.text;
      }
    }
  } catch (error) {
    isFailed = true;
    throw error;
  } finally {
    stopping.abort();
    if (!isFailed) remember(question, text);
  }
}

await run(ask, stream);
