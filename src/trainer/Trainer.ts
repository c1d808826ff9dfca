/**
 * A trainer written in TypeScript: attach to a service, train what it sends, send back what came of it.
 *
 * Source: docs/wire/attach.md, section 7.
 *
 * @since 0.1.0
 */
import { Clock, Deferred, Duration, Effect, Latch, Option, Queue, type Scope } from "effect"
import { SecureRandom } from "effect/crypto"
import * as Cell from "../cell/Cell.ts"
import * as Rendezvous from "../clientapi/Rendezvous.ts"
import type { FLModel } from "../model/FLModel.ts"
import type { Drivers } from "../transport/Drivers.ts"
import { serve } from "./internal/jobMessages.ts"
import { keep } from "./internal/lease.ts"
import type { TrainerState } from "./internal/state.ts"
import { TaskLedger } from "./TaskLedger.ts"
import { NoSession, RouteFailed, type TrainerError, trainerError } from "./TrainerError.ts"
import * as TrainerGuard from "./TrainerGuard.ts"
import type { TrainerProfile } from "./TrainerProfile.ts"
import * as Session from "./TrainerSession.ts"
