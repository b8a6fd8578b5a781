/** The files of the page. They are in the code, so that bundlers take them along. */

/** Their texts by their names, which `js/rolldown.config.mjs` puts here: those of `ui/`, and `shared.mjs`. */
declare const PAGE_FILES: Readonly<Record<string, string>>;

const TEXTS = PAGE_FILES;

const TYPES: Readonly<Record<string, string>> = {
  css: 'text/css; charset=utf-8',
  html: 'text/html; charset=utf-8',
  mjs: 'text/javascript; charset=utf-8',
};

/** A file, ready to be sent. @internal */
interface StaticFile {
  readonly type: string;
  readonly text: string;
}

/** The file of that name; undefined if the page has none. @internal */
export function fileOf(name: string): StaticFile | undefined {
  const text = Object.hasOwn(TEXTS, name) ? TEXTS[name] : undefined;
  if (text === undefined) return undefined;
  const type = TYPES[name.slice(name.lastIndexOf('.') + 1)] ?? 'application/octet-stream';
  return { type, text };
}
