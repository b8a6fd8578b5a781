// The CommonJS build is the real code; one implementation means one identity of every class.
import { Redlock } from './index.js';

export {
  type Client,
  type ClientExecutionResult,
  ExecutionError,
  type ExecutionResult,
  type ExecutionStats,
  Lock,
  Redlock,
  type RedlockAbortSignal,
  ResourceLockedError,
  type Settings,
} from './index.js';
export default Redlock;
