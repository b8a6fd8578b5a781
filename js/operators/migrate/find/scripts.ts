/** Lua scripts that take, extend or release a lock. */

import { calledName, contains, type Node, nameOf, type Source } from './source.js';

/** What a script does to a lock. */
export type ScriptKind = 'acquire' | 'extend' | 'release';

const CALLS = /\b(?:redis\s*\.\s*p?call|rcall|call)\s*\(/i;
const GETS = /call\s*\(\s*\\?["']h?(?:get|exists|hexists)\\?["']/i;
const DELETES = /call\s*\(\s*\\?["'](?:h?del|unlink)\\?["']/i;
const EXTENDS = /call\s*\(\s*\\?["'](?:p?expire|p?expireat|setex|psetex)\\?["']/i;
const SETS_NX = /call\s*\(\s*\\?["']setnx\\?["']|call\s*\(\s*\\?["']set\\?["'][^)]*["']nx\\?["']/i;
const COMPARES =
  /(?:[=~]=\s*(?:tostring\s*\(\s*)?(?:ARGV\s*\[|(?!nil\b|false\b|true\b)[a-z_]\w*)|ARGV\s*\[\s*\d+\s*\]\s*[=~]=)/i;
const CHECKS_FREE =
  /call\s*\(\s*\\?["'](?:exists|get)\\?["'][^)]*\)\s*(?:[=~]=\s*(?:0|1|false|nil)\b|then\b)/i;
const SETS = /call\s*\(\s*\\?["']h?set\\?["']/i;
const SETS_EXPIRY = /call\s*\(\s*\\?["']set\\?["'][^)]*["'][ep]x\\?["']/i;

/** A counter, a list or a set is no lock. */
const OTHER =
  /["'](?:h?incr(?:by)?(?:float)?|decr(?:by)?|[lr]push|[lr]pop|lrange|zadd|zrange\w*|zrem\w*|zcard|xadd|rpoplpush|hmget|hgetall)\\?["']/i;

/** Whether a text is a script for Redis. */
function isScript(text: string): boolean {
  return CALLS.test(text) && text.length < 20_000;
}

/** What a script does; undefined if it is no script of a lock. */
function kindOfScript(text: string): ScriptKind | undefined {
  if (!isScript(text) || OTHER.test(text)) return undefined;
  if (SETS_NX.test(text)) return 'acquire';
  const compares = GETS.test(text) && COMPARES.test(text);
  if (compares && DELETES.test(text)) return 'release';
  const expires = EXTENDS.test(text) || SETS_EXPIRY.test(text);
  if (CHECKS_FREE.test(text) && SETS.test(text) && expires) return 'acquire';
  if (compares && (SETS_EXPIRY.test(text) || (EXTENDS.test(text) && !SETS.test(text))))
    return 'extend';
  return undefined;
}

/** Reads the text of a script's file, which a path in the code names; undefined if there is none. */
export type ReadScript = (name: string) => string | undefined;

/** A script in the code, or the name of its file. */
export interface FoundScript {
  readonly node: Node;
  readonly kind: ScriptKind;
}

/** The scripts of locks in a file. */
export class Scripts {
  readonly found: readonly FoundScript[];
  /** The methods that `defineCommand` or the option `scripts` makes of scripts. */
  readonly methods: ReadonlyMap<string, ScriptKind>;
  readonly #source: Source;

  constructor(source: Source, readFile: ReadScript) {
    this.#source = source;
    this.found = findScripts(source, readFile);
    const named = this.found.flatMap(({ node, kind }): [string, ScriptKind][] => {
      const name = methodOf(source, node);
      return name === undefined ? [] : [[name, kind]];
    });
    this.methods = new Map(named);
  }

  /**
   * What the script does that an expression stands for, also the hash of a loaded one: `other` if that is nothing to a
   * lock, undefined if the file does not have it.
   */
  kindOf(expression: Node): ScriptKind | 'other' | undefined {
    const node = this.#source.resolve(expression);
    const text = this.#source.string(node);
    if (text !== undefined && isScript(text)) return kindOfScript(text) ?? 'other';
    const inside = this.found.find((script) => contains(node, script.node));
    if (inside !== undefined) return inside.kind;
    if (node.type !== 'CallExpression' && node.type !== 'NewExpression') return undefined;
    const loaded = node.arguments.map((each) => this.#source.resolve(each));
    return this.found.find((script) => loaded.some((each) => contains(each, script.node)))?.kind;
  }
}

function findScripts(source: Source, readFile: ReadScript): FoundScript[] {
  const found: FoundScript[] = [];
  let end = -1;
  for (const node of source.nodes) {
    if (!isText(node) || node.start < end) continue;
    const text = source.string(node);
    if (text === undefined) continue;
    const file = /[\w-]+\.lua$/.exec(text)?.[0];
    const script = file === undefined ? text : readFile(file);
    if (script === undefined || !isScript(script)) continue;
    // Its parts are no scripts of their own.
    end = node.end;
    const kind = kindOfScript(script);
    if (kind !== undefined) found.push({ node, kind });
  }
  return found;
}

/** Whether a node may stand for a text. */
export function isText(node: Node): boolean {
  if (node.type === 'Literal') return typeof node.value === 'string';
  if (node.type === 'CallExpression') return calledName(node) === 'join';
  return (
    node.type === 'TemplateLiteral' || (node.type === 'BinaryExpression' && node.operator === '+')
  );
}

/** The name under which clients call a script: of `defineCommand(name, …)`, or of its property in `scripts`. */
function methodOf(source: Source, node: Node): string | undefined {
  for (const user of [node, ...usesOf(source, node)]) {
    for (const each of source.around(user)) {
      if (each.type !== 'CallExpression') continue;
      if (calledName(each) === 'defineCommand') return source.string(each.arguments[0]);
      if (calledName(each) !== 'defineScript') continue;
      const parent = source.parent(each);
      if (parent?.type === 'Property') return nameOf(parent.key);
      if (parent?.type === 'VariableDeclarator') return nameOf(parent.id);
    }
  }
  return undefined;
}

/** The uses of the name that a script is declared by. */
function usesOf(source: Source, node: Node): Node[] {
  const parent = source.parent(node);
  const id =
    parent?.type === 'VariableDeclarator'
      ? parent.id
      : parent?.type === 'Property' || parent?.type === 'PropertyDefinition'
        ? parent.key
        : undefined;
  const name = id === undefined ? '' : nameOf(id);
  if (name === '') return [];
  return source.nodes.filter(
    (each) => each.type === 'Identifier' && each.name === name && each !== id,
  );
}
