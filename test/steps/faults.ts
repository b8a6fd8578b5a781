/** What can happen between two steps. */

import type { Fate } from '../support/wire.js';

/** What a fault does to the first caller. */
export interface Running {
  close(): void;
  signal(signal: NodeJS.Signals): void;
}

export interface Fault {
  readonly name: string;
  /** Whether it happens to a process: its leases are short then. */
  readonly process?: 'stopped' | 'killed';
  /** Whether it closes what the caller has opened. */
  readonly closes?: boolean;
  /** Whether the server is out of reach until the caller has given up. */
  readonly away?: boolean;
  fate(running: Running): Fate;
}

const PASSES = { executed: true, answered: true, connection: 'goes on' } as const;

export const FAULTS: readonly Fault[] = [
  {
    name: 'not executed, no answer',
    fate: () => ({ executed: false, answered: false, connection: 'silence' }),
  },
  {
    name: 'executed, no answer',
    fate: () => ({ executed: true, answered: false, connection: 'silence' }),
  },
  {
    name: 'executed, reset before the answer',
    fate: () => ({ executed: true, answered: false, connection: 'reset' }),
  },
  {
    name: 'connection closed after the answer',
    fate: () => ({ executed: true, answered: true, connection: 'close' }),
  },
  {
    name: 'not executed, server away until the caller gives up',
    away: true,
    fate: () => ({ executed: false, answered: false, connection: 'reset', away: true }),
  },
  {
    name: 'executed, server away until the caller gives up',
    away: true,
    fate: () => ({ executed: true, answered: false, connection: 'reset', away: true }),
  },
  {
    name: 'manager closed before the answer',
    closes: true,
    fate: (running) => ({ ...PASSES, before: () => running.close() }),
  },
  {
    name: 'manager closed after the answer',
    closes: true,
    fate: (running) => ({ ...PASSES, after: () => running.close() }),
  },
  {
    name: 'process stopped past its lease',
    process: 'stopped',
    fate: (running) => ({ ...PASSES, before: () => running.signal('SIGSTOP') }),
  },
  {
    name: 'process killed',
    process: 'killed',
    fate: (running) => ({ ...PASSES, before: () => running.signal('SIGKILL') }),
  },
];
