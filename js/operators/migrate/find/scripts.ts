/** Lua scripts that take, extend or release a lock. */

/** What a script does to a lock. */
export type ScriptKind = 'acquire' | 'extend' | 'release';

const CALLS = /\b(?:redis\s*\.\s*p?call|rcall|call)\s*\(/i;
const GETS = /call\s*\(\s*\\?["']h?(?:get|exists|hexists)\\?["']/i;
const DELETES = /call\s*\(\s*\\?["'](?:h?del|unlink)\\?["']/i;
const EXTENDS = /call\s*\(\s*\\?["'](?:p?expire|p?expireat|setex|psetex)\\?["']/i;
const SETS_NX = /call\s*\(\s*\\?["']setnx\\?["']|call\s*\(\s*\\?["']set\\?["'][^)]*["']nx\\?["']/i;
const COMPARES =
  /(?:[=~]=\s*(?:tostring\s*\(\s*)?(?:ARGV\s*\[|(?!nil\b|false\b|true\b)[a-z_]\w*)|ARGV\s*\[\s*\d+\s*\]\s*[=~]=)/i;
const SETS = /call\s*\(\s*\\?["']h?set\\?["']/i;

/** A counter, a list or a set is no lock. */
const OTHER =
  /["'](?:h?incr(?:by)?(?:float)?|decr(?:by)?|[lr]push|[lr]pop|lrange|zadd|zrange\w*|zrem\w*|zcard|xadd|rpoplpush|hmget|hgetall)\\?["']/i;

/** Whether a text is a script for Redis. */
export function isScript(text: string): boolean {
  return CALLS.test(text) && text.length < 20_000;
}

/** What a script does; undefined if it is no script of a lock. */
export function kindOfScript(text: string): ScriptKind | undefined {
  if (!isScript(text) || OTHER.test(text)) return undefined;
  if (SETS_NX.test(text)) return 'acquire';
  const compares = GETS.test(text) && COMPARES.test(text);
  if (compares && DELETES.test(text)) return 'release';
  if (compares && EXTENDS.test(text) && !SETS.test(text)) return 'extend';
  return undefined;
}
