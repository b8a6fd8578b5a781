/** Turns outcomes of the core into errors: what happened, to which lock, where, and what to do. */

import {
  LockClosedError,
  LockConnectionError,
  LockError,
  LockQuorumError,
  LockServerError,
  LockTimeoutError,
} from '../base/errors.js';
import { adviceOnGone, readLabel } from '../base/label.js';
import { isCounter } from '../base/names.js';
import { printable } from '../base/printable.js';
import { human } from '../base/time.js';
import { askedAt, clientOf, isForeign, labelOf, numberOf } from '../base/tokens.js';
import { type Outcome, OutcomeCode, readCauses, readTimeout } from '../native/records.js';
import type { SetCall } from './request.js';

/** The names that every error of a manager can use. */
export interface ErrorContext {
  /** The manager's name in its tokens. */
  readonly client: string;
  /** The server, without login; all servers of a quorum. */
  readonly server: string;
  /** Whether the keys of a lock must hash to one slot. */
  readonly sharded: boolean;
  /** The servers of a quorum, without login; empty for one server. */
  readonly servers: readonly string[];
  /** The label of the manager's locks, unless they have one of their own. */
  readonly label: string;
  /** For how long a caller of the manager has held a token, in ms. */
  readonly heldFor?: (tokenId: number) => number | undefined;
}

/** The advice to an operator for each refusal, by the first word of the server's error. */
const CURES: Readonly<Record<string, string>> = {
  FENCE:
    "other code has raised this fence counter, whose fences would exceed all later ones: delete the key, and fences continue from the server's clock, or set it to a number above all fences that were used; if that clock is wrong, set it",
  BUSY: 'a script or function blocks the server: end it with SCRIPT KILL or FUNCTION KILL',
  LOADING: 'the server still loads its data: wait until it is ready',
  MOVED: "this is a server of a Cluster: use connect({ cluster: ['redis://host:6379'] })",
  NOAUTH: 'the server requires a login: give username and password in the URL or the options',
  NOCLOCK: 'let scripts run TIME, or use another server: see docs/servers.md',
  NOPERM:
    'the ACL user may not do this: docs/operations.md, in the package holdfast, has the rule for it',
  NOREPLICAS: 'too few replicas follow the server: make sure that they run and keep up',
  OOM: 'the server is at its maxmemory: free memory or raise it',
  READONLY: 'this server is a replica: connect to its primary',
  REDIRECTED:
    'servers of the Cluster contradict each other about this slot, as after an interrupted reshard: repair it with redis-cli --cluster fix',
  SENTINEL: "use connect({ sentinels: ['redis://host:26379'], master: 'name of the primary' })",
  VERSION: 'holdfast needs Redis 6.2 or newer, or Valkey: upgrade the server',
  WRONGPASS: 'check username and password',
  WRONGTYPE: 'this key holds other data: give locks a prefix or names of their own',
};

/** The advice for a right other than that to a command, by the words of the server. */
const RIGHTS: readonly (readonly [RegExp, string])[] = [
  [
    /access (?:the )?(?:\S+ )?database|database.* access/i,
    'this ACL user may use other databases alone: name one of them in the URL (redis://host:6379/3) or with db, or grant this one by ACL SETUSER',
  ],
  [
    /access .*\bkeys?\b/i,
    "the ACL user may not use this lock's keys, which begin with the prefix: docs/operations.md, in the package holdfast, has the rule for it",
  ],
  [
    /access .*\bchannels?\b/i,
    'the ACL user may not use the channels of locks: docs/operations.md, in the package holdfast, has the rule for it',
  ],
];

function rightOf(serverCode: string, message: string): string | undefined {
  if (serverCode !== 'NOPERM') return undefined;
  return RIGHTS.find(([words]) => words.test(message))?.[1];
}

/** The advice if the key of the refused data is the counter of all locks. */
const COUNTER_CURE =
  "other code wrote this key, from which the fences of all locks come: delete the key, and fences continue from the server's clock";

/**
 * The error for an outcome that is not a success of `action`. Callers `await` before, so that the stack names them.
 * `set`: the call, if it waited for other locks before.
 */
export function toError(
  outcome: Outcome,
  context: ErrorContext,
  action: string,
  lock?: string,
  set?: SetCall,
): LockError {
  const subject =
    lock === undefined
      ? `cannot ${action} ${context.server}`
      : `cannot ${action} lock "${lock}" on ${context.server}`;
  // The words of a server, which a terminal may show.
  const message = printable(outcome.text?.message ?? '');
  switch (outcome.code) {
    case OutcomeCode.Closed:
      return new LockClosedError(`${subject}: its manager was closed`, lock);
    case OutcomeCode.Connection:
      return new LockConnectionError(`${subject}: ${message}`, lock);
    case OutcomeCode.Held:
      return foreignError(lock ?? '');
    case OutcomeCode.Quorum:
      return quorumError(outcome, context, subject, lock);
    case OutcomeCode.Server:
      return serverError(outcome, subject, lock);
    case OutcomeCode.TimedOut:
      return timeoutError(outcome, context, lock ?? '', set);
    default: {
      const report = 'this is a defect of holdfast, please report it';
      return new LockError('ERR_INTERNAL', `${subject}: ${report}`, lock);
    }
  }
}

