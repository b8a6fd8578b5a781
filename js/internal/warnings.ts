/** What a manager warns of, and what to do about it. */

import { NewsCode } from '../native/bridge.js';

/** @internal */
export interface Warning {
  readonly code: string;
  readonly message: string;
  /** What is warned of once; if it is not given, the message. */
  readonly subject?: string;
}

/** What news of `server` is to be warned of. @internal */
export function warningOf(news: number, server: string, text: string): Warning | undefined {
  switch (news) {
    case NewsCode.Deaf: {
      const advice =
        'grant the ACL user subscribe, publish and pubsub on the channels &holdfast:* for hand-offs without delay';
      return warning('WARN_LOCK_POLLING', `waiters on ${server} poll: ${text}; ${advice}`);
    }
    case NewsCode.SameServer: {
      const advice =
        'which so has two votes: a quorum is safe only on servers that fail one by one';
      return warning('WARN_LOCK_SAME_SERVER', `${text} are the same server, ${advice}`);
    }
    case NewsCode.Eviction: {
      const advice =
        'a lock that is evicted lets another in: set it to noeviction, or give locks a server of their own';
      return warning('WARN_LOCK_EVICTION', `${server} may evict locks: ${text}; ${advice}`);
    }
    case NewsCode.Forgets: {
      const advice =
        'with longestLease: 0 it votes as soon as it has restarted, and may let another in: set appendonly yes and appendfsync always, or leave longestLease at its default';
      return warning('WARN_LOCK_PERSISTENCE', `${server} may forget locks: ${text}; ${advice}`);
    }
    case NewsCode.Replica: {
      const advice = 'connect to its primary, or wait until it is promoted';
      return warning(
        'WARN_LOCK_REPLICA',
        `${server} takes no locks: ${text} is a replica; ${advice}`,
      );
    }
    default:
      return undefined;
  }
}

/** Code under a request waits for the lock that the request holds. @internal */
export function nestedWarning(lock: string): Warning {
  const advice = 'pass { reentrant: true } to request, or hand the lock on as an argument';
  const message = `lock "${lock}" is waited for by code under a request that holds it, so it waits for itself: ${advice}`;
  return warning('WARN_LOCK_NESTED', message);
}

/** Nothing refers to a lock that is held. @internal */
export function abandonedWarning(lock: string, origin: string | undefined): Warning {
  const advice =
    'keep the lock until it is released, or use request or await using; if it is to be left to its lease, pass { renew: false, keep: true }';
  const where =
    origin === undefined
      ? 'HOLDFAST_TRACE=1 in the environment tells where it was acquired'
      : `it was acquired\n${origin}`;
  const message = `lock "${lock}" is held, but nothing refers to it any more, so nobody can release it: ${advice}; ${where}`;
  return { ...warning('WARN_LOCK_ABANDONED', message), subject: `abandoned ${lock}` };
}

function warning(code: string, message: string): Warning {
  return { code, message };
}
