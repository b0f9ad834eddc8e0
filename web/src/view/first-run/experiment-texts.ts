/** Labels of the experiments, and the text of each step. */

import type { ExperimentName, ExperimentStep } from "../../first-run/experiments";

interface ExperimentLabel {
  readonly name: string;
  /** A short label, where there is little room. */
  readonly short: string;
  readonly what: string;
}

export const EXPERIMENT_LABELS: Readonly<Record<ExperimentName, ExperimentLabel>> = {
  vanish: {
    name: "See a failed turn vanish",
    short: "Failed turn",
    what: "The model breaks down in the middle of its answer.",
  },
  stop: {
    name: "Stop an answer and keep it",
    short: "Stop an answer",
    what: "It answers slowly, and you stop it when you like.",
  },
  tabs: {
    name: "Watch two tabs agree",
    short: "Two tabs",
    what: "The same chat twice, the same words at the same time.",
  },
};

const STEP_TEXTS = {
  vanish: {
    running: "Three words come, and then the model breaks down…",
    done:
      "The model broke down, so the turn never happened: the history is as it was, and your text is back " +
      "below. Nothing is ever half there.",
    missed: "This time nothing failed. Try it again.",
  },
  stop: {
    running: "It takes its time. Press Stop when you have read a few words.",
    done:
      "You stopped it, and what was said until then is in the history. The model knows how far it got, and " +
      "you can go on from there.",
    early:
      "You stopped it before the first word, so there was nothing to keep: your text is back. Try again, " +
      "and wait for a word or two.",
    missed: "It had said everything before you stopped it. Try it again.",
  },
  tabs: {
    greeting: "A chat for two tabs is being made…",
    ready: "Open this chat in a second tab, write something there, and look back here.",
    done:
      "That came from the other tab. There is one history, and whoever looks at it sees the same, even " +
      "while an answer is still coming.",
    second: "This is the second tab. Write something here, and watch it arrive in the first one.",
    missed: "The chat could not be made. Try it again.",
  },
} as const;

export function stepText(step: ExperimentStep): string {
  return (STEP_TEXTS[step.name] as Readonly<Record<string, string>>)[step.at] ?? "";
}

export const ALL_TRIED = "You have seen all three. What you write from here on is kept the same way.";
