// The CommonJS build is the real code; one implementation means one identity of every class.
import Redlock from './index.js';

export default Redlock;
export { Redlock };
export const { Lock, LockError } = Redlock;
