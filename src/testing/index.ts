/**
 * Doubles for tests: a network in memory, a trainer, a service; all of it moved by a TestClock.
 *
 * @since 0.1.0
 */
export * as MemoryNetwork from "./MemoryNetwork.ts"
export * as TestService from "./TestService.ts"
export * as TestTrainer from "./TestTrainer.ts"
