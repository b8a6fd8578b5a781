/** Puts a function in the place of a method, and gives its object a manager: for all decorators. */

import { Inject } from '@nestjs/common';
import { argumentError } from '../../base/errors.js';
import type { LockManager } from '../../manager/manager.js';
import { lockManagerToken } from './tokens.js';

/** Code around a method: gets the manager, the object, and the arguments. @internal */
type Around = (
  locks: LockManager,
  self: unknown,
  args: unknown[],
  method: () => unknown,
) => Promise<unknown>;

/** The property of an instance in which it has a manager, for each token. */
const properties = new Map<unknown, symbol>();

function propertyOf(token: unknown): symbol {
  const known = properties.get(token);
  if (known !== undefined) return known;
  const made = Symbol('holdfast.locks');
  properties.set(token, made);
  return made;
}

/** The method as errors name it. @internal */
export function placeOf(decorator: string, target: object, key: string | symbol): string {
  const { name } = typeof target === 'function' ? target : target.constructor;
  return `@${decorator} on ${name}.${String(key)}`;
}

/**
 * Has `around` called in place of a method. Each instance has the manager, so it works for every scope, and for controllers
 * as for providers.
 *
 * @throws TypeError if it is no method of instances.
 * @internal
 */
export function wrap(
  target: object,
  descriptor: { value?: unknown },
  { where, manager }: { where: string; manager: string | undefined },
  around: Around,
): void {
  const { method, locksOf } = injectInto(target, descriptor, { where, manager });
  const wrapped = async function (this: unknown, ...args: unknown[]): Promise<unknown> {
    return around(locksOf(this), this, args, () => method.apply(this, args));
  };
  descriptor.value = withTraitsOf(method, wrapped);
}

/** A method of instances, and the manager that Nest gives to each of these. @internal */
interface Injected {
  readonly method: (...args: unknown[]) => unknown;
  /** Throws if Nest has not made the object. */
  locksOf(self: unknown): LockManager;
}

/**
 * Has Nest give each instance the manager as a property.
 *
 * @throws TypeError if it is no method of instances.
 * @internal
 */
export function injectInto(
  target: object,
  descriptor: { value?: unknown },
  { where, manager }: { where: string; manager: string | undefined },
): Injected {
  const method = descriptor?.value;
  // A static method has no instance that Nest could give a manager to.
  if (typeof method !== 'function' || typeof target === 'function') {
    throw argumentError('ERR_INVALID_ARG_TYPE', `${where} must be on a method of instances`);
  }
  const token = lockManagerToken(manager);
  const property = propertyOf(token);
  Inject(token)(target, property);
  return {
    method: method as Injected['method'],
    locksOf(self) {
      const locks = (self as { [property]?: LockManager } | undefined)?.[property];
      if (locks === undefined) throw unmade(where);
      return locks;
    },
  };
}

function unmade(where: string): Error {
  const message = `${where} has no lock manager: Nest gives it to the objects that it makes itself from a class, not to those of "new" or "useFactory"`;
  return argumentError('ERR_INVALID_ARG_VALUE', message);
}

/** The methods that Reflect has with the package reflect-metadata, which Nest needs. */
interface Metadata {
  getOwnMetadataKeys(target: object): unknown[];
  getOwnMetadata(key: unknown, target: object): unknown;
  defineMetadata(key: unknown, value: unknown, target: object): void;
}

/** Gives `to` the name, the properties and the metadata of `from`: other decorators and Nest find a method by them. */
function withTraitsOf(from: object, to: object): object {
  const { prototype: _, ...traits } = Object.getOwnPropertyDescriptors(
    from,
  ) as PropertyDescriptorMap;
  Object.defineProperties(to, traits);
  const { getOwnMetadata, getOwnMetadataKeys, defineMetadata } = Reflect as unknown as Metadata;
  for (const key of getOwnMetadataKeys(from)) defineMetadata(key, getOwnMetadata(key, from), to);
  return to;
}
