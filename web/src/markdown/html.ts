/** Convert Markdown to HTML. The result is untrusted and must be sanitized. */

import { Lexer, Parser, Renderer, Tokenizer, type MarkedOptions, type MarkedToken, type Tokens } from "marked";
import { extractFormulas, restoreFormulas, withoutBreaks, type Formula } from "./maths/formulas";

/** Link definitions by name. The first definition wins. */
export type LinkDefinitions = Map<string, { readonly href: string; readonly title: string | undefined }>;

/** The page's own headings rank above those of any text. */
const TOP_LEVEL = 2;
const MAX_DEFINITION_LINES = 9;
const LINE_BREAK = /^<br *\/?>/i;

class TextTokenizer extends Tokenizer {
  override html(): undefined {
    return undefined;
  }

  /** Models break lines in tables like this: there is no other way. */
  override tag(source: string): Tokens.Tag | undefined {
    const found = LINE_BREAK.exec(source);
    return found ? ({ type: "br", raw: found[0] } as unknown as Tokens.Tag) : undefined;
  }

  /** marked allows an empty line in a title, which would break the end of a segment. */
  override def(source: string): Tokens.Def | undefined {
    let end = -1;
    for (let line = 0; line < MAX_DEFINITION_LINES; line += 1) {
      const next = source.indexOf("\n", end + 1);
      if (next < 0) return super.def(source);
      if (end >= 0 && source.slice(end, next).trim() === "") break;
      end = next;
    }
    return super.def(source.slice(0, end + 1));
  }
}

class TextRenderer extends Renderer {
  /** The formulas of the text, for which it has placeholders. */
  formulas: readonly Formula[] = [];

  override heading({ tokens, depth }: Tokens.Heading): string {
    const level = Math.min(6, depth + TOP_LEVEL - 1);
    return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>`;
  }

  override code({ text, lang }: Tokens.Code): string {
    const language = /^[\w+#.-]{1,40}/.exec(lang ?? "")?.[0].toLowerCase();
    const named = language === undefined ? "" : ` data-language="${escaped(language)}"`;
    return `<pre${named}>${escaped(this.#typed(text).replace(/\n$/, ""))}</pre>`;
  }

  override codespan({ text }: Tokens.Codespan): string {
    return `<code>${escaped(this.#typed(text))}</code>`;
  }

  override html({ text }: Tokens.HTML | Tokens.Tag): string {
    return escaped(text);
  }

  override checkbox({ checked }: Tokens.Checkbox): string {
    return `<span data-task="${checked ? "done" : "open"}"></span>`;
  }

  override tablecell(cell: Tokens.TableCell): string {
    const kind = cell.header ? `th scope="col"` : "td";
    const side = cell.align ? ` align="${cell.align}"` : "";
    return `<${kind}${side}>${this.parser.parseInline(cell.tokens)}</${cell.header ? "th" : "td"}>`;
  }

  override link(link: Tokens.Link): string {
    const { title, tokens } = link;
    const href = this.#typed(link.href);
    const isBare = "autolink" in link && link.autolink === true;
    const address = isBare ? escaped(href) : resolvable(href);
    const label = isBare ? escaped(this.#typed(link.text)) : this.parser.parseInline(tokens);
    return `<a href="${address}"${this.#title(title)}>${label}</a>`;
  }

  /** A placeholder: whether to load the image is decided later. */
  override image({ href, title, text }: Tokens.Image): string {
    const [address, alt] = [href, text].map((each) => resolvable(this.#typed(each)));
    return `<span data-picture="${address}" data-alt="${alt}"${this.#title(title)}></span>`;
  }

  /** The HTML with its formulas. */
  withFormulas(html: string): string {
    return restoreFormulas(withoutBreaks(html, this.formulas), this.formulas, formulaHtml);
  }

  #title(title: string | null | undefined): string {
    return title ? ` title="${resolvable(this.#typed(title))}"` : "";
  }

  #typed(text: string): string {
    return restoreFormulas(text, this.formulas, ({ source }) => source);
  }
}

const renderer = new TextRenderer();
const OPTIONS: MarkedOptions = {
  gfm: true,
  breaks: true,
  tokenizer: new TextTokenizer(),
  renderer,
};

/** The HTML of a block: its items one by one, and the tags around them. */
export interface BlockHtml {
  readonly start: string;
  readonly items: readonly string[];
  readonly end: string;
}

/** What a segment takes from the rest of its message: link definitions, and the number of formulas before it. */
export interface MessageContext {
  readonly definitions: LinkDefinitions;
  readonly formulasBefore: number;
}

/** The blocks of a segment, and the number of its formulas. */
export interface SegmentHtml {
  readonly blocks: readonly BlockHtml[];
  readonly formulas: number;
}

/** Convert each block of Markdown that depends on nothing but this context. */
export function segmentToHtml(source: string, { definitions, formulasBefore }: MessageContext): SegmentHtml {
  const lexer = new Lexer(OPTIONS);
  const { links } = lexer.tokens;
  for (const [name, { href, title }] of definitions) links[name] = { href, title };
  const { text, formulas } = extractFormulas(source, formulasBefore);
  renderer.formulas = formulas;
  const tokens = lexer.lex(text) as MarkedToken[];
  const blocks = tokens.map(blockHtml);
  return {
    blocks: blocks.filter(({ start, items }) => start !== "" || items.some((html) => html.trim() !== "")),
    formulas: formulas.length,
  };
}

function blockHtml(token: MarkedToken): BlockHtml {
  const parser = new Parser(OPTIONS);
  if (token.type === "list") {
    const kind = token.ordered ? "ol" : "ul";
    const start = token.ordered && token.start !== 1 ? ` start="${token.start}"` : "";
    return {
      start: `<${kind}${start}>`,
      items: token.items.map((item) => renderer.withFormulas(renderer.listitem(item).trim())),
      end: `</${kind}>`,
    };
  }
  if (token.type === "table") {
    const row = (cells: Tokens.TableCell[]): string =>
      renderer.withFormulas(renderer.tablerow({ text: cells.map((cell) => renderer.tablecell(cell)).join("") }).trim());
    const head = `<table><thead>${row(token.header)}</thead><tbody>`;
    return { start: head, items: token.rows.map(row), end: "</tbody></table>" };
  }
  return { start: "", items: [renderer.withFormulas(parser.parse([token]))], end: "" };
}

export function linkDefinitions(source: string): LinkDefinitions {
  if (!source.includes("]:")) return new Map();
  const lexer = new Lexer(OPTIONS);
  lexer.blockTokens(source, lexer.tokens);
  return new Map(Object.entries(lexer.tokens.links) as [string, { href: string; title: string }][]);
}

/** A formula as typed; maths/typeset shows it. */
function formulaHtml({ source, isBlock, isTypeset }: Formula): string {
  if (!isTypeset) return escaped(source);
  return `<span data-maths="${isBlock ? "block" : "inline"}">${escaped(source)}</span>`;
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, reference);
}

/** Escape all but entities, which the HTML parser resolves. */
function resolvable(text: string): string {
  return text.replace(/[<>"']|&(?!#\d{1,7};|#[xX][\da-fA-F]{1,6};|\w+;)/g, reference);
}

function reference(letter: string): string {
  return `&#${letter.charCodeAt(0)};`;
}
