/** Render Markdown into an element, complete or while it streams. */

import { levelHeadings } from "./decoration";
import { linkDefinitions, type LinkDefinitions } from "./html";
import { segmentView, type SegmentView } from "./segment-views";
import { Segments, type Segment } from "./segments";
import { withoutIncomplete } from "./incomplete";

/** Milliseconds of rendering before the browser gets a turn. */
const FRAME_BUDGET = 24;
/** A slow text is rendered less often, so that it takes a quarter of the time at most. */
const FAST = 6;
const PAUSE = 3;

export class MarkdownRenderer {
  readonly #container: HTMLElement;
  /** The text to show, and the part of it that was parsed. */
  #target = "";
  #text = "";
  #segments = new Segments();
  #definitions: LinkDefinitions = new Map();
  /** The views: first of settled segments, then of the others. */
  #views: SegmentView[] = [];
  #kept: Segment[] = [];
  /** How many formulas there are before each view, and after the last. */
  #formulas = [0];
  /** Settled segments that wait, and the indexes of those to render again. */
  #waiting: Segment[] = [];
  readonly #stale = new Set<number>();
  #frame: number | null = null;
  #pause: ReturnType<typeof setTimeout> | undefined;
  /** Do not render before this time. */
  #next = 0;
  #isGrowing = true;

  constructor(container: HTMLElement) {
    this.#container = container;
  }

  /** Show a text: at once, or with the next frame while it grows. */
  show(text: string, isGrowing: boolean): void {
    this.#target = text;
    this.#isGrowing = isGrowing;
    if (this.#text === "" || !isGrowing) this.draw();
    else this.#schedule();
  }

  /** Render pending text; all of it, if the time is unlimited. */
  draw(budget = FRAME_BUDGET): void {
    this.close();
    const start = performance.now();
    this.#take();
    if (!this.#drawSettled(start + budget)) return this.#schedule();
    this.#drawRest();
    if (!this.#drawSettled(start + budget)) this.#schedule();
    levelHeadings(this.#container);
    const end = performance.now();
    this.#next = end - start > FAST ? end + (end - start) * PAUSE : 0;
  }

  close(): void {
    if (this.#frame !== null) cancelAnimationFrame(this.#frame);
    this.#frame = null;
    clearTimeout(this.#pause);
    this.#pause = undefined;
  }

  #schedule(): void {
    if (this.#frame !== null || this.#pause !== undefined) return;
    const pause = this.#next - performance.now();
    if (pause <= 0) {
      this.#frame = requestAnimationFrame(() => this.draw());
      return;
    }
    this.#pause = setTimeout(() => {
      this.#pause = undefined;
      this.#next = 0;
      this.#schedule();
    }, pause);
  }

  /** Render settled segments. Returns false if time ran out. */
  #drawSettled(until: number): boolean {
    for (const index of this.#stale) {
      if (performance.now() > until) return false;
      this.#stale.delete(index);
      this.#put(index, this.#kept[index] as Segment);
    }
    while (this.#waiting.length > 0) {
      if (performance.now() > until) return false;
      const segment = this.#waiting.shift() as Segment;
      this.#put(this.#kept.length, segment);
      this.#kept.push(segment);
    }
    return true;
  }

  #drawRest(): void {
    const rest = this.#isGrowing ? this.#segments.rest.map(unfinished) : this.#segments.rest;
    if (!this.#isGrowing) this.#define(rest);
    rest.forEach((segment, index) => this.#put(this.#kept.length + index, segment));
    for (const view of this.#views.splice(this.#kept.length + rest.length))
      for (const node of view.nodes) node.remove();
  }

  /** Parse added text; only here, since much may arrive before a frame. */
  #take(): void {
    if (!this.#target.startsWith(this.#text)) this.#forget();
    const settled = this.#segments.take(this.#target.slice(this.#text.length));
    this.#text = this.#target;
    this.#waiting.push(...settled);
    this.#define(settled);
  }

  /** Add link definitions, and render segments again that may refer to them. */
  #define(segments: readonly Segment[]): void {
    let isNew = false;
    for (const { kind, source } of segments) {
      if (kind !== "prose") continue;
      for (const [name, definition] of linkDefinitions(source)) {
        if (this.#definitions.has(name)) continue;
        this.#definitions.set(name, definition);
        isNew = true;
      }
    }
    if (!isNew) return;
    for (const index of this.#kept.keys()) if (this.#views[index]?.mayRefer) this.#stale.add(index);
  }

  /** Render a segment at its index, reusing the view there if possible. */
  #put(index: number, segment: Segment): void {
    const existing = this.#views[index];
    const formulasBefore = this.#formulas[index] as number;
    const context = { definitions: this.#definitions, formulasBefore };
    if (existing?.become(segment, context)) {
      this.#formulas[index + 1] = formulasBefore + existing.formulas;
      return;
    }
    const former = existing?.nodes ?? [];
    const view = segmentView(segment, context, former);
    this.#formulas[index + 1] = formulasBefore + view.formulas;
    for (const node of former) if (!view.nodes.includes(node)) node.remove();
    this.#views[index] = view;
    const next = this.#views.slice(index + 1).find(({ nodes }) => nodes.length > 0)?.nodes[0] ?? null;
    for (const node of view.nodes) this.#container.insertBefore(node, next);
  }

  #forget(): void {
    this.#text = "";
    this.#segments = new Segments();
    this.#definitions = new Map();
    this.#views = [];
    this.#kept = [];
    this.#formulas = [0];
    this.#waiting = [];
    this.#stale.clear();
    this.#container.replaceChildren();
  }
}

function unfinished(segment: Segment): Segment {
  return segment.kind === "prose" ? { ...segment, source: withoutIncomplete(segment.source) } : segment;
}
