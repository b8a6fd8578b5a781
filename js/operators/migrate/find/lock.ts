/** What the command finds: locks, and what is wrong with each. */

import type { RuleName } from '../rules.js';
import type { Node } from './source.js';

/** A place in a file, from 1. */
export interface Place {
  readonly line: number;
  readonly column: number;
}

/** Something that is wrong with a lock. */
export interface Finding extends Place {
  readonly rule: RuleName;
}

/** A rule that a node breaks. */
export interface Fault {
  readonly rule: RuleName;
  readonly node: Node;
}

/** A lock that code takes, or the import of a package that takes locks. */
export interface FoundLock extends Place {
  readonly kind: 'by-hand' | 'package';
  /** The package, or the command that takes the lock. */
  readonly by: string;
  /** The key as the code writes it; null if the place does not tell. */
  readonly key: string | null;
  readonly findings: readonly Finding[];
  /** What replaces it: one sentence. */
  readonly advice: string;
  /** Code to paste, if the change is not certain enough to be made. */
  readonly code?: string;
  /** Whether `--write` changes it. */
  readonly rewritten: boolean;
}
