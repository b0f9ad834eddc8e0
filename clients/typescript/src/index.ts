export { Chat } from "./chat.js";
export type {
  AnswerOptions,
  ChatChanges,
  ChatName,
  MoveOptions,
  StreamOptions,
  TurnOptions,
} from "./chat.js";
export { Chats, Client } from "./client.js";
export type { ListOptions, NewChat } from "./client.js";
export * as errors from "./errors.js";
export { TurnledgerError } from "./errors.js";
export type { Identified } from "./ids.js";
export { Pages } from "./pages.js";
export type { Page } from "./pages.js";
export type * from "./shapes.js";
export { Shares } from "./shares.js";
export type { NewShare } from "./shares.js";
export { Stream } from "./stream.js";
export { Tokens } from "./tokens.js";
export type { NewToken } from "./tokens.js";
export { textOf, TurnStream, wordsOf } from "./turn-stream.js";
export type { StopOptions } from "./turn-stream.js";
export type { CallOptions, ClientOptions, Recorder, Retries, Timeouts, Unsent } from "./wire.js";
