// The CommonJS build is the real code; one implementation means one identity of every class.
export {
  type JobProcessor,
  type KeyedHandler,
  type MayBlockOptions,
  mayBlock,
  type OneAtATimeOptions,
  oneAtATime,
} from './index.js';
