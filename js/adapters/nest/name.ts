/** Names of locks by the arguments of a method. */

import { isWellFormed, show } from '../../base/checks.js';
import { argumentError } from '../../base/errors.js';

/** Makes a name of the arguments of a call; `self` is the object whose method is called. @internal */
type NameOf = (self: unknown, args: readonly unknown[]) => string;

const PLACEHOLDER = /\$\{([^}]*)\}/g;
/** The number of an argument, and the names of properties. */
const PATH = /^\d+(?:\.[A-Za-z_$][\w$]*)*$/;

/**
 * Reads a template such as `'item:${0.id}'`, or takes a function that makes the name. `where` is the method, and
 * `parameters` the number of its parameters.
 *
 * @throws TypeError if it is neither.
 * @internal
 */
export function nameOf(name: unknown, where: string, parameters = 0): NameOf {
  if (typeof name === 'function') return (self, args) => checked(name.apply(self, args), where);
  if (typeof name !== 'string') {
    const message = `${where} needs a name, a text or a function, got ${show(name)}`;
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  for (const [all, path = ''] of name.matchAll(PLACEHOLDER)) {
    if (PATH.test(path)) continue;
    const message = `the name ${show(name)} of ${where} has ${all}: an argument is written by its number, as \${0} or \${0.id}`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  refuseBackticks(name, where, parameters);
  return (_self, args) =>
    name.replaceAll(PLACEHOLDER, (all, path: string) => textAt(args, path, { all, name, where }));
}

/** In backticks JavaScript has put the number itself in the place of `${0}`, so all calls would have one lock. */
function refuseBackticks(name: string, where: string, parameters: number): void {
  if (name.includes('${')) return;
  const number = name.split(/[^\p{L}\p{N}_]+/u).find((part) => /^\d$/.test(part));
  if (number === undefined || Number(number) >= parameters) return;
  const message = `the name ${show(name)} of ${where} has no argument, but the number ${number}: write \${${number}} in quotes, not in backticks; if this name is meant, give a function that returns it`;
  throw argumentError('ERR_INVALID_ARG_VALUE', message);
}

function checked(name: unknown, where: string): string {
  if (typeof name === 'string') return name;
  const message = `the function that names the lock of ${where} must return a text, got ${show(name)}`;
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}

interface Context {
  readonly all: string;
  readonly name: string;
  readonly where: string;
}

/** The text of one argument. A missing one is an error: otherwise all calls without it would share one lock. */
function textAt(args: readonly unknown[], path: string, { all, name, where }: Context): string {
  // biome-ignore lint/suspicious/noExplicitAny: the arguments of any method
  const value: any = path.split('.').reduce((each: any, key) => each?.[key], args);
  const isText = typeof value === 'string' && value !== '' && isWellFormed(value);
  if (isText || typeof value === 'bigint' || Number.isFinite(value)) return `${value}`;
  const got = value === '' ? 'an empty text' : show(value);
  const message = `the lock ${show(name)} of ${where} needs a text or a number for ${all}, got ${got}`;
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}
