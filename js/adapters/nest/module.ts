/** The module that connects managers, and closes them with the application. */

import {
  type DynamicModule,
  type FactoryProvider,
  Module,
  type ModuleMetadata,
  type OnApplicationShutdown,
} from '@nestjs/common';
import { argumentError } from '../../base/errors.js';
import { connect } from '../../connect/connect.js';
import type { ConnectOptions } from '../../connect/options.js';
import type { ConnectTarget } from '../../connect/target.js';
import type { LockManager } from '../../manager/manager.js';
import { lockManagerToken } from './tokens.js';

/** The managers that were closed with their application. @internal */
export const shutDown = new WeakSet<LockManager>();

/**
 * The arguments of `connect` for a manager.
 *
 * @example
 * ```ts
 * import type { HoldfastOptions } from 'holdfast/nest'
 *
 * const options: HoldfastOptions = { target: 'redis://127.0.0.1:6379', ttl: 20_000 }
 * ```
 */
export interface HoldfastOptions extends ConnectOptions {
  /**
   * The server, as `connect` takes it.
   *
   * @default as that of `connect`
   */
  readonly target?: ConnectTarget | undefined;
}

/**
 * Options of `HoldfastModule.forRoot`.
 *
 * @example
 * ```ts
 * import type { HoldfastModuleOptions } from 'holdfast/nest'
 *
 * const options: HoldfastModuleOptions = { name: 'reports', target: 'memory:' }
 * ```
 */
export interface HoldfastModuleOptions extends HoldfastOptions {
  /**
   * The name of the manager, for an application with several; see `InjectLocks`.
   *
   * @default undefined: it is injected by its class, `LockManager`
   */
  readonly name?: string | undefined;
}

/**
 * Options of `HoldfastModule.forRootAsync`.
 *
 * @example
 * ```ts
 * import type { HoldfastModuleAsyncOptions } from 'holdfast/nest'
 *
 * const options: HoldfastModuleAsyncOptions = {
 *   inject: ['REDIS_URL'],
 *   useFactory: (target: string) => ({ target }),
 * }
 * ```
 */
export interface HoldfastModuleAsyncOptions
  extends Pick<ModuleMetadata, 'imports'>,
    Pick<FactoryProvider<HoldfastOptions>, 'inject' | 'useFactory'> {
  /**
   * The name of the manager, as in `forRoot`.
   *
   * @default undefined
   */
  readonly name?: string | undefined;
}

/**
 * A global module that connects a `LockManager` when the application starts, provides it, and closes it in
 * `onApplicationShutdown`, when no request runs any more. The application calls `enableShutdownHooks()` for that to
 * happen at a signal. Each manager of an application is one import.
 *
 * @example
 * ```ts
 * import { Injectable, Module } from '@nestjs/common'
 * import { NestFactory } from '@nestjs/core'
 * import { LockManager } from 'holdfast'
 * import { HoldfastModule } from 'holdfast/nest'
 *
 * @Injectable()
 * class Stock {
 *   constructor(readonly locks: LockManager) {}
 * }
 *
 * @Module({ imports: [HoldfastModule.forRoot({ target: 'redis://127.0.0.1:6379' })], providers: [Stock] })
 * class App {}
 *
 * const app = await NestFactory.createApplicationContext(App, { logger: false })
 * console.log(await app.get(Stock).locks.request('item:42', (lock) => lock.held)) // true
 * await app.close()
 * ```
 */
export class HoldfastModule {
  /**
   * The module of a manager whose options are known.
   *
   * @throws From the start of the application, what `connect` throws.
   *
   * @example
   * ```ts
   * const imports = [HoldfastModule.forRoot({ target: process.env.REDIS_URL }), HoldfastModule.forRoot({ name: 'reports' })]
   * ```
   */
  static forRoot(options: HoldfastModuleOptions = {}): DynamicModule {
    const { name, ...rest } = options;
    const given = typeof options === 'object' ? rest : options;
    return HoldfastModule.forRootAsync({ name, useFactory: () => given });
  }

  /**
   * The module of a manager whose options other providers know.
   *
   * @throws From the start of the application, what `connect` throws.
   *
   * @example
   * ```ts
   * const imports = [
   *   HoldfastModule.forRootAsync({
   *     inject: [ConfigService],
   *     useFactory: (config: ConfigService) => ({ target: config.getOrThrow('REDIS_URL') }),
   *   }),
   * ]
   * ```
   */
  static forRootAsync(options: HoldfastModuleAsyncOptions): DynamicModule {
    const { name, imports = [], inject = [], useFactory } = options;
    const provide = lockManagerToken(name);
    const manager: FactoryProvider<Promise<LockManager>> = {
      provide,
      inject,
      useFactory: async (...args) => {
        const given = await useFactory(...args);
        refuseParts(given);
        const { target, ...rest } = given;
        return connect(target, rest);
      },
    };
    // A provider of its own, so that a manager with which a test replaces this one is closed, too.
    const closer: FactoryProvider<OnApplicationShutdown> = {
      provide: `HoldfastModule:${name ?? ''}`,
      inject: [provide],
      useFactory: (locks: LockManager) => ({
        onApplicationShutdown: () => {
          shutDown.add(locks);
          return locks.close();
        },
      }),
    };
    return {
      module: HoldfastModule,
      global: true,
      imports,
      providers: [manager, closer],
      exports: [provide],
    };
  }

  /**
   * The module of a manager for tests, on a store of its own inside this process, `memory:`.
   *
   * @param name - The name of the manager, as in `forRoot`.
   *
   * @example
   * ```ts
   * const imports = [HoldfastModule.forTest(), HoldfastModule.forTest('reports')]
   * ```
   */
  static forTest(name?: string): DynamicModule {
    return HoldfastModule.forRoot({ name, target: 'memory:' });
  }
}

/** A target, or its parts, belong into one option, beside those of `connect`. */
function refuseParts(options: unknown): void {
  if (typeof options !== 'object' || options === null) {
    const instead = "{ target: 'redis://host:6379' }";
    throw argumentError('ERR_INVALID_ARG_TYPE', `HoldfastModule takes an object, as in ${instead}`);
  }
  const part = ['url', 'host', 'port', 'path', 'sentinels', 'cluster', 'quorum'].find(
    (key) => key in options,
  );
  if (part === undefined) return;
  const as = part === 'url' ? "'redis://host:6379'" : `{ ${part}: ... }`;
  const message = `HoldfastModule has no option "${part}": the servers are its option target, as in { target: ${as} }`;
  throw argumentError('ERR_INVALID_ARG_TYPE', message);
}

Module({})(HoldfastModule);
