/** Tells clients of other libraries from targets. */

/** The methods that all clients of one library have: ioredis, node-redis, and libraries whose clients tell nothing. */
const METHODS = ['defineCommand', 'sendCommand', 'send_command', 'customCommand'];

/**
 * Whether `value` is the client of a Redis library. To be asked first: a client has a method for each command, and so
 * one that is called `cluster`.
 *
 * @internal
 */
export function isClient(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const client = value as Readonly<Record<string, unknown>>;
  return METHODS.some((method) => typeof client[method] === 'function');
}
