/** Compact grammars for highlight.js. Its own grammars of these similar languages are as large as the rest of the page
 * together; these know keywords, strings, comments, calls and types. */

import type { HLJSApi, Language, LanguageFn, Mode } from "highlight.js";

interface Words {
  readonly name: string;
  readonly keyword: string;
  readonly type?: string;
  readonly literal?: string;
  readonly isCaseless?: boolean;
}

const NUMBER: Mode = {
  scope: "number",
  begin: /\b(?:0[xX][\da-fA-F_]+|0[bB][01_]+|\d[\d_']*(?:\.\d[\d_]*)?(?:[eE][-+]?\d+)?)[a-zA-Z]{0,3}\b/,
};
const DOUBLE: Mode = { scope: "string", begin: /"(?:\\.|[^"\\\n])*"/ };
const SINGLE: Mode = { scope: "string", begin: /'(?:\\.|[^'\\\n])*'/ };
/** A letter in quotes; where a quote may mean something else, too. */
const LETTER: Mode = { scope: "string", begin: /'(?:\\[^\n']{1,10}|[^'\\\n])'/ };
const TICKED: Mode = { scope: "string", begin: /`/, end: /`/, contains: [{ begin: /\\[\s\S]/ }] };
const TRIPLE: Mode = { scope: "string", begin: /"""/, end: /"""/ };
const PATTERN: Mode = {
  scope: "regexp",
  begin: /(?<=[=(,:;!&|?{[\n][ \t]{0,9})\/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\/[a-z]*/,
};
const TYPE: Mode = { scope: "type", begin: /\b[A-Z][A-Za-z\d_]*\b/ };
const MARK: Mode = { scope: "meta", begin: /@[A-Za-z_][\w.]*/ };
const DIRECTIVE: Mode = { scope: "meta", begin: /^[ \t]*#[ \t]*[a-z]+/ };
const ATTRIBUTE: Mode = { scope: "meta", begin: /#!?\[[^\]\n]*\]/ };
const VARIABLE: Mode = { scope: "variable", begin: /[$@]{1,2}[a-zA-Z_]\w*/ };
const SYMBOL: Mode = { scope: "symbol", begin: /(?<![:\w]):[a-zA-Z_]\w*/ };

const LITERALS = "true false null nil None undefined NaN NULL nullptr";

function splitWords(words: string): string[] {
  return words.trim().split(/\s+/);
}

function language(words: Words, more: (hljs: HLJSApi) => Mode[]): LanguageFn {
  return (hljs): Language => {
    const keywords = {
      $pattern: /[A-Za-z_]\w*/,
      keyword: splitWords(words.keyword),
      type: splitWords(words.type ?? ""),
      literal: splitWords(words.literal ?? LITERALS),
    };
    const call: Mode = { scope: "title", begin: /\b[A-Za-z_]\w*(?=\()/, keywords };
    const contains = [...more(hljs), NUMBER, call, ...(words.isCaseless ? [] : [TYPE])];
    return { name: words.name, case_insensitive: words.isCaseless ?? false, keywords, contains };
  };
}

/** With comments as in C. */
function cLike(words: Words, ...more: Mode[]): LanguageFn {
  return language(words, (hljs) => [hljs.C_LINE_COMMENT_MODE, hljs.C_BLOCK_COMMENT_MODE, ...more, DOUBLE]);
}

const FLOW = "if else for while do switch case default break continue return";
const OBJECTS = `class interface enum extends implements new this super public private protected static abstract
  final try catch finally throw import package`;

export const typescript = cLike(
  {
    name: "TypeScript",
    keyword: `
      ${FLOW} ${OBJECTS} const let var function async await yield of in instanceof typeof void delete export from as
      type declare readonly namespace satisfies keyof infer is get set with debugger`,
    type: "string number boolean any unknown never object symbol bigint",
  },
  SINGLE,
  TICKED,
  PATTERN,
  MARK,
);

export const cpp = cLike(
  {
    name: "C++",
    keyword: `
      ${FLOW} goto const constexpr static extern inline volatile register typedef struct union enum sizeof class
      namespace template typename using new delete this public private protected virtual override final explicit
      friend operator try catch throw noexcept auto decltype static_cast dynamic_cast reinterpret_cast const_cast
      co_await co_return co_yield concept requires`,
    type: `
      void bool char short int long float double signed unsigned size_t wchar_t int8_t int16_t int32_t int64_t
      uint8_t uint16_t uint32_t uint64_t string vector map`,
  },
  LETTER,
  DIRECTIVE,
);

export const csharp = cLike(
  {
    name: "C#",
    keyword: `
      ${FLOW} ${OBJECTS} namespace using struct record delegate event get set init value var const readonly ref out
      in is as async await yield foreach lock internal sealed virtual override partial operator params base typeof
      sizeof nameof where select from when with unsafe`,
    type: "void bool byte char short int long float double decimal string object dynamic",
  },
  LETTER,
  DIRECTIVE,
);

export const java = cLike(
  {
    name: "Java",
    keyword: `
      ${FLOW} ${OBJECTS} throws synchronized volatile transient native instanceof assert var record sealed permits
      yield module`,
    type: "void boolean byte char short int long float double",
  },
  TRIPLE,
  LETTER,
  MARK,
);

export const kotlin = cLike(
  {
    name: "Kotlin",
    keyword: `
      ${FLOW} ${OBJECTS} fun val var when object companion data sealed override open internal lateinit by in is as
      out where init constructor suspend inline operator infix typealias it`,
  },
  TRIPLE,
  LETTER,
  MARK,
);

export const swift = cLike(
  {
    name: "Swift",
    keyword: `
      ${FLOW} func let var guard in is as where struct enum class protocol extension init deinit self Self super
      import public private internal open fileprivate static mutating override final lazy weak throws rethrows throw
      try catch defer repeat async await some any actor associatedtype typealias subscript inout`,
  },
  TRIPLE,
  MARK,
);

export const go = cLike(
  {
    name: "Go",
    keyword: `
      ${FLOW} func var const type struct interface map chan package import go defer select range fallthrough goto`,
    type: `
      bool string error any byte rune int int8 int16 int32 int64 uint uint8 uint16 uint32 uint64 uintptr float32
      float64 complex64 complex128`,
    literal: "true false nil iota",
  },
  LETTER,
  TICKED,
);

export const rust = cLike(
  {
    name: "Rust",
    keyword: `
      as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut
      pub ref return self Self static struct super trait type union unsafe use where while`,
    type: "bool char str i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize f32 f64",
  },
  LETTER,
  ATTRIBUTE,
);

export const php = cLike(
  {
    name: "PHP",
    keyword: `
      ${FLOW} ${OBJECTS} function fn use namespace echo print foreach as elseif endif endforeach const global var
      trait match instanceof insteadof require require_once include include_once yield readonly array isset unset
      empty list die exit`,
    type: "string int float bool array object mixed void iterable callable",
    isCaseless: true,
  },
  { scope: "comment", begin: /(?<![&$\w])#(?!\[)[^\n]*/ },
  { scope: "meta", begin: /<\?(?:php|=)?|\?>/ },
  VARIABLE,
  SINGLE,
);

export const ruby = language(
  {
    name: "Ruby",
    keyword: `
      alias and begin break case class def defined do else elsif end ensure for if in module next not or redo rescue
      retry return self super then undef unless until when while yield require require_relative include extend
      attr_accessor attr_reader attr_writer private public protected raise puts lambda proc`,
  },
  (hljs) => [
    hljs.HASH_COMMENT_MODE,
    { scope: "comment", begin: /^=begin/, end: /^=end/ },
    DOUBLE,
    SINGLE,
    SYMBOL,
    VARIABLE,
  ],
);

export const sql = language(
  {
    name: "SQL",
    keyword: `
      select from where and or not in is like ilike between exists distinct as on using join inner left right full
      outer cross natural group by order having limit offset fetch union all intersect except insert into values
      update set delete create alter drop table view index unique primary foreign key references constraint check
      default cascade if begin commit rollback transaction with recursive returning case when then else end over
      partition window rows range asc desc nulls first last explain analyze grant revoke to truncate add column
      trigger function procedure language returns replace temporary conflict do nothing`,
    type: `
      int integer bigint smallint serial bigserial text varchar char boolean date time timestamp timestamptz
      interval numeric decimal real float double precision json jsonb uuid bytea blob`,
    isCaseless: true,
  },
  (hljs) => [
    { scope: "comment", begin: /--[^\n]*/ },
    hljs.C_BLOCK_COMMENT_MODE,
    { scope: "string", begin: /'(?:''|[^'])*'/ },
    { scope: "variable", begin: /"[^"\n]*"|[:@$]\w+/ },
  ],
);

export const lua = language(
  {
    name: "Lua",
    keyword: "and break do else elseif end for function goto if in local not or repeat return then until while",
  },
  () => [
    { scope: "comment", begin: /--\[\[/, end: /\]\]/ },
    { scope: "comment", begin: /--[^\n]*/ },
    { scope: "string", begin: /\[\[/, end: /\]\]/ },
    DOUBLE,
    SINGLE,
  ],
);

export const css: LanguageFn = ({ C_BLOCK_COMMENT_MODE }) => ({
  name: "CSS",
  contains: [
    C_BLOCK_COMMENT_MODE,
    DOUBLE,
    SINGLE,
    { scope: "keyword", begin: /@[\w-]+|!important\b/ },
    { scope: "attribute", begin: /(?<=[{;/][ \t\n]{0,100})[\w-]+(?=[ \t]{0,100}:)/ },
    { scope: "number", begin: /#[\da-fA-F]{3,8}\b(?=[^{]{0,100};)|\b\d+(?:\.\d+)?(?:%|[a-z]+)?/ },
    { scope: "selector-class", begin: /[.#:][\w-]+(?=[^;}]{0,200}\{)/ },
  ],
});
