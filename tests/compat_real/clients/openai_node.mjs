// The official client. The program keeps the history, with the part that arrived of a stopped answer.
import OpenAI from "openai";
import { baseURL, headers, model, run } from "./dialogue.mjs";

const client = new OpenAI({ baseURL, apiKey: "none", defaultHeaders: headers });
const history = [];

function remember(question, answer) {
  history.push({ role: "user", content: question }, { role: "assistant", content: answer });
}

async function ask(question) {
  const messages = [...history, { role: "user", content: question }];
  const answer = await client.chat.completions.create({ model, messages });
  const text = answer.choices[0].message.content ?? "";
  remember(question, text);
  return text;
}

async function* stream(question) {
  const messages = [...history, { role: "user", content: question }];
  const chunks = await client.chat.completions.create({ model, messages, stream: true });
  let text = "";
  let isFailed = false;
  try {
    for await (const chunk of chunks) {
      const piece = chunk.choices[0]?.delta.content ?? "";
      text += piece;
      yield piece;
    }
  } catch (error) {
    isFailed = true;
    throw error;
  } finally {
    if (!isFailed) remember(question, text);
  }
}

await run(ask, stream);
