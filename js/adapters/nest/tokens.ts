/** The names of managers in Nest's container. */

import { Inject } from '@nestjs/common';
import { show } from '../../base/checks.js';
import { argumentError } from '../../base/errors.js';
import { LockManager } from '../../manager/manager.js';

/**
 * The token under which Nest provides a manager: the class `LockManager`, or a text for a manager with a name. For
 * `inject`, and for `overrideProvider` in tests.
 *
 * @example
 * ```ts
 * import { lockManagerToken } from 'holdfast/nest'
 *
 * console.log(lockManagerToken() === LockManager, lockManagerToken('reports')) // true LockManager:reports
 * ```
 */
export function lockManagerToken(name?: string): typeof LockManager | string {
  if (name === undefined) return LockManager;
  if (typeof name === 'string' && name !== '') return `LockManager:${name}`;
  const message = `the name of a manager must be a text that is not empty, got ${show(name)}`;
  throw argumentError('ERR_INVALID_ARG_VALUE', message);
}

/**
 * Injects the manager with this name, into a parameter of a constructor or a property. The manager without a name needs
 * no decorator: its token is the class `LockManager`.
 *
 * @example
 * ```ts
 * import { Injectable } from '@nestjs/common'
 * import { LockManager } from 'holdfast'
 * import { InjectLocks } from 'holdfast/nest'
 *
 * @Injectable()
 * class Reports {
 *   constructor(@InjectLocks('reports') readonly locks: LockManager) {}
 * }
 * ```
 */
export function InjectLocks(name?: string): ParameterDecorator & PropertyDecorator {
  return Inject(lockManagerToken(name));
}
