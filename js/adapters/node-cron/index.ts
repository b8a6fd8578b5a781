/**
 * A coordinator for node-cron: of all processes with a task, one runs it at each planned time.
 *
 * @packageDocumentation
 */

export { type CoordinatorOptions, runCoordinator, type TaskCoordinator } from './coordinator.js';
