/**
 * The names of Attach: attach ids, trainers, client jobs (CJ) and the client parent (CP) above both.
 *
 * A trainer is a child of the CP, never of the CJ, even where its connection goes straight to the CJ.
 * Source: docs/wire/attach.md, section 1.
 *
 * @since 0.1.0
 */
import { Result, Schema } from "effect"
import * as Fqcn from "../identity/Fqcn.ts"
import { type FieldError, refuse } from "./FieldError.ts"

/**
 * What stands before the attach id in the last part of a trainer's name.
 *
 * @category constants
 * @since 0.1.0
 */
export const trainerPrefix = "-client_api_"

const attachIdPattern = /^[A-Za-z0-9_-]{1,64}$/
const attachIdRule = "use 1 to 64 of A-Z a-z 0-9 _ -"

/**
 * The id by which a service and the trainer that it waits for find each other.
 *
 * @category models
 * @since 0.1.0
 */
export const AttachId = Schema.String.check(
  Schema.isPattern(attachIdPattern, { expected: `an attach id: ${attachIdRule}` })
)

/**
 * A client job: its cell's name and the parts that it is made of. Build it with `parseJobName`.
 *
 * @category models
 * @since 0.1.0
 */
export class JobName extends Schema.Class<JobName>("fl-attach/clientapi/JobName")({
  /** `<cp_fqcn>.<job_id>` */
  cjFqcn: Schema.String,
  jobId: Schema.String,
  /** The site's client parent, above the CJ and its trainers. */
  cpFqcn: Schema.String,
  /** The last part of the CP's name. */
  siteName: Schema.String
}) {}

/**
 * The trainer that a client job waits for, with all names that the two need. Build it with `trainerName`.
 *
 * @category models
 * @since 0.1.0
 */
export class TrainerName extends JobName.extend<TrainerName>("fl-attach/clientapi/TrainerName")({
  attachId: AttachId,
  /** `<cp_fqcn>.-client_api_<attach_id>` */
  trainerFqcn: Schema.String
}) {}

const nameRule = "use parts of A-Z a-z 0-9 _ ~ - joined by dots, no part twice"

// Fqcn.validate forgives white space around a name; on the wire both ends compare the name as it is.
const isFqcn = (value: unknown): value is string =>
  typeof value === "string" && Result.getOrElse(Fqcn.validate(value), () => undefined) === value

/**
 * An attach id as it came from outside.
 *
 * @category constructors
 * @since 0.1.0
 */
export const attachId = (value: unknown, field = "attach_id"): Result.Result<string, FieldError> =>
  typeof value === "string" && attachIdPattern.test(value) ? Result.succeed(value) : refuse(field, value, attachIdRule)

/**
 * A site's name as it came from outside: one part of a cell's name.
 *
 * @category constructors
 * @since 0.1.0
 */
export const siteName = (value: unknown, field = "site_name"): Result.Result<string, FieldError> =>
  isFqcn(value) && !value.includes(".")
    ? Result.succeed(value)
    : refuse(field, value, "use the site's name, of A-Z a-z 0-9 _ ~ -, without a dot")

/**
 * A CP's name as it came from outside; its last part is the site's name, if that is given.
 *
 * @category constructors
 * @since 0.1.0
 */
export const parentName = (value: unknown, site?: string, field = "cp_fqcn"): Result.Result<string, FieldError> => {
  if (!isFqcn(value)) return refuse(field, value, nameRule)
  return site === undefined || Fqcn.leaf(value) === site
    ? Result.succeed(value)
    : refuse(field, value, `its last part must be the site's name, "${site}"`)
}

/**
 * A CJ's name as it came from outside: a direct child of its CP, whose last part is the site's name. With `cpFqcn`, of
 * this very CP.
 *
 * @category constructors
 * @since 0.1.0
 */
export const parseJobName = (
  value: unknown,
  expected: { readonly site?: string; readonly cpFqcn?: string } = {},
  field = "cj_fqcn"
): Result.Result<JobName, FieldError> => {
  if (!isFqcn(value)) return refuse(field, value, nameRule)
  const cpFqcn = Fqcn.parent(value)
  if (cpFqcn === "") return refuse(field, value, "a client job's name is <cp_fqcn>.<job_id>")
  if (expected.cpFqcn !== undefined && cpFqcn !== expected.cpFqcn) {
    return refuse(field, value, `it must be a direct child of "${expected.cpFqcn}": "${expected.cpFqcn}.<job_id>"`)
  }
  const site = Fqcn.leaf(cpFqcn)
  if (expected.site !== undefined && site !== expected.site) {
    return refuse(field, value, `its last part but one must be the site's name, "${expected.site}"`)
  }
  return Result.succeed(new JobName({ cjFqcn: value, jobId: Fqcn.leaf(value), cpFqcn, siteName: site }))
}

/**
 * The name of an attach id's trainer below a CP: `<cp_fqcn>.-client_api_<attach_id>`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const trainerFqcn = (cpFqcn: unknown, id: unknown): Result.Result<string, FieldError> =>
  Result.gen(function* () {
    const parent = yield* parentName(cpFqcn)
    const fqcn = Fqcn.join(parent, `${trainerPrefix}${yield* attachId(id)}`)
    // Only a part that stands twice is left to refuse: a CP below a trainer of this very id.
    return isFqcn(fqcn) ? fqcn : yield* refuse("trainer_fqcn", fqcn, nameRule)
  })

/**
 * The trainer that the client job `cjFqcn` waits for under an attach id.
 *
 * @category constructors
 * @since 0.1.0
 */
export const trainerName = (cjFqcn: unknown, id: unknown): Result.Result<TrainerName, FieldError> =>
  Result.gen(function* () {
    const job = yield* parseJobName(cjFqcn)
    const fqcn = yield* trainerFqcn(job.cpFqcn, id)
    return new TrainerName({ ...job, attachId: yield* attachId(id), trainerFqcn: fqcn })
  })
