/** The warnings of a manager, with advice. */

import type { UnkeptReason } from '../acquire/foreign.js';
import { NoticeCode } from '../native/records.js';
import type { LockWarningCode } from './events.js';
import type { ServerAbilities } from './stats.js';

/** @internal */
export interface Warning {
  readonly code: LockWarningCode;
  readonly message: string;
  /** The lock's name, if the warning is about one. */
  readonly lock?: string;
  /** Warnings with the same subject are reported once; by default it is the message. */
  readonly subject?: string;
}

/** The warnings whose cause is on a server, and whether it is there, as the present connection found it. @internal */
export const CAUSES: ReadonlyMap<LockWarningCode, (server: ServerAbilities) => boolean> = new Map([
  ...(
    [
      'WARN_LOCK_ACTIVE_REPLICA',
      'WARN_LOCK_EVICTION',
      'WARN_LOCK_PERSISTENCE',
      'WARN_LOCK_REPLICA',
    ] as const
  ).map((code) => [code, ({ risks }: ServerAbilities) => risks.includes(code)] as const),
  ['WARN_LOCK_CLOCK', ({ clock }) => !clock] as const,
  // Without a clock there are no messages either, of which nobody is warned.
  ['WARN_LOCK_POLLING', ({ clock, pubsub }) => clock && !pubsub] as const,
  ['WARN_LOCK_SCRIPTS', ({ plainCommands }) => !plainCommands] as const,
]);

