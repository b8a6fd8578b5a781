// The CommonJS build is the real code; one implementation means one identity of every class.
export { type CoordinatorOptions, runCoordinator, type TaskCoordinator } from './index.js';
