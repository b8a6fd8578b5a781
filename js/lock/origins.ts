/**
 * Where locks were acquired, if the environment variable `HOLDFAST_TRACE` is 1: a stack trace for each acquire, as long
 * as its lock is held. They cost too much for everyday use.
 */

const RECORDED = process.env['HOLDFAST_TRACE'] === '1';

const origins = new WeakMap<object, string>();

/** Adds the calls that led to `method` to a request, if they are recorded. @internal */
export function withOrigin<Request extends { readonly origin: string | undefined }>(
  request: Request,
  method: (...args: never[]) => unknown,
): Request {
  if (!RECORDED) return request;
  const at: Captured = {};
  Error.captureStackTrace(at, method);
  return { ...request, origin: callsOf(at) };
}

/** An object that `Error.captureStackTrace` has given a stack. V8 writes the stack out when it is first read. @internal */
export interface Captured {
  readonly stack?: string;
}

/** The calls of a stack, a line for each. @internal */
export function callsOf({ stack }: Captured): string | undefined {
  return stack?.split('\n').slice(1).join('\n');
}

/** Remembers where `lock` was acquired, if that was recorded. @internal */
export function setOrigin(lock: object, origin: string | undefined): void {
  if (origin !== undefined) origins.set(lock, origin);
}

/** Where `lock` was acquired, if that was recorded. @internal */
export function originOf(lock: object): string | undefined {
  return origins.get(lock);
}