/** The warning for a notice about `server`, if it is one to warn of. @internal */
export function warningOf(notice: number, server: string, text: string): Warning | undefined {
  switch (notice) {
    case NoticeCode.PubsubDenied: {
      const advice =
        'grant the ACL user subscribe, publish and pubsub on the channels &holdfast:* for handoffs without delay';
      return warning('WARN_LOCK_POLLING', `waiters on ${server} poll: ${text}; ${advice}`);
    }
    case NoticeCode.PlainCommandsDenied: {
      const advice =
        'grant the command mget and the keys holdfast:* to the ACL user, and to all others who share these locks';
      return warning(
        'WARN_LOCK_SCRIPTS',
        `${server} runs a script for each lock, which costs twice the CPU: ${text}; ${advice}`,
      );
    }
    case NoticeCode.ClockDenied: {
      const advice =
        'without the clock only exclusive locks work, without a wait queue: waiters poll ten times a second and have no order; let scripts run TIME, or use another server for locks';
      return warning(
        'WARN_LOCK_CLOCK',
        `scripts on ${server} may not read its clock: ${text}; ${advice}`,
      );
    }
    case NoticeCode.LoginNotRenewed: {
      const advice =
        'open connections stay until the server ends them, and ask again every second: see to the function that gives the login, and to the ACL user';
      const message = `a login to ${server} expires and could not be renewed: ${text}; ${advice}`;
      return { code: 'WARN_LOCK_LOGIN', message, subject: `login ${server}` };
    }
    case NoticeCode.SameServer: {
      const advice =
        'which therefore has two votes: a quorum is safe only on servers that fail independently';
      return warning('WARN_LOCK_SAME_SERVER', `${text} are the same server, ${advice}`);
    }
    case NoticeCode.ActiveReplica: {
      const advice =
        'two servers that take writes may each grant the same lock: turn active replication off, or use another server for locks';
      return warning(
        'WARN_LOCK_ACTIVE_REPLICA',
        `${server} may grant a lock twice: ${text} is an active replica (KeyDB's active-replica); ${advice}`,
      );
    }
    case NoticeCode.Eviction: {
      const advice =
        'an evicted lock can be granted to a second owner: set the policy to noeviction, or use a separate server for locks';
      return warning('WARN_LOCK_EVICTION', `${server} may evict locks: ${text}; ${advice}`);
    }
    case NoticeCode.Forgets: {
      const advice =
        'with longestLease: 0 the server votes as soon as it has restarted, and may grant a lock twice: set appendonly yes and appendfsync always, or leave longestLease at its default';
      return warning('WARN_LOCK_PERSISTENCE', `${server} may forget locks: ${text}; ${advice}`);
    }
    case NoticeCode.Replica: {
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

/** The warning for a manager whose caller named no server: with several machines each would have locks of its own. @internal */
export function defaultTargetWarning(server: string): Warning {
  const advice = 'pass a URL to connect, or set HOLDFAST_URL';
  const message = `connect got no target, and neither HOLDFAST_URL nor REDIS_URL is set, so locks are kept on ${server}: ${advice}`;
  return warning('WARN_LOCK_TARGET', message);
}

/** The warning for a held lock to which nothing refers any more, and the number of others since the last one. @internal */
export function abandonedWarning(
  lock: string,
  origin: string | undefined,
  others: number,
): Warning {
  const advice =
    'keep the lock until it is released, or use request or await using; if it is to expire by itself, pass { renew: false, leaveToExpire: true }';
  const where =
    origin === undefined
      ? 'with HOLDFAST_TRACE=1 in the environment this warning says where it was acquired'
      : `it was acquired\n${origin}`;
  const more =
    others === 0
      ? ''
      : `, as for ${others} other${others === 1 ? '' : 's'} since the last such warning`;
  const message = `lock "${lock}" is held, but nothing refers to it any more${more}, so nothing can release it: ${advice}; ${where}`;
  return { ...warning('WARN_LOCK_ABANDONED', message), lock, subject: `abandoned ${lock}` };
}

/** The warning for a release that failed when nobody awaited it. @internal */
export function unreleasedWarning(lock: string, error: unknown): Warning {
  const reason = error instanceof Error ? error.message : String(error);
  const advice =
    'if it is held still, it ends with its lease; docs/operations.md says what each error means';
  const message = `the release of lock "${lock}", which awaitRelease: false does not await, has failed: ${reason}; ${advice}`;
  return { ...warning('WARN_LOCK_UNRELEASED', message), lock, subject: `unreleased ${lock}` };
}

/** Each cause that ends the renewal of other code's lease, and what to do. */
const UNKEPT: Readonly<Record<UnkeptReason, (server: string) => string>> = {
  closed: () => 'its manager was closed; close the workers first',
  expired: (server) =>
    `${server} has not renewed it in time; see to the connection, and to the rights of its user to this key`,
  stalled: () =>
    'it has blocked the event loop for stallTimeout; allow it more if it was not stuck',
};

/** The warning for the lease of a job that is renewed no more while it runs; once for each run. @internal */
export function unkeptJobWarning(
  { what, lock, run }: { readonly what: string; readonly lock: string; readonly run: string },
  reason: UnkeptReason,
  server: string,
): Warning {
  const message = `${what} is kept no more while it runs, so another worker may run it as well: ${UNKEPT[reason](server)}`;
  return { ...warning('WARN_LOCK_UNKEPT', message), lock, subject: `unkept ${lock} ${run}` };
}

/** The warning for an answer to an Idempotency-Key that could not be stored; once for a manager. @internal */
export function unkeptWarning(key: string, lock: string, error: unknown): Warning {
  const advice =
    'a repeat will be answered as after a crash: look at the server of the store; later failures are not told';
  const message = `the answer to "${key}" could not be kept: ${error}; ${advice}`;
  return { ...warning('WARN_IDEMPOTENCY_STORE', message), lock, subject: 'idempotency store' };
}

/** The warning for a call, made by `calls`, that waits for a lock which a request around it holds. @internal */
export function nestedWarning(lock: string, advice: string, calls: string): Warning {
  const otherwise =
    'ignore this if nothing under the request awaits the call, which gets the lock after it';
  const message = `a call waits for lock "${lock}": ${advice}; ${otherwise}; it was called\n${calls}`;
  // Not for each lock: one line of code may ask for any number of them, also by one `Promise.all`.
  const place = calls.replace(/\(index \d+\)/g, '');
  return { ...warning('WARN_LOCK_NESTED', message), lock, subject: `nested ${place}` };
}

/** The warning for a listener of an event that no manager emits. @internal */
export function eventWarning(event: string): Warning {
  const advice =
    event === 'error'
      ? 'errors reject the calls that they are about, and "warning", "disconnect" and "lost" tell of the rest'
      : 'it has "lost", "disconnect", "reconnect", "warning", "elected", "stepDown" and "close"';
  return warning('WARN_LOCK_EVENT', `a manager emits no event ${JSON.stringify(event)}: ${advice}`);
}

/** The warning for names whose kinds metrics cannot tell apart. @internal */
export function kindsWarning(what: string): Warning {
  const advice =
    'pass a list of kinds, or a function from a name to one of a few kinds, as the option kinds of measureLocks';
  const message = `${what}, so metrics count locks as of the kind "other": ${advice}`;
  return { ...warning('WARN_LOCK_KINDS', message), subject: 'kinds' };
}

function warning(code: LockWarningCode, message: string): Warning {
  return { code, message };
}
