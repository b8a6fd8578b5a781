/**
 * One job at a time for each key, in any number of workers of BullMQ.
 *
 * @packageDocumentation
 */

export { oneAtATime } from './one-at-a-time.js';
export type { KeyedHandler, KeyedProcessor, OneAtATimeOptions } from './options.js';
