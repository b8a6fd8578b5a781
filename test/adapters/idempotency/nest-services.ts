/** The service that takes payments, in Nest, with Express and with Fastify. */

import type { ServerResponse } from 'node:http';
import {
  Controller,
  Get,
  HttpException,
  type INestApplication,
  Post,
  Req,
  Res,
  StreamableFile,
  UseInterceptors,
} from '@nestjs/common';
import { type AbstractHttpAdapter, NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import type { Idempotency, IdempotencyOptions } from 'holdfast/idempotency';
import { IdempotencyInterceptor } from 'holdfast/nest';
import type { Pay, Service } from './services.js';

type Start = (options: IdempotencyOptions, pay: Pay) => Promise<Service>;

export const NEST_SERVICES: Record<string, Start> = {
  'Nest with Express': (options, pay) => start(new ExpressAdapter(), options, pay),
  'Nest with Fastify': (options, pay) =>
    start(new FastifyAdapter({ forceCloseConnections: true }), options, pay),
};

interface PaymentRequest {
  readonly body?: object;
  readonly idempotency?: Idempotency;
}

interface Reply {
  header(name: string, value: string): unknown;
  status(status: number): unknown;
  raw?: ServerResponse;
}

async function start(
  adapter: AbstractHttpAdapter,
  options: IdempotencyOptions,
  pay: Pay,
): Promise<Service> {
  @Controller()
  @UseInterceptors(new IdempotencyInterceptor(options))
  class Payments {
    @Get('payments')
    read(@Req() request: PaymentRequest, @Res({ passthrough: true }) reply: Reply) {
      return this.pay(request, reply);
    }

    @Post(['payments', 'refunds'])
    async pay(@Req() request: PaymentRequest, @Res({ passthrough: true }) reply: Reply) {
      const { status, body } = await pay(request.body ?? {}, request.idempotency);
      // Errors of Nest are answers, too.
      if (status === 502) throw new HttpException(body as object, status);
      reply.header('X-Payment', 'made');
      reply.status(status);
      return body;
    }

    /** With its own type, and without Nest's help on Express. */
    @Post('raw')
    async raw(@Req() request: PaymentRequest, @Res({ passthrough: true }) reply: Reply) {
      await pay(request.body ?? {}, undefined);
      reply.header('X-Raw', 'yes');
      reply.status(202);
      return new StreamableFile(Buffer.from('ab'));
    }
  }
  class App {}
  const root = { module: App, controllers: [Payments] };
  const app: INestApplication = await NestFactory.create(root, adapter, { logger: false });
  await app.listen(0, '127.0.0.1');
  const close = async () => {
    app.getHttpServer().closeAllConnections();
    await app.close();
  };
  return { url: (await app.getUrl()).replace('[::1]', '127.0.0.1'), close };
}
