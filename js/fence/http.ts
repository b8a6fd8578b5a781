/** Fences that come with requests. */

import type { IncomingHttpHeaders } from 'node:http';
import { type Recipient, respond } from '../base/answer.js';
import { checkBoolean, checkObject, checkText, show } from '../base/checks.js';
import { argumentError } from '../base/errors.js';
import { evaluate } from '../base/evaluate.js';
import { type Problem, refusal } from '../base/http.js';
import { checkFenced, stale } from './check.js';
import type { FenceRedis } from './redis.js';

/**
 * Remembers the greatest fence of each lock. It must last as long as the data that the locks protect.
 *
 * @example
 * ```ts
 * import type { FenceStore } from 'holdfast/fence'
 *
 * const seen = new Map<string, number>()
 * const store: FenceStore = {
 *   raise(name, fence) {
 *     const greatest = Math.max(fence, seen.get(name) ?? 0)
 *     seen.set(name, greatest)
 *     return greatest
 *   },
 * }
 * ```
 */
export interface FenceStore {
  /** Raises the fence of a lock, in one step, unless it is greater already. Returns the greatest. */
  raise(name: string, fence: number): number | Promise<number>;
}

/**
 * Options of `httpFence`.
 *
 * @example
 * ```ts
 * import type { HttpFenceOptions } from 'holdfast/fence'
 *
 * const options: HttpFenceOptions<{ url: string }> = { name: (request) => `item:${request.url.slice(7)}` }
 * ```
 */
export interface HttpFenceOptions<Request> {
  /** Returns the name of the lock that protects the resource of the request. */
  readonly name: (request: Request) => string;
  /**
   * Where the greatest fences are kept, to refuse late requests ahead of the handler.
   * @default none: the handler checks `request.fence` in its transaction
   */
  readonly store?: FenceStore;
  /**
   * Whether to refuse requests without a fence, with 428, unless they only read (GET, HEAD, OPTIONS).
   * @default true
   */
  readonly required?: boolean;
}

/** The properties that requests of Express, Fastify and node:http share. */
interface HttpRequest {
  readonly method?: string;
  readonly headers: IncomingHttpHeaders;
}

const READING = ['GET', 'HEAD', 'OPTIONS'];
/** As the script, both compare in one step. */
const RAISE = `
local seen = redis.call('GET', KEYS[1])
if seen and tonumber(seen) > tonumber(ARGV[1]) then return seen end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
`;

/**
 * A middleware that reads the header `Fence` of a request, and passes it to the handler as `request.fence`, for
 * `checkFence`. With a `store` it answers 412 to a fence that is smaller than one that it has seen. This refuses late
 * requests, but not the late write of a slow handler, so the handler's own write must check the fence, too. A malformed
 * fence is answered with 400, and a write without a fence with 428.
 *
 * @returns For `app.use` of Express, `addHook('preHandler', …)` of Fastify, or any server of node:http.
 *
 * @example
 * ```ts
 * import express from 'express'
 * import { httpFence, memoryFences } from 'holdfast/fence'
 *
 * const app = express()
 * const fence = httpFence({ name: (request: express.Request) => `item:${request.params['id']}`, store: memoryFences() })
 * app.put('/items/:id', fence, (_request, response) => response.end('done'))
 * ```
 */
export function httpFence<Request extends object>(
  options: HttpFenceOptions<Request>,
): (request: Request, response: unknown, next: (error?: Error) => void) => void {
  const known = ['name', 'required', 'store'];
  const {
    name,
    store,
    required = true,
  } = checkObject<HttpFenceOptions<Request>>(options, known, 'httpFence');
  if (typeof name !== 'function') {
    throw argumentError('ERR_INVALID_ARG_TYPE', '"name" of httpFence must be a function');
  }
  checkBoolean(required, '"required" of httpFence');
  if (store !== undefined && typeof store?.raise !== 'function') {
    const message = '"store" of httpFence must have a method raise, as redisFences(client) has';
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  const judge = async (request: Request): Promise<Problem | undefined> => {
    const { headers, method = 'GET' } = request as HttpRequest;
    const header = headers['fence'];
    if (header === undefined) {
      return required && !READING.includes(method) ? MISSING : undefined;
    }
    const fence = typeof header === 'string' && /^[1-9]\d{0,15}$/.test(header) ? Number(header) : 0;
    if (fence === 0 || !Number.isSafeInteger(fence)) return MALFORMED;
    const fenced = checkFenced({ name: name(request), fence });
    Object.assign(request, { fence: fenced });
    if (store === undefined) return undefined;
    const seen = checkSeen(await store.raise(fenced.name, fenced.fence));
    if (seen <= fenced.fence) return undefined;
    const { message } = stale(fenced, seen, 'the service');
    return { status: 412, title: 'A later owner of the lock has been here', detail: message };
  };
  return (request, response, next) => {
    const judging = judge(request).then((problem) => problem && refusal(problem));
    respond(response as Recipient, next, judging);
  };
}

/** Without this check a store that answers nothing would let every request pass. */
function checkSeen(seen: unknown): number {
  if (Number.isSafeInteger(seen) && Number(seen) > 0) return seen as number;
  const message = `"raise" of the store must return the greatest fence, got ${show(seen)}`;
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}

const MISSING: Problem = {
  status: 428,
  title: 'The header Fence is missing',
  detail: 'a write needs a lock: send its fence in the header Fence',
};

const MALFORMED: Problem = {
  status: 400,
  title: 'The header Fence is no fence',
  detail: `the header Fence must be the fence of a lock, a whole number of at most ${Number.MAX_SAFE_INTEGER}`,
};

/**
 * Keeps the greatest fences in this process: for a service whose protected data are in this process, too, and for
 * tests.
 *
 * @example
 * ```ts
 * import { memoryFences } from 'holdfast/fence'
 *
 * const store = memoryFences()
 * console.log(await store.raise('item:42', 34), await store.raise('item:42', 33)) // 34 34
 * ```
 */
export function memoryFences(): FenceStore {
  const greatest = new Map<string, number>();
  return {
    raise(name, fence) {
      const seen = Math.max(greatest.get(name) ?? 0, fence);
      greatest.set(name, seen);
      return seen;
    },
  };
}

/**
 * Keeps the greatest fences in Redis, in a key for each lock, which never expires.
 *
 * @param client - A client of ioredis or node-redis.
 * @param options - `prefix` of the keys, by default `fences:`.
 *
 * @example
 * ```ts
 * import { createClient } from 'redis'
 * import { redisFences } from 'holdfast/fence'
 *
 * const redis = await createClient({ url: process.env.REDIS_URL }).connect()
 * const store = redisFences(redis)
 * console.log(await store.raise('item:42', 34), await store.raise('item:42', 33)) // 34 34
 * redis.destroy()
 * ```
 */
export function redisFences(
  client: FenceRedis,
  options?: { readonly prefix?: string },
): FenceStore {
  const { prefix = 'fences:' } = checkObject<{ prefix?: string }>(
    options,
    ['prefix'],
    'redisFences',
  );
  checkText(prefix, '"prefix"');
  return {
    async raise(name, fence) {
      return Number(await evaluate(client, RAISE, [prefix + name], [`${fence}`]));
    },
  };
}
