// The other end of `story.py`, for clients in Node: see dialogue.py.
import { createInterface } from "node:readline";

export const baseURL = process.env.COMPAT_URL + "/v1";
export const headers = { "X-Conversation-Id": process.env.COMPAT_CONVERSATION };
export const model = process.env.COMPAT_MODEL;

export async function run(ask, stream, review) {
  for await (const line of createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    const reply = { text: "", error: null };
    try {
      if (order.way === "ask") reply.text = await ask(order.text);
      else if (order.way === "review") reply.text = await review();
      else
        for await (const piece of stream(order.text)) {
          reply.text += piece;
          if (piece && order.way === "stop") break;
        }
    } catch (error) {
      reply.error = `${error.name}: ${error.message}`;
    }
    process.stdout.write(JSON.stringify(reply) + "\n");
  }
}