function quorumError(
  outcome: Outcome,
  { servers }: ErrorContext,
  subject: string,
  lock?: string,
): LockQuorumError {
  const causes = readCauses(outcome);
  const all = servers.map((server, i) => ({ server, cause: causes[i] || undefined }));
  const failed = all.filter(({ cause }) => cause !== undefined);
  const listed = failed
    .map(({ server, cause }) => `${server}: ${printable(cause ?? '')}`)
    .join('; ');
  const text = `${subject}: no majority: ${failed.length} of ${all.length} servers failed: ${listed}`;
  return new LockQuorumError(text, all, lock);
}

function serverError(outcome: Outcome, subject: string, lock?: string): LockServerError {
  const { message = '', serverCode = 'ERR', key } = outcome.text ?? {};
  const about = key === undefined ? '' : ` (key "${key}")`;
  const isAboutCounter = serverCode === 'WRONGTYPE' && key !== undefined && isCounter(key);
  const cure = isAboutCounter ? COUNTER_CURE : (rightOf(serverCode, message) ?? CURES[serverCode]);
  const advice = cure === undefined ? '' : `; ${cure}`;
  const text = `${subject}: the server says ${serverCode} ${printable(message.replace(/\.?\s*$/, ''))}${about}${advice}`;
  return new LockServerError(text, serverCode, key, lock);
}

/** The error for the notice that a lost connection is not made again, since the server refuses the login. @internal */
export function loginError(text: string, of: string): LockConnectionError {
  const [name, answer = ''] = text.split('\n', 2) as [string, string?];
  const [serverCode = '', ...words] = answer.split(' ');
  const server = name === '' ? of : name;
  const outcome = { text: { serverCode, message: words.join(' ') } } as unknown as Outcome;
  const cause = serverError(outcome, `cannot log in to ${server}`);
  const message = `the connection to ${server} is not made again: ${cause.message}`;
  return new LockConnectionError(message, undefined, { cause });
}

function timeoutError(
  outcome: Outcome,
  context: ErrorContext,
  lock: string,
  set: SetCall | undefined,
): LockTimeoutError {
  const { waited: forThis, remaining, holder: token, holders, position } = readTimeout(outcome);
  const waited = set === undefined ? forThis : Math.floor(set.waited());
  const heldFor = context.heldFor?.(numberOf(token, context.client));
  const holderLabel = labelOf(token);
  const details = { waited, holderLabel, remaining, position, heldFor };
  const held =
    token === ''
      ? 'it was free a moment ago'
      : describeHold({ token, holders, heldFor, remaining }, context);
  const queued =
    position === undefined ? '' : `; the caller was number ${position} in the wait queue`;
  const gone = adviceOnGone(holderLabel);
  const more = gone === undefined ? '' : `; ${gone}`;
  const all = set === undefined ? '' : ` for all ${set.size} locks of the call`;
  const message = `lock "${lock}" was not free within ${human(waited)}${all}: ${held}${queued}${more}`;
  return new LockTimeoutError(message, lock, details);
}

/** A hold of another client is dated only from this age on: its clock and this one may differ, and it may have waited. */
const DATED_MS = 10_000;

/** The holder of a lock, or one of those who share it. */
interface HoldElsewhere {
  readonly token: string;
  /** How many share the lock; 0 if it is not shared. */
  readonly holders: number;
  readonly heldFor: number | undefined;
  readonly remaining: number | undefined;
}

/** The holder of a lock, since when it holds it, and until when. */
function describeHold(
  { token, holders, heldFor, remaining }: HoldElsewhere,
  context: ErrorContext,
): string {
  const one = describeOwner(token, context);
  const owner = holders > 1 ? `${one}, one of ${holders} holders` : one;
  const most = Date.now() - (askedAt(token)?.getTime() ?? Number.NaN);
  const dated = most >= DATED_MS ? `it has been held for up to ${human(most)}` : 'it is held';
  const soFar = heldFor === undefined ? dated : `it has been held for ${human(heldFor)}`;
  // Only the holder knows whether it renews the lease.
  const longer = clientOf(token) === null ? '' : ', unless it is renewed';
  const lease =
    remaining === undefined
      ? 'and its lease has no end'
      : `and its lease ends in ${human(remaining)}${longer}`;
  return `${soFar} by ${owner}, ${lease}`;
}

/** The error of a steal: it takes the lock from any client of holdfast, but not from other code. */
function foreignError(lock: string): LockTimeoutError {
  const cure = 'forceRelease with { foreign: true } would delete its value';
  const message = `lock "${lock}" cannot be stolen: it is held by other code; ${cure}`;
  return new LockTimeoutError(message, lock, { waited: 0 });
}

function describeOwner(token: string, { client, label: own }: ErrorContext): string {
  const given = labelOf(token);
  // Anybody who may write to the server may have written it.
  const label = given === undefined ? undefined : printable(given);
  if (clientOf(token) === client) {
    const caller = 'another caller of this manager';
    return given === undefined || given === readLabel(own) ? caller : `${caller} ("${label}")`;
  }
  if (label !== undefined) return `"${label}"`;
  return isForeign(token) ? 'other code' : 'another holdfast client';
}
