/** A process of an application with a job that all processes start at the same time. Its journal is a list in Redis. */

import { Injectable } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Cron, ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { currentLock, currentSlot, HoldfastModule, Once } from 'holdfast/nest';
import { Redis } from 'ioredis';

const [, , url = '', ticks = '0'] = process.argv;
const redis = new Redis(url);

@Injectable()
class Jobs {
  #tick = 0;

  /** Started by hand, so that a thousand ticks take no thousand seconds. */
  @Cron('0 0 3 * * *', { name: 'counted', waitForCompletion: true })
  @Once('counted', {
    slot(this: Jobs) {
      this.#tick += 1;
      return `${this.#tick}`;
    },
    wait: 60_000,
  })
  async counted(): Promise<void> {
    await redis.rpush('journal:counted', `${currentSlot()} ${currentLock().fence}`);
  }

  @Once('timed', { every: '1s' })
  @Cron('* * * * * *')
  async timed(): Promise<void> {
    await redis.rpush('journal:timed', currentSlot());
  }

  @Once('planned', { cron: '* * * * * *', timeZone: 'Europe/Berlin' })
  @Cron('* * * * * *', { timeZone: 'Europe/Berlin' })
  async planned(): Promise<void> {
    await redis.rpush('journal:planned', currentSlot());
  }
}

async function main(): Promise<void> {
  const app = await NestFactory.createApplicationContext(
    {
      module: class App {},
      imports: [HoldfastModule.forRoot({ target: url }), ScheduleModule.forRoot()],
      providers: [Jobs],
    },
    { logger: ['error'] },
  );
  app.enableShutdownHooks();
  const job = app.get(SchedulerRegistry).getCronJob('counted');
  for (let tick = 0; tick < Number(ticks); tick++) await job.fireOnTick();
  console.log('ticked');
}

process.once('exit', () => redis.disconnect());
void main();
