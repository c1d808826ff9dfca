/** How a command ends when it does not succeed. */
import { Data } from "effect"
import type { AttachError } from "../../attach/AttachError.ts"
import type { CellError } from "../../cell/CellError.ts"
import type { ParentError } from "../../parent/ParentError.ts"
import type { FedAvgError } from "../../service/FedAvgError.ts"
import type { ModelFileError } from "../../service/ModelFileError.ts"
import type { ProfileError } from "../../trainer/ProfileError.ts"
import type { TrainerError } from "../../trainer/TrainerError.ts"

/** 1: it was tried and failed. 2: wrong usage or configuration; nothing was opened. */
export class Failure extends Data.TaggedError("Failure")<{
  readonly exitCode: 1 | 2
  readonly message: string
}> {}

export const failed = (message: string): Failure => new Failure({ exitCode: 1, message })
export const wrongUsage = (message: string): Failure => new Failure({ exitCode: 2, message })

/** Reasons for which nothing can be tried until somebody changes a setting or the shared folder. */
const configuration: ReadonlySet<string> = new Set([
  "SettingInvalid",
  "RootUnsafe",
  "PathUnsafe",
  "ListenerUnsafe",
  "RecordInvalid",
  "LockUnsupported",
  "BadConfig",
  "CellMisconfigured",
  "WrongParent",
  "CredentialsError"
])

/** What a person is told of an error of the floors below, and the exit code it means. */
export const toFailure = (
  error: AttachError | TrainerError | ParentError | ProfileError | Failure | OtherError
): Failure => {
  switch (error._tag) {
    case "Failure":
      return error
    case "ProfileError":
      return wrongUsage(error.message)
    case "AttachError":
    case "ParentError":
    case "TrainerError":
    case "CellError":
      return isConfiguration(error.reason) ? wrongUsage(error.message) : failed(error.message)
    default:
      return failed(error.message)
  }
}

type OtherError = CellError | FedAvgError | ModelFileError

const isConfiguration = (reason: { readonly _tag: string; readonly kind?: string }): boolean =>
  reason._tag === "ConfigInvalid" ||
  reason._tag === "UpstreamInvalid" ||
  reason._tag === "CellMisconfigured" ||
  (reason._tag === "RouteFailed" && configuration.has(reason.kind ?? ""))
