/** What is wrong with locks: the rules, and the sections of the page that explain them. */

/** How much a finding matters: `error` breaks mutual exclusion or leaves a lock held for ever. */
export type Level = 'error' | 'warning' | 'note';

/** The levels, the gravest first. */
export const LEVELS: readonly Level[] = ['error', 'warning', 'note'];

interface Rule {
  readonly level: Level;
  /** What is wrong, for one line of a report. */
  readonly sentence: string;
}

const PAGE = 'docs/migrate-rules.md';

/** Each rule, by its name, which is also the heading of its section. */
export const RULES = {
  'expiry-in-second-command': {
    level: 'error',
    sentence:
      'the expiry is set by a second command: a crash between the two holds the lock for ever',
  },
  'expiry-set-by-losers': {
    level: 'error',
    sentence:
      'each attempt sets the expiry, also one that fails: callers who wait keep a dead lock alive',
  },
  'expiry-by-clock': {
    level: 'warning',
    sentence: 'the expiry is a time in the value, compared with the clocks of the clients',
  },
  'no-expiry': {
    level: 'error',
    sentence: 'the lock has no expiry: a crash holds it for ever',
  },
  'check-then-set': {
    level: 'error',
    sentence:
      'one command looks whether the lock is free and another takes it: two callers may both see it free',
  },
  'set-without-condition': {
    level: 'error',
    sentence: 'the command sets the key whether it exists or not: it takes the lock from its owner',
  },
  'release-without-compare': {
    level: 'error',
    sentence:
      'the release deletes the key without comparing its value: it may free the lock of a later owner',
  },
  'compare-and-delete-in-two-commands': {
    level: 'error',
    sentence:
      'the value is compared by one command and the key deleted by another: the owner may change in between',
  },
  'value-not-unique': {
    level: 'warning',
    sentence: 'two owners may write the same value, so that none can tell its own lock',
  },
  'result-not-checked': {
    level: 'error',
    sentence: 'the result is not checked: the work runs also without the lock',
  },
  'release-not-in-finally': {
    level: 'warning',
    sentence:
      'the release is not in a finally block: after an error the lock is held until it expires',
  },
  'no-renewal': {
    level: 'note',
    sentence:
      'nothing renews the lock: work that takes longer than the lease runs beside the next owner',
  },
  'renewal-on-event-loop': {
    level: 'warning',
    sentence: 'a timer of the event loop renews the lock: a blocked loop loses it',
  },
  'retry-without-deadline': {
    level: 'warning',
    sentence: 'the retry has no deadline: a caller may wait for ever',
  },
  'busy-polling': {
    level: 'warning',
    sentence: 'the retry does not pause between attempts: it loads the server while it waits',
  },
  'no-fence': {
    level: 'note',
    sentence:
      'data is written under the lock without a fence: an owner that has lost it unawares still writes',
  },
  'redlock-on-one-server': {
    level: 'note',
    sentence: 'redlock on one server has no quorum: a failover may make two owners',
  },
  'superseded-package': {
    level: 'note',
    sentence: 'the package gets no releases, or calls itself superseded',
  },
} as const satisfies Record<string, Rule>;

/** The name of a rule. */
export type RuleName = keyof typeof RULES;

/** The page's section about a rule. */
export function docsOf(rule: RuleName): string {
  return `${PAGE}#${rule}`;
}
