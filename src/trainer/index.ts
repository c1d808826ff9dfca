/**
 * The trainer's end of Attach.
 *
 * @since 0.1.0
 */
export * from "./ProfileError.ts"
export * as Trainer from "./Trainer.ts"
export * from "./TrainerError.ts"
export * from "./TrainerProfile.ts"
export { type SendOptions, type SessionConfig, TrainerSession } from "./TrainerSession.ts"
