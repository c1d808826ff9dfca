/**
 * The trainer's end of Attach.
 *
 * @since 0.1.0
 */
export * from "./ProfileError.ts"
export * as Trainer from "./Trainer.ts"
export * from "./TrainerError.ts"
export * from "./TrainerProfile.ts"
export { TrainerSession } from "./TrainerSession.ts"
