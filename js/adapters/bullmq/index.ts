/**
 * For workers of BullMQ: one job at a time for each key, in any number of workers, and jobs that may block the event loop.
 *
 * @packageDocumentation
 */

export { mayBlock } from './may-block.js';
export { oneAtATime } from './one-at-a-time.js';
export type {
  JobProcessor,
  KeyedHandler,
  MayBlockOptions,
  OneAtATimeOptions,
} from './options.js';
