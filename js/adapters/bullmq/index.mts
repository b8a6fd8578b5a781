// The CommonJS build is the real code; one implementation means one identity of every class.
export {
  type KeyedHandler,
  type KeyedProcessor,
  type OneAtATimeOptions,
  oneAtATime,
} from './index.js';
