/** Language names as written after a code fence: their grammar and their label. */

import { strings } from "../../strings";

const NAMES: Readonly<Record<string, readonly [highlighted: string, shown: string]>> = {
  bash: ["bash", "Bash"],
  c: ["cpp", "C"],
  "c#": ["csharp", "C#"],
  "c++": ["cpp", "C++"],
  cjs: ["typescript", "JavaScript"],
  console: ["shell", "Console"],
  cpp: ["cpp", "C++"],
  cs: ["csharp", "C#"],
  csharp: ["csharp", "C#"],
  css: ["css", "CSS"],
  diff: ["diff", "Diff"],
  docker: ["dockerfile", "Dockerfile"],
  dockerfile: ["dockerfile", "Dockerfile"],
  go: ["go", "Go"],
  golang: ["go", "Go"],
  h: ["cpp", "C"],
  htm: ["xml", "HTML"],
  html: ["xml", "HTML"],
  ini: ["ini", "INI"],
  java: ["java", "Java"],
  javascript: ["typescript", "JavaScript"],
  js: ["typescript", "JavaScript"],
  json: ["json", "JSON"],
  json5: ["json", "JSON"],
  jsonc: ["json", "JSON"],
  jsonl: ["json", "JSON"],
  jsx: ["typescript", "JSX"],
  kotlin: ["kotlin", "Kotlin"],
  kt: ["kotlin", "Kotlin"],
  lua: ["lua", "Lua"],
  make: ["makefile", "Makefile"],
  makefile: ["makefile", "Makefile"],
  markdown: ["markdown", "Markdown"],
  md: ["markdown", "Markdown"],
  mjs: ["typescript", "JavaScript"],
  patch: ["diff", "Diff"],
  php: ["php", "PHP"],
  py: ["python", "Python"],
  python: ["python", "Python"],
  python3: ["python", "Python"],
  rb: ["ruby", "Ruby"],
  rs: ["rust", "Rust"],
  ruby: ["ruby", "Ruby"],
  rust: ["rust", "Rust"],
  sh: ["bash", "Shell"],
  shell: ["bash", "Shell"],
  sql: ["sql", "SQL"],
  svg: ["xml", "SVG"],
  swift: ["swift", "Swift"],
  toml: ["ini", "TOML"],
  ts: ["typescript", "TypeScript"],
  tsx: ["typescript", "TSX"],
  typescript: ["typescript", "TypeScript"],
  xml: ["xml", "XML"],
  yaml: ["yaml", "YAML"],
  yml: ["yaml", "YAML"],
  zsh: ["bash", "Shell"],
};

export function grammarName(language: string): string | null {
  return (Object.hasOwn(NAMES, language) && NAMES[language]?.[0]) || null;
}

export function languageLabel(language: string): string {
  return (Object.hasOwn(NAMES, language) && NAMES[language]?.[1]) || language || strings.markdown.plainText;
}
