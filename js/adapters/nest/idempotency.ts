/** Idempotency for Nest, on Express and on Fastify. */

import type { CallHandler, ExecutionContext, NestInterceptor } from '@nestjs/common';
import { NEVER, type Observable, of } from 'rxjs';
import { isAnswered, type Recipient, send } from '../../base/answer.js';
import { judgeByNode } from '../idempotency/attempt.js';
import {
  type IdempotencyOptions,
  type IdempotentRequest,
  type Settings,
  settingsOf,
} from '../idempotency/options.js';

/**
 * An interceptor that handles each `Idempotency-Key` once, as `expressIdempotency` does, with Express and with Fastify.
 * Its handlers get `request.idempotency`. Guards run before it, so a caller that they refuse gets no stored answer. Answers
 * pass unchanged, and a copy of what is sent is stored.
 *
 * @example
 * ```ts
 * import { Controller, Injectable, Post, UseInterceptors } from '@nestjs/common'
 * import { LockManager } from 'holdfast'
 * import { memoryStore } from 'holdfast/idempotency'
 * import { IdempotencyInterceptor } from 'holdfast/nest'
 *
 * @Injectable()
 * class OncePerKey extends IdempotencyInterceptor {
 *   constructor(locks: LockManager) {
 *     super({ locks, store: memoryStore() })
 *   }
 * }
 *
 * @Controller('payments')
 * @UseInterceptors(OncePerKey)
 * class Payments {
 *   @Post()
 *   async pay() {
 *     return { paid: true }
 *   }
 * }
 * ```
 */
export class IdempotencyInterceptor implements NestInterceptor {
  readonly #settings: Settings;

  /** @throws TypeError or RangeError for wrong options. */
  constructor(options: IdempotencyOptions) {
    this.#settings = settingsOf(options, 'IdempotencyInterceptor');
  }

  /** Called by Nest. */
  async intercept(context: ExecutionContext, next: CallHandler): Promise<Observable<unknown>> {
    if (context.getType() !== 'http') return next.handle();
    const http = context.switchToHttp();
    const request = http.getRequest<IdempotentRequest>();
    const reply = http.getResponse<Recipient>();
    const answer = await judgeByNode(this.#settings, request, 'raw' in reply ? reply.raw : reply);
    if (answer === undefined) return isAnswered(reply) ? NEVER : next.handle();
    // Nest must not answer what somebody else answers.
    if (!send(reply, answer)) return NEVER;
    ignoreMore(reply);
    return of(undefined);
  }
}

/** Nest, and interceptors around this one, answer in any case: after the answer that was sent, that does nothing. */
function ignoreMore(reply: Recipient): void {
  const names =
    'raw' in reply ? ['send'] : ['end', 'removeHeader', 'setHeader', 'write', 'writeHead'];
  Object.assign(reply, Object.fromEntries(names.map((name) => [name, () => reply])));
}
