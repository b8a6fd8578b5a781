/**
 * The entry for the tests, past the package's exports. It is not published.
 *
 * @packageDocumentation
 */

/** @internal */
export { ForeignLease } from './acquire/foreign.js';
/** @internal */
export { lockName } from './adapters/bullmq/names.js';
/** @internal */
export { checkOptions, tokenFor } from './adapters/redis-semaphore/options.js';
/** @internal */
export { Permits } from './adapters/redis-semaphore/permits.js';
/** @internal */
export { Possession } from './adapters/redis-semaphore/possession.js';
/** @internal */
export { Connection } from './adapters/redlock/connection.js';
/** @internal */
export { Holds } from './adapters/redlock/holds.js';
/** @internal */
export { checkObject, checkWholeNumber, show } from './base/checks.js';
/** @internal */
export { hashTagOf, slotTagOf } from './base/hash-slots.js';
/** @internal */
export { adviceOnGone, readLabel, writeLabel } from './base/label.js';
/** @internal */
export { checkJob, joinNames, leaderLockOf, markOf, RESERVED_SUFFIXES } from './base/names.js';
/** @internal */
export { printable } from './base/printable.js';
/** @internal */
export { milliseconds, moment, readDuration } from './base/time.js';
/** @internal */
export * as tokens from './base/tokens.js';
/** @internal */
export { AskedLogins } from './connect/asked-logins.js';
/** @internal */
export { inDatabase, isMock, readClients } from './connect/clients/read-clients.js';
/** @internal */
export { startable } from './connect/connect.js';
/** @internal */
export { prepare } from './connect/prepare.js';
/** @internal */
export { loginError, toError } from './lock/outcome.js';
/** @internal */
export { native } from './native/addon.js';
/** @internal */
export { NativeChannel } from './native/channel.js';
/** @internal */
export { LockHandles } from './native/handles.js';
/** @internal */
export { openOperations, operations } from './native/operations.js';
/** @internal */
export * as records from './native/records.js';
/** @internal */
export { CronPlan } from './once/cron.js';
/** @internal */
export { exitCodeOf, withoutLogin } from './operators/cli/exit.js';
/** @internal */
export { runUnder, Signals } from './operators/cli/guarded-command.js';
/** @internal */
export { judge } from './operators/cli/judge.js';
/** @internal */
export { judgeRights, questions, rights } from './operators/cli/rights.js';
/** @internal */
export { Screen } from './operators/cli/screen.js';
/** @internal */
export { paint, table, wrapped } from './operators/cli/terminal.js';
/** @internal */
export { writeAll } from './operators/migrate/rewrite/write.js';
/** @internal */
export { Feed } from './operators/page/feed.js';
/** @internal */
export { fileOf } from './operators/page/files.js';
/** @internal */
export { History } from './operators/page/history.js';
/** @internal */
export { differs, endsOf, rowOf } from './operators/page/rows.js';
/** @internal */
export { listLocks, longestWait, nameOf, viewOf } from './operators/views/lock-views.js';
/** @internal */
export { Observer } from './operators/views/observer.js';
/** @internal */
export { survey } from './operators/views/survey.js';
/** @internal */
export { listVotes } from './operators/views/votes.js';
