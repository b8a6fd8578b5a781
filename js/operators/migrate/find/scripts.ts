/** Lua scripts that take, extend or release a lock. */

import { calledName, contains, type Node, nameOf, type Source } from './source.js';
import { saysLock, wordsOf } from './words.js';

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

/** A script, and what it does. */
export interface Script {
  readonly kind: ScriptKind | 'other';
  readonly text: string;
}

/** A script in the code, or the name of its file. */
export interface FoundScript extends Script {
  readonly node: Node;
  readonly kind: ScriptKind;
}

/** An expiry that a script sets: a number, or the place of an argument, from 1. */
export interface ScriptExpiry {
  readonly unit: 'ms' | 's';
  readonly amount: number | { readonly argument: number };
}

const AMOUNT = /(?:tonumber\s*\(\s*)?(?:ARGV\s*\[\s*(\d+)\s*\]|(\d+))/.source;
const EXPIRIES = [
  `["'](px|ex)\\\\?["']\\s*,\\s*${AMOUNT}`,
  `["'](p?expire)\\\\?["']\\s*,[^,()]+,\\s*${AMOUNT}`,
  `["'](p?setex)\\\\?["']\\s*,[^,()]+,\\s*${AMOUNT}`,
].map((each) => new RegExp(each, 'i'));

/** The expiry that a script sets; undefined if it cannot be read. */
export function expiryOfScript(text: string): ScriptExpiry | undefined {
  let plain = text;
  for (const [, name, value] of text.matchAll(
    /\blocal\s+(\w+)\s*=\s*(?:tonumber\s*\(\s*)?(ARGV\s*\[\s*\d+\s*\])/g,
  ))
    plain = plain.replace(new RegExp(`\\b${name}\\b`, 'g'), value as string);
  const [, word = '', argument, number] =
    EXPIRIES.map((each) => each.exec(plain)).find((each) => each !== null) ?? [];
  if (word === '') return undefined;
  return {
    unit: /^p/i.test(word) ? 'ms' : 's',
    amount: argument === undefined ? Number(number) : { argument: Number(argument) },
  };
}

/** The effect of a script that no file tells, guessed from its name and from the names around its use. */
export function kindByName(name: string, place: string): ScriptKind | undefined {
  const words = wordsOf(name);
  const has = (...any: string[]) => any.some((word) => words.includes(word));
  if (!saysLock(`${name} ${place}`)) return undefined;
  if (has('unlock', 'release', 'del', 'delete')) return 'release';
  if (has('extend', 'renew', 'refresh', 'expire', 'prolong', 'keepalive')) return 'extend';
  return has('acquire', 'lock') ? 'acquire' : undefined;
}

/** The scripts of locks in a file. */
export class Scripts {
  readonly found: readonly FoundScript[];
  /** The methods that `defineCommand` or the option `scripts` makes of scripts. */
  readonly methods: ReadonlyMap<string, FoundScript>;
  readonly #source: Source;

  constructor(source: Source, readFile: ReadScript) {
    this.#source = source;
    const texts = findScripts(source, readFile);
    this.found = [...texts, ...findCommands(source, texts)];
    const named = this.found.flatMap((script): [string, FoundScript][] => {
      const name = methodOf(source, script.node);
      return name === undefined ? [] : [[name, script]];
    });
    this.methods = new Map(named);
  }

  /**
   * The script that an expression stands for, also by the hash of a loaded one: of the kind `other` if it is nothing to a
   * lock, undefined if the file does not have it.
   */
  scriptOf(expression: Node): Script | undefined {
    const node = this.#source.resolve(expression);
    const text = this.#source.string(node);
    if (text !== undefined && isScript(text)) return { kind: kindOfScript(text) ?? 'other', text };
    const inside = this.found.find((script) => contains(node, script.node));
    if (inside !== undefined) return inside;
    if (node.type !== 'CallExpression' && node.type !== 'NewExpression') return undefined;
    const loaded = node.arguments.map((each) => this.#source.resolve(each));
    return this.found.find((script) => loaded.some((each) => contains(each, script.node)));
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
    if (kind !== undefined) found.push({ node, kind, text: script });
  }
  return found;
}

/** The names of scripts that `defineCommand` gets from where no file tells. */
function findCommands(source: Source, texts: readonly FoundScript[]): FoundScript[] {
  return source.calls().flatMap((call): FoundScript[] => {
    const [name, options] = call.arguments;
    if (calledName(call) !== 'defineCommand' || name === undefined) return [];
    if (texts.some(({ node }) => contains(call, node))) return [];
    const given = options === undefined ? undefined : source.resolve(options);
    const lua = given?.type === 'ObjectExpression' ? given.properties.find(isLua) : undefined;
    if (lua?.type === 'Property' && source.string(lua.value) !== undefined) return [];
    const kind = kindByName(source.string(name) ?? '', '');
    return kind === undefined ? [] : [{ node: name, kind, text: '' }];
  });
}

function isLua(property: Node): boolean {
  return property.type === 'Property' && nameOf(property.key) === 'lua';
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
      if (parent.type === 'Property') return nameOf(parent.key);
      if (parent.type === 'VariableDeclarator') return nameOf(parent.id);
    }
  }
  return undefined;
}

/** The uses of the name that a script is declared by. */
function usesOf(source: Source, node: Node): Node[] {
  const parent = source.parent(node);
  const id =
    parent.type === 'VariableDeclarator'
      ? parent.id
      : parent.type === 'Property' || parent.type === 'PropertyDefinition'
        ? parent.key
        : undefined;
  const name = id === undefined ? '' : nameOf(id);
  if (name === '') return [];
  return source.nodes.filter(
    (each) => each.type === 'Identifier' && each.name === name && each !== id,
  );
}
