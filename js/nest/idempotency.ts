/** Idempotency for Nest, on Express and on Fastify. */

import type { ServerResponse } from 'node:http';
import type { CallHandler, ExecutionContext, NestInterceptor } from '@nestjs/common';
import { type Observable, of } from 'rxjs';
import { PROBLEM_HEADERS } from '../base/http.js';
import { type Answer, judge, type Verdict } from '../idempotency/attempt.js';
import {
  type IdempotencyOptions,
  type IdempotentRequest,
  type Settings,
  settingsOf,
} from '../idempotency/options.js';
import { holdBack } from '../idempotency/response.js';

/**
 * An interceptor that handles each `Idempotency-Key` once, as `expressIdempotency` does, with Express and with Fastify.
 * Its handlers get `request.idempotency`. Guards run before it, so a caller that they refuse gets no stored answer. Put it outside
 * of interceptors that change answers. Answers are kept whole, so not for long streams.
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
    const reply = http.getResponse<{ raw?: ServerResponse } & ServerResponse>();
    const response = reply.raw ?? reply;
    const verdict = await judge(this.#settings, request);
    if (verdict.kind === 'pass') return next.handle();
    if (verdict.kind !== 'run') {
      // Nest sends an answer in any case, and this one in its place.
      holdBack(response, async () => answerOf(verdict));
      return of(undefined);
    }
    const { attempt } = verdict;
    Object.assign(request, { idempotency: attempt });
    holdBack(response, async (answer) => {
      await attempt.finish(answer);
      return answer;
    });
    return next.handle();
  }
}

/** The answer to a request whose handler does not run. */
function answerOf(verdict: Extract<Verdict, { kind: 'refuse' | 'replay' }>): Answer {
  if (verdict.kind === 'replay') return verdict.answer;
  const { problem, headers } = verdict;
  return {
    status: problem.status,
    headers: { ...PROBLEM_HEADERS, ...headers },
    body: Buffer.from(JSON.stringify(problem)),
  };
}
