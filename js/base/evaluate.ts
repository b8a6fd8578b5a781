/** Scripts by the clients of a service: those of ioredis and of node-redis, for one server or a Cluster. */

import { show } from './checks.js';
import { argumentError } from './errors.js';

/** The `eval` of both libraries. */
interface Evaluating {
  readonly evalSha?: unknown;
  eval(script: string, ...rest: unknown[]): Promise<unknown>;
}

/** Runs a script by a client of ioredis or node-redis. @internal */
export function evaluate(
  client: unknown,
  script: string,
  keys: readonly string[],
  args: readonly string[],
): Promise<unknown> {
  const evaluating = client as Evaluating;
  if (typeof evaluating?.eval !== 'function') {
    const message = `a client of ioredis or node-redis is needed, got ${show(client)}`;
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  // Only node-redis has `evalSha` in this spelling; its `eval` takes an object.
  if ('evalSha' in evaluating) return evaluating.eval(script, { keys, arguments: args });
  return evaluating.eval(script, keys.length, ...keys, ...args);
}
