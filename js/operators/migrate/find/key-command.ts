/** The finders of locks hand on commands, and the locks that are made of them. */

import type { FoundScript, ScriptKind } from './scripts.js';
import type { CallExpression, Node } from './source.js';

/** The effect of a command on a key. */
export type Verb =
  | 'set'
  | 'setnx'
  | 'incr'
  | 'getset'
  | 'get'
  | 'exists'
  | 'del'
  | 'expire'
  | 'watch'
  | 'script';

/** A command that a call sends. */
export interface KeyCommand {
  readonly verb: Verb;
  readonly call: CallExpression;
  readonly key: Node | undefined;
  /** The value that it writes; the first argument of a script. */
  readonly value?: Node | undefined;
  /** It writes only if there is no key. */
  readonly nx?: boolean;
  /** The expiry that it sets; `unknown` if it may set one, or sets one in a form that is not read. */
  readonly expiry?: Expiry | 'unknown' | undefined;
  readonly script?: ScriptKind | undefined;
}

/** An expiry as the code gives it. */
export interface Expiry {
  readonly unit: 'ms' | 's';
  /** Whether the amount is a time since 1970, not a length. */
  readonly isTime?: boolean;
  /** A number if a script has it. */
  readonly amount: Node | number;
}

/** All that a file does to keys. */
export interface Commands {
  readonly all: readonly KeyCommand[];
  readonly scripts: readonly FoundScript[];
}

/** A lock with the commands that belong to it. */
export interface HandLock {
  /** How it is taken; undefined if the file has only the script of its release. */
  readonly acquire: KeyCommand | undefined;
  /** Where it is reported. */
  readonly node: Node;
  readonly form: 'set' | 'setnx' | 'script' | 'check' | 'blind' | 'incr' | 'getset';
  readonly releases: readonly KeyCommand[];
  /** The expiry that the code gives it, by the same command or by a later one. */
  readonly expiry: KeyCommand['expiry'];
}
