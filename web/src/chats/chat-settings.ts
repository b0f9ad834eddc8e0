/** Instructions and parameters of a chat. Its metadata holds them: they are the same in all tabs and on all devices. */

import type { ChatInfo } from "turnledger";
import type { SendOptions } from "../thread/thread";

type Metadata = ChatInfo["metadata"];

export interface ChatSettings {
  /** Null: those of other programs stay in force. Empty: none. */
  readonly instructions: string | null;
  /** Null: the default of the model. */
  readonly temperature: number | null;
  readonly maxTokens: number | null;
}

/** Characters of a value of metadata. */
const VALUE_LENGTH = 512;
/** How many values the instructions may take; others are left for other programs. */
const MAX_PARTS = 10;
export const MAX_INSTRUCTIONS = MAX_PARTS * VALUE_LENGTH;

const PREFIX = "turn.";
const INSTRUCTIONS = `${PREFIX}instructions`;
const TEMPERATURE = `${PREFIX}temperature`;
const MAX_TOKENS = `${PREFIX}max_tokens`;

/** Read the settings. Invalid values of other programs are ignored. */
export function settingsOf(metadata: Metadata): ChatSettings {
  const parts = Array.from({ length: MAX_PARTS }, (_, at) => metadata[partName(at)]);
  const end = parts.indexOf(undefined);
  return {
    instructions: end === 0 ? null : parts.slice(0, end < 0 ? MAX_PARTS : end).join(""),
    temperature: numberOf(metadata[TEMPERATURE]),
    maxTokens: numberOf(metadata[MAX_TOKENS]),
  };
}

/** The metadata with these settings in place of its own. */
export function withSettings(metadata: Metadata, settings: ChatSettings): Metadata {
  const others = Object.entries(metadata).filter(([name]) => !name.startsWith(PREFIX));
  const { instructions, temperature, maxTokens } = settings;
  const parts = instructions === null ? [] : partsOf(instructions);
  return Object.fromEntries([
    ...others,
    ...parts.map((part, at) => [partName(at), part]),
    ...(temperature === null ? [] : [[TEMPERATURE, String(temperature)]]),
    ...(maxTokens === null ? [] : [[MAX_TOKENS, String(maxTokens)]]),
  ]) as Metadata;
}

/** The part of the metadata that holds settings. */
export function settingsOnly(metadata: Metadata): Metadata {
  return withSettings({}, settingsOf(metadata));
}

/** The settings as options of a turn. Each turn has them, so that it is the same on every branch. */
export function turnOptionsOf({ instructions, temperature, maxTokens }: ChatSettings): SendOptions {
  const settings = {
    ...(temperature !== null && { temperature }),
    ...(maxTokens !== null && { max_tokens: maxTokens }),
  };
  return {
    ...(instructions !== null && { instructions }),
    ...(Object.keys(settings).length > 0 && { settings }),
  };
}

function partName(at: number): string {
  return at === 0 ? INSTRUCTIONS : `${INSTRUCTIONS}.${at + 1}`;
}

/** Cut by characters, never within one. */
function partsOf(text: string): string[] {
  const characters = Array.from(text);
  const count = Math.max(1, Math.ceil(characters.length / VALUE_LENGTH));
  return Array.from({ length: count }, (_, at) =>
    characters.slice(at * VALUE_LENGTH, (at + 1) * VALUE_LENGTH).join(""),
  );
}

function numberOf(text: string | undefined): number | null {
  const value = Number(text || NaN);
  return Number.isFinite(value) ? value : null;
}
